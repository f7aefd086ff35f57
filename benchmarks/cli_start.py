"""What ``lemni --version`` costs beside an interpreter that does nothing: imports must stay lazy."""
from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from benchmarks.measure import Row, compare, interleave


def rows(quick: bool) -> list[Row]:
    lemni = Path(sys.executable).with_name("lemni")
    if not lemni.exists():
        return [Row("lemni --version", 0, 0, "µs", "lemni is not installed beside this Python", None, 3)]

    def run(*argv: str) -> None:
        subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)

    samples = interleave(
        {
            "lemni": lambda: run(str(lemni), "--version"),
            "python": lambda: run(sys.executable, "-c", "pass"),
        },
        rounds=10 if quick else 40,
    )
    return [compare("lemni --version", samples["lemni"], samples["python"], "python -c pass", 3)]
