"""The person's word on a stored diff, recorded before it is carried out (HV-02, HV-10…12, JR-06).

A decision comes after its session's journal was sealed, so it gets a journal of its own, whose frame names the session.
"""
from __future__ import annotations

import os
from pathlib import Path

import trio

from supervisor.errors import LemniError
from supervisor.journal.entry import Applied as AppliedEvent
from supervisor.journal.entry import ChangeDecision, Frame, SessionClosed
from supervisor.journal.writer import Journal
from supervisor.types import Attribution, Identity
from supervisor.version import VERSION
from supervisor.workspace.apply import Applied, Conflict, apply_changes
from supervisor.workspace.changes import ChangeSet
from supervisor.workspace.store import Decision, SessionRecord, Store, new_session_id


async def decide(
    state: Path, store: Store, record: SessionRecord, changes: ChangeSet, identity: Identity,
    *, accepted: bool, debris: bool,
) -> Applied | Conflict | None:
    """Record the answer to the diff of ``record``, then apply it where it was accepted: all of it or nothing.

    None after a refusal, which leaves the repository untouched. ``debris`` takes the build debris too. Raises
    JournalBroken (nothing was applied) and WorkspaceError (nothing is applied any more: what had been was undone).
    """
    answer = "accepted" if accepted else "refused"
    frame = Frame(
        kind="apply", names=record.id, method=identity.source, surface="terminal", mode="apply",
        project=os.fsdecode(record.project), policy=None, profile="none", kernel=os.uname().release,
        layers_on=(), layers_off=(), version=VERSION,
    )
    async with Journal.open(state / "journal", new_session_id(), identity, frame) as journal:
        await journal.write(ChangeDecision(record.id, answer, Attribution.HUMAN.value), sync=True)
        if not accepted:
            await journal.close(SessionClosed(0, "refused"))
            store.decide(record.id, Decision.REFUSED)
            return None
        with trio.CancelScope(shield=True):  # all or nothing, then its record: an interrupt waits for the end of both
            try:
                store.decide(record.id, Decision.ACCEPTED)
                outcome = await trio.to_thread.run_sync(
                    lambda: apply_changes(
                        record.project, changes, store.blobs(record.id), store.apply_journal(record), debris=debris,
                        inode=record.root,
                    )
                )
            except LemniError as failed:
                await journal.write(AppliedEvent(record.id, 0, failed.code), sync=True)
                await journal.close(SessionClosed(1, failed.code))
                raise
            if isinstance(outcome, Applied):
                await journal.write(AppliedEvent(record.id, outcome.files, "applied"), sync=True)
                await journal.close(SessionClosed(0, "applied"))
                store.decide(record.id, Decision.APPLIED)
            else:
                await journal.write(AppliedEvent(record.id, 0, "conflict"), sync=True)
                await journal.close(SessionClosed(1, "conflict"))
        return outcome
