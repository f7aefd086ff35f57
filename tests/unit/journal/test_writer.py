"""The one writer: what is on disk when, what it refuses, and that it is silent for ever after an error."""
from __future__ import annotations

import os
import resource
import subprocess
import sys
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
import trio

from supervisor.errors import EntryRefused, JournalBroken
from supervisor.journal import ledger
from supervisor.journal.appendfile import AppendFile
from supervisor.journal.entry import EVENTS, Executed, Started, Stopped
from supervisor.journal.verify import ExitCode, Verdict, verify, verify_all
from supervisor.journal.writer import BATCH, Journal
from supervisor.types import Identity
from support import journals, needs
from support.journal_oracle import entries

HERE = Path(__file__).resolve().parents[3]


def opened(directory: Path, session: str = "s1") -> AbstractAsyncContextManager[Journal]:
    return Journal.open(directory, session, journals.WHO, journals.FRAME)


async def test_the_frame_stands_before_the_body_begins(tmp_path: Path) -> None:
    async with opened(tmp_path / "a" / "journal") as journal:
        entry = entries(journal.path)[0]
        assert (entry["ev"], entry["seq"], entry["who"], entry["uid"], entry["sess"]) == ("session.frame", 0, "zoé", 1000, "s1")
        assert len(entries(journal.path.parent / "ledger.jsonl")) == 2
        assert journal.path.stat().st_mode & 0o777 == 0o600
        assert journal.path.parent.stat().st_mode & 0o777 == 0o700


async def test_a_synced_entry_is_in_the_file_when_write_returns(tmp_path: Path) -> None:
    async with opened(tmp_path) as journal:
        for n in range(1, 5):
            assert await journal.write(Started(call=f"c{n}"), sync=True) == n
            assert entries(journal.path)[-1]["call"] == f"c{n}"


async def test_entries_stand_in_the_order_of_the_calls(tmp_path: Path) -> None:
    async with opened(tmp_path) as journal:
        for n in range(1000):
            agent, sub = ("main", None) if n % 2 else ("child", "x")
            await journal.write(Started(call=str(n)), sync=n % 100 == 99, agent=agent, sub=sub)
        await journal.close(journals.CLOSED)
    found = entries(journal.path)
    assert [e["call"] for e in found[1:-1]] == [str(n) for n in range(1000)]
    assert (found[1]["agent"], found[1]["sub"], found[2]["agent"], found[2]["sub"]) == ("child", "x", "main", None)
    assert verify_all(tmp_path).exit is ExitCode.INTACT


async def test_many_tasks_share_a_group_commit(tmp_path: Path) -> None:
    async with opened(tmp_path) as journal, trio.open_nursery() as nursery:
        for n in range(200):
            nursery.start_soon(lambda n: journal.write(Started(call=str(n)), sync=True), n)
    assert len(entries(journal.path)) == 201


async def test_what_was_written_without_haste_is_written_without_leaving(tmp_path: Path) -> None:
    async with opened(tmp_path) as journal:
        await journal.write(Started(call="c1"))
        with trio.fail_after(10):
            while len(entries(journal.path)) < 2:
                await trio.lowlevel.checkpoint()


async def test_a_batch_that_outgrows_memory_waits_for_the_disk(tmp_path: Path) -> None:
    async with opened(tmp_path) as journal:
        for _ in range(200):
            await journal.write(Stopped(reason="x" * 30_000))
            assert journal._chain.pending <= BATCH + 65536
    assert len(entries(journal.path)) == 201


async def test_leaving_by_an_error_flushes_and_stays_unsealed(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):  # noqa: PT012
        async with opened(tmp_path) as journal:
            await journal.write(Started(call="c1"))
            raise ZeroDivisionError
    assert len(entries(journal.path)) == 2
    assert verify([journal.path]).findings[-1].verdict is Verdict.UNSEALED


async def test_cancelled_it_is_flushed_all_the_same(tmp_path: Path) -> None:
    with trio.CancelScope() as scope:
        async with opened(tmp_path) as journal:
            await journal.write(Started(call="c1"))
            scope.cancel()
            await trio.sleep_forever()
    assert len(entries(journal.path)) == 2


async def test_nothing_is_written_after_the_close(tmp_path: Path) -> None:
    async with opened(tmp_path) as journal:
        await journal.close(journals.CLOSED)
        with pytest.raises(JournalBroken, match="closed"):
            await journal.write(Started(call="c1"))
    assert verify_all(tmp_path).exit is ExitCode.INTACT


async def test_a_value_without_canonical_form_is_refused_and_the_journal_goes_on(tmp_path: Path) -> None:
    async with opened(tmp_path) as journal:
        for bad in (Started(call="\ud800"), Started(call=float("nan")), Started(call="x" * 70_000),  # type: ignore[arg-type]
                    Executed("c", 2**53, None, 0, 0, 0, 0, 0, 0, 0, False, False)):
            with pytest.raises(EntryRefused):
                await journal.write(bad, sync=True)
        assert await journal.write(Started(call="c1"), sync=True) == 1
        await journal.close(journals.CLOSED)
    assert verify_all(tmp_path).exit is ExitCode.INTACT


async def test_a_second_writer_is_refused(tmp_path: Path) -> None:
    async with opened(tmp_path) as journal:
        with pytest.raises(JournalBroken) as caught:
            async with opened(tmp_path):
                pass
        assert caught.value.errno_name == "EEXIST"
        script = ("import sys, trio; from pathlib import Path; from support import journals\n"
                  "from supervisor.errors import JournalBroken\n"
                  "try: journals.reopen(Path(sys.argv[1]))\n"
                  "except JournalBroken as e: print(e.code)")
        done = await trio.run_process([sys.executable, "-c", script, str(tmp_path)], capture_stdout=True,
                                      env={**os.environ, "PYTHONPATH": f"{HERE}:{HERE}/tests"})
        assert done.stdout == b"journal_locked\n"
        finding = verify([journal.path]).findings[-1]
        assert (finding.live, finding.verdict) == (True, Verdict.UNSEALED)
    assert not verify([journal.path]).findings[-1].live


async def test_an_unwritable_directory_is_a_journal_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(JournalBroken):
        async with opened(tmp_path / "file" / "journal"):
            pytest.fail("no act takes place")
    (tmp_path / "s2.jsonl").symlink_to("/dev/null")
    with pytest.raises(JournalBroken):
        async with opened(tmp_path, "s2"):
            pytest.fail("no act takes place")


async def test_a_limit_met_in_the_middle_of_a_write_poisons(tmp_path: Path) -> None:
    """RLIMIT_FSIZE: a short write, as on a full disk, and then EFBIG. Nothing is tried again, though there is room again."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    async with opened(tmp_path) as journal:
        resource.setrlimit(resource.RLIMIT_FSIZE, (journal.path.stat().st_size + 100, hard))
        try:
            with pytest.raises(JournalBroken, match="only 100 of"):
                await journal.write(Started(call="c1"), sync=True)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        size = journal.path.stat().st_size
        for sync in (False, True):
            with pytest.raises(JournalBroken):
                await journal.write(Started(call="c2"), sync=sync)
        with pytest.raises(JournalBroken):
            await journal.close(journals.CLOSED)
    assert journal.path.stat().st_size == size
    assert verify([journal.path]).findings[-1].verdict is Verdict.TORN
    await trio.to_thread.run_sync(journals.reopen, tmp_path)
    assert verify([journal.path]).findings[-1].verdict is Verdict.RECOVERED


async def test_an_error_behind_an_unsynced_write_is_told_to_the_next(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    async with opened(tmp_path) as journal:
        resource.setrlimit(resource.RLIMIT_FSIZE, (journal.path.stat().st_size, hard))
        try:
            with trio.fail_after(10), pytest.raises(JournalBroken, match="EFBIG"):  # noqa: PT012
                while True:
                    await journal.write(Started(call="c1"))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_failed_sync_is_never_retried(tmp_path: Path) -> None:
    """fdatasync(2) on a pipe is a real EINVAL."""
    source, end = os.pipe()
    with os.fdopen(source), AppendFile(tmp_path / "pipe", end) as file:
        file.append(b"x")
        for _ in range(2):
            with pytest.raises(JournalBroken, match="EINVAL"):
                file.sync()
        with pytest.raises(JournalBroken, match="EINVAL"):
            file.append(b"y")


FULL = """
import sys, trio
from pathlib import Path
from support import journals
from supervisor.errors import JournalBroken
from supervisor.journal.entry import Started
from supervisor.journal.verify import verify
from supervisor.journal.writer import Journal

async def main(directory):
    async with Journal.open(directory, "s1", journals.WHO, journals.FRAME) as journal:
        (directory / "filler").write_bytes(b"")
        with open(directory / "filler", "wb", buffering=0) as filler:
            try:
                while filler.write(bytes(4096)):
                    pass
            except OSError as error:
                print(error.errno)
        try:
            while True:
                await journal.write(Started(call="c1"), sync=True)
        except JournalBroken as error:
            print(error.code, error.errno_name, error.remedy is not None)
        (directory / "filler").unlink()
        try:
            await journal.write(Started(call="c2"), sync=True)
        except JournalBroken as error:
            print("still", error.code)
    print(verify([journal.path]).findings[-1].verdict.value)

trio.run(main, Path(sys.argv[1]))
journals.reopen(Path(sys.argv[1]))
print(verify([Path(sys.argv[1]) / "s1.jsonl"]).findings[-1].verdict.value)
"""


def test_a_full_file_system(tmp_path: Path) -> None:
    """A real one: a small tmpfs in a mount namespace of the test's own."""
    needs.require("userns")
    command = f'mount -t tmpfs -o size=256k none "{tmp_path}" && exec "{sys.executable}" -c "$0" "{tmp_path}"'
    done = subprocess.run(["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", command, FULL], capture_output=True,
                          text=True, env={**os.environ, "PYTHONPATH": f"{HERE}:{HERE}/tests"}, check=False)
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert lines[0] == "28"
    assert lines[1].startswith("journal_unwritable")
    assert lines[2] == "still journal_unwritable"
    assert (lines[3], lines[4]) in {("torn", "recovered"), ("unsealed", "unsealed")}


def test_every_event_has_a_name_of_its_own_and_is_in_the_closed_set() -> None:
    assert len({kind.EV for kind in EVENTS}) == len(EVENTS)
    import supervisor.journal.entry as entry

    defined = {v for v in vars(entry).values() if isinstance(v, type) and issubclass(v, entry.Event) and v is not entry.Event}
    assert defined == set(EVENTS)


async def test_a_ledger_that_somebody_else_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounded: the session ends with an error, and its journal, complete as it is, stays unsealed."""
    monkeypatch.setattr(ledger, "WAIT", 0.05)
    async with opened(tmp_path) as journal:
        with AppendFile.open(tmp_path / "ledger.jsonl"), pytest.raises(JournalBroken) as caught:
            await journal.close(journals.CLOSED)
        assert caught.value.code == "journal_locked"
    finding = verify([journal.path]).findings[-1]
    assert (finding.verdict, finding.reason) == (Verdict.UNSEALED, "closed, but the ledger does not hold its end")


async def test_cancelled_while_opening_nothing_stays_locked(tmp_path: Path) -> None:
    with trio.CancelScope() as scope:
        scope.cancel()
        async with opened(tmp_path):
            pytest.fail("cancelled before the body")
    assert not verify([tmp_path / "s1.jsonl"]).findings[-1].live
    async with opened(tmp_path, "s2"):
        pass


async def test_names_of_people_are_shown_safely(tmp_path: Path) -> None:
    async with Journal.open(tmp_path, "s1", Identity("zo\udce9", 1000, "nss"), journals.FRAME) as journal:
        assert entries(journal.path)[0]["who"] == "zo\\xe9"
