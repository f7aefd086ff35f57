"""Journals for tests, written by the real writer."""
from __future__ import annotations

from pathlib import Path

import trio

from supervisor.journal.entry import Event, Executed, Frame, Prompt, Proposed, SessionClosed, Started
from supervisor.journal.writer import Journal
from supervisor.types import Identity

WHO = Identity("zoé", 1000, "nss")
FRAME = Frame(kind="session", names=None, method="nss", surface="print", mode="agent", project="/home/zoé/dépôt",
              policy="a" * 64, profile="default", kernel="6.1.0", layers_on=("landlock: ABI 7",), layers_off=(),
              version="0.1.0")
CLOSED = SessionClosed(exit=0, reason="done")


def some_events() -> list[Event]:
    """Of several kinds; the second has what line-based readers trip over."""
    return [
        Prompt(sha256="b" * 64, length=12),
        Proposed(call="c1", tool="Bash", raw_sha256="c" * 64, raw_length=30, command="printf 'é\u2028\n\x85'; ls"),
        Started(call="c1"),
        Executed(call="c1", code=-1, signal=None, duration_us=1000, cpu_us=1, max_rss=4096, kept_out=3,
                 dropped_out=0, kept_err=0, dropped_err=0, timed_out=False, killed=False),
    ]


def write(directory: Path, session: str = "s1", close: bool = True, events: list[Event] | None = None) -> Path:
    """A journal in this directory, complete or left open."""
    async def main() -> Path:
        async with Journal.open(directory, session, WHO, FRAME) as journal:
            for event in some_events() if events is None else events:
                await journal.write(event)
            if close:
                await journal.close(CLOSED)
            return journal.path

    return trio.run(main)


def reopen(directory: Path, session: str = "s1", close: bool = True) -> None:
    """Go on with a journal after a crash, as the writer does."""
    async def main() -> None:
        async with Journal.reopen(directory, session, WHO) as journal:
            await journal.write(Started(call="c9"), sync=True)
            if close:
                await journal.close(CLOSED)

    trio.run(main)
