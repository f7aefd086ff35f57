"""Opening a session and closing it: the five stages in order, and a teardown that does not depend on how it ends (GA-18).

Identity and policy come first; then the journal's frame is on disk before anything is opened; then working copy and sandbox;
then the agent's work, in which ``Session.submit`` is the only door; last the diff, its record, and the journal's last entry.

Teardown is shielded and bounded, whatever the way out: done, bound, loop, signal, crash of a part.
"""
from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import trio

from supervisor.errors import LemniError
from supervisor.guard.lattice import Judgement
from supervisor.journal import entry
from supervisor.journal.writer import Journal
from supervisor.session import record
from supervisor.session.door import Act, Session
from supervisor.session.execute import Executor
from supervisor.session.prepare import Prepared, prepare, state_of, sweep
from supervisor.session.request import (
    Approver,
    Outcome,
    SessionRequest,
    Watcher,
)
from supervisor.types import Action
from supervisor.workspace.store import new_session_id

__all__ = ["Session", "compose", "open_session"]


@asynccontextmanager
async def open_session(request: SessionRequest, approver: Approver, watcher: Watcher) -> AsyncIterator[Session]:
    """Open a session over the project at ``request.directory``; everything of it is gone when the body has been left.

    Raises SettingError, PolicyError, ProjectError, StoreError, HostUnfit, LaunchFailed, WorkspaceError, JournalBroken: then
    nothing was started, and the refusal is journalled where a journal can be.
    """
    async with compose(request, approver, watcher) as session:
        yield session


@asynccontextmanager
async def compose(
    request: SessionRequest, approver: Approver, watcher: Watcher,
    judge: Callable[[Prepared], Callable[[Action], Judgement]] | None = None, act: Act = Executor.run,
) -> AsyncIterator[Session]:
    """``open_session``, with another judge and another way of acting where the command is the person's own."""
    name = new_session_id()
    identity = request.identity
    try:
        prepared = await trio.to_thread.run_sync(prepare, request, identity)
    except LemniError as refused:
        await record_refusal(request, refused, name)
        raise
    prepared = await trio.to_thread.run_sync(sweep, prepared)
    judgement = judge(prepared) if judge else None
    failure: BaseException | None = None
    frame = record.frame(request, prepared, identity)
    async with Journal.open(prepared.state / "journal", name, identity, frame) as journal:
        session = Session(name, request, prepared, identity, journal, approver, watcher, judgement, act)
        async with trio.open_nursery() as nursery:
            opened = False
            try:
                await session.open(nursery)
                opened = True
                yield session
            except BaseException as error:  # raised again below, out of the nursery: the caller's errors stay as they are
                failure = error
            try:
                await (session.finish(_outcome_of(failure)) if opened else session.refuse(failure))
            finally:
                session.abandon()
                nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure


def _outcome_of(failure: BaseException | None) -> Outcome:
    """How a session ends whose caller left without a word."""
    if failure is None or isinstance(failure, Exception):
        return Outcome.ERROR
    return Outcome.INTERRUPTED


async def record_refusal(request: SessionRequest, refused: LemniError, name: str = "") -> None:
    """A session that could not be opened leaves a journal of its own (JR-02), where one can be written at all.

    ``name`` is the session's, where it has one already.
    """
    try:
        state, identity, name = state_of(request), request.identity, name or new_session_id()
        frame = record.refused_frame(request, identity)
        async with Journal.open(state / "journal", name, identity, frame) as journal:
            if not identity.name:
                await journal.write(entry.Authenticated(identity.source, refused.code))
            await journal.write(entry.SessionRefused(refused.code))
            await journal.close(entry.SessionClosed(request.own_failure, refused.code))
    except LemniError:
        return  # the refusal itself is what the person has to read
