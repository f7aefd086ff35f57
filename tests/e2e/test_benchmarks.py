"""The benchmarks run and give what they promise: rows with the machine's facts, as a table and as JSON. Times prove nothing."""
from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from support import needs

ROOT = Path(__file__).parents[2]
KEYS = {"name", "median", "p95", "unit", "against", "ratio", "target"}


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("cli_start", 1), ("flood", 3), ("journal", 3), ("native_launch", 4), ("sandbox_open", 4),
        pytest.param("workspace", 2, marks=pytest.mark.slow),  # makes 100 000 files
    ],
)
def test_a_benchmark_gives_its_rows(name: str, count: int, tmp_path: Path) -> None:
    needs.require("userns", "seccomp", "overlay")
    written = tmp_path / "rows.json"
    argv = [sys.executable, "-m", "benchmarks", "--quick", "--json", str(written), name]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(written.read_text())
    assert {"kernel", "cpu", "cpus"} <= found["machine"].keys()
    assert len(found["rows"]) >= count
    for row in found["rows"]:
        assert row.keys() == KEYS
        assert row["median"] > 0
        assert row["name"] in done.stdout


def test_the_table_knows_every_benchmark() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "nothing"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    for path in (ROOT / "benchmarks").glob("[a-z]*.py"):
        assert path.stem == "measure" or path.stem in done.stderr
