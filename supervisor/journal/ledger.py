"""The ledger: one line when a journal begins, one when it is complete, in a chain of its own.

A journal's own chain cannot tell that its end is missing. The ledger holds each journal's first and last hash, so that a
journal which was cut, emptied or removed is found out by comparing. Many processes write it, each for the time of one
``fdatasync``, under its lock.
"""
from __future__ import annotations

import uuid
from pathlib import Path

from native.chain import Chain
from supervisor.errors import JournalBroken
from supervisor.journal.appendfile import AppendFile
from supervisor.journal.entry import Event, LedgerFrame, values
from supervisor.journal.tail import begin, now, resume
from supervisor.types import Identity

NAME = "ledger.jsonl"
WAIT = 5.0  # seconds; a holder needs well under one


def record(directory: Path, identity: Identity, session: str, event: Event) -> None:
    """Append one entry to the directory's ledger, on disk when this returns. Blocks; raises JournalBroken."""
    path = directory / NAME
    while True:
        with AppendFile.open(path, WAIT, make=True) as file:
            try:
                chain = _chain(file, identity, session)
            except JournalBroken as error:
                if error.code != "journal_headless":
                    raise
                # Torn in its very first line: there is no chain to go on with, and nothing is ever truncated. Set aside
                # under the lock; whoever waits for it looks at the name again.
                path.rename(path.with_name(f"ledger-{uuid.uuid4().hex}.jsonl"))
                continue
            chain.append(event.EV, values(event), *now())
            file.append(chain.take())
            file.sync()
            return


def _chain(file: AppendFile, identity: Identity, session: str) -> Chain:
    if file.size() == 0:
        return begin(LedgerFrame(), identity, session)[0]
    return resume(file, identity, session)[0]
