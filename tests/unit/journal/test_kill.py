"""kill -9 at any point: what was acknowledged is there, and the verdict is *unsealed* or *torn*, nothing worse."""
from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from supervisor.journal.verify import ExitCode, Verdict, verify, verify_all
from support import journals

HERE = Path(__file__).resolve().parents[3]

WRITER = """
import sys, trio
from pathlib import Path
from support import journals
from supervisor.journal.entry import Started
from supervisor.journal.writer import Journal

async def main(directory, session):
    async with Journal.open(directory, session, journals.WHO, journals.FRAME) as journal:
        for n in range(100_000):
            for _ in range(n % 7):
                await journal.write(Started(call="plain"))
            print(await journal.write(Started(call=str(n)), sync=True), flush=True)

trio.run(main, Path(sys.argv[1]), sys.argv[2])
"""

LEDGER = """
import sys
from pathlib import Path
from support import journals
for n in range(int(sys.argv[3])):
    journals.write(Path(sys.argv[1]), f"{sys.argv[2]}x{n}", events=[])
    print(n, flush=True)
"""


@contextmanager
def started(script: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", script, *arguments], stdout=subprocess.PIPE,
                               env={**os.environ, "PYTHONPATH": f"{HERE}:{HERE}/tests"})
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("acknowledged", [1, 2, 3, 5, 20, 60])
def test_killed_while_writing(tmp_path: Path, acknowledged: int) -> None:
    with started(WRITER, str(tmp_path), "s1") as process:
        assert process.stdout is not None
        for _ in range(acknowledged):
            last = int(process.stdout.readline())
        process.send_signal(signal.SIGKILL)
        process.wait()
    finding = verify([tmp_path / "s1.jsonl"]).findings[-1]
    assert finding.verdict in {Verdict.UNSEALED, Verdict.TORN}
    assert not finding.live  # the lock went with the process
    assert finding.entries > last
    assert verify_all(tmp_path).exit is ExitCode.UNSEALED
    journals.reopen(tmp_path)
    assert verify([tmp_path / "s1.jsonl"]).findings[-1].verdict in {Verdict.OK, Verdict.RECOVERED}


def test_every_prefix_is_what_a_kill_may_leave(tmp_path: Path) -> None:
    """The writer only appends: at each instant the file is a prefix of what it becomes."""
    path = journals.write(tmp_path, close=False)
    data = path.read_bytes()
    for size in range(len(data) + 1):
        path.write_bytes(data[:size])
        anchored = size < data.index(b"\n") + 1  # entry 0 is on disk before the ledger knows it
        if anchored:
            (tmp_path / "ledger.jsonl").unlink(missing_ok=True)
        assert verify([path]).findings[-1].verdict in {Verdict.UNSEALED, Verdict.TORN}, size


def test_every_prefix_of_the_ledger_is_gone_on_with(tmp_path: Path) -> None:
    journals.write(tmp_path, "s1", events=[])
    book = tmp_path / "ledger.jsonl"
    data = book.read_bytes()
    for size in range(0, len(data) + 1, 17):
        directory = tmp_path / str(size)
        directory.mkdir()
        (directory / "ledger.jsonl").write_bytes(data[:size])
        path = journals.write(directory, "s2", events=[])
        assert verify([path]).findings[-1].verdict is Verdict.OK, size
        assert verify([directory / "ledger.jsonl"]).findings[0].verdict in {Verdict.OK, Verdict.RECOVERED}, size


def test_killed_in_the_ledger_and_many_writers_of_it(tmp_path: Path) -> None:
    """Processes that write the one ledger at the same time, some of them killed: its chain stands."""
    with started(LEDGER, str(tmp_path), "a", "20") as one, started(LEDGER, str(tmp_path), "b", "20") as other, \
            started(LEDGER, str(tmp_path), "c", "1000") as victim:
        assert victim.stdout is not None
        for _ in range(5):
            victim.stdout.readline()
        victim.kill()
        assert (one.wait(60), other.wait(60)) == (0, 0)
    report = verify_all(tmp_path)
    by_name = {finding.path.name: finding.verdict for finding in report.findings}
    assert by_name.pop("ledger.jsonl") in {Verdict.OK, Verdict.RECOVERED, Verdict.TORN}
    assert [v for name, v in by_name.items() if name[0] in "ab"] == [Verdict.OK] * 40
    assert set(by_name.values()) <= {Verdict.OK, Verdict.UNSEALED, Verdict.TORN}
