"""``python -m benchmarks``: every benchmark, one table with the machine's facts; ``--json FILE`` writes it.

Each sibling module with a function ``rows(quick: bool) -> list[Row]`` is one benchmark. Nothing here passes or fails: a
row that misses its target says so.
"""
from __future__ import annotations

import argparse
import importlib
import json
import os
import pkgutil
import platform
import sys
from dataclasses import asdict

import benchmarks
from benchmarks.measure import Row

NOT_BENCHMARKS = {"__main__", "measure"}


def machine() -> dict[str, str | int]:
    """Facts without which a number means nothing."""
    model = "unknown"
    with open("/proc/cpuinfo", encoding="utf-8") as f:
        for line in f:
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    return {
        "kernel": platform.release(),
        "cpu": model,
        "cpus": os.cpu_count() or 0,
        "python": platform.python_version(),
        "uid": os.getuid(),
    }


def show(row: Row) -> str:
    """One line of the table."""
    ratio = "" if row.ratio is None else f"{row.ratio:.2f} ×"
    target = "" if row.target is None else f"≤ {row.target:g}"
    measured = row.ratio if row.ratio is not None else (row.median if row.unit != "µs" else None)
    verdict = "" if row.target is None or measured is None else ("ok" if measured <= row.target else "MISSED")
    return (f"{row.name:<52} {row.median:>11.1f} {row.p95:>11.1f} {row.unit:<5} "
            f"{ratio:>8} {row.against:<34} {target:>7} {verdict}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--json", metavar="FILE", help="write the rows and the machine's facts to FILE")
    parser.add_argument("--quick", action="store_true", help="fewer rounds: numbers of the right order only")
    parser.add_argument("names", nargs="*", help="only these benchmarks (module names)")
    options = parser.parse_args()
    known = sorted(m.name for m in pkgutil.iter_modules(benchmarks.__path__) if m.name not in NOT_BENCHMARKS)
    unknown = set(options.names) - set(known)
    if unknown:
        parser.error(f"no such benchmark: {', '.join(sorted(unknown))} (there are: {', '.join(known)})")
    facts = machine()
    print("  ".join(f"{k}: {v}" for k, v in facts.items()), flush=True)
    print(f"{'':<52} {'median':>11} {'p95':>11} {'':<5} {'ratio':>8} {'against':<34} {'target':>7}", flush=True)
    rows: list[Row] = []
    for name in options.names or known:
        for row in importlib.import_module(f"benchmarks.{name}").rows(options.quick):
            rows.append(row)
            print(show(row), flush=True)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as f:
            json.dump({"machine": facts, "rows": [asdict(r) for r in rows]}, f, indent=1)
            f.write("\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
