"""``lemni apply``: the one way out of the sandbox. Shows the diff, reads one line, applies all of it or nothing."""
from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from supervisor.workspace.apply import PathReason
    from supervisor.workspace.changes import ChangeSet

YES = frozenset({b"y", b"yes", b"o", b"oui"})


@click.command("apply", short_help="Show a session's changes, ask, and apply them.")
@click.argument("session", metavar="[ID]", required=False)
@click.option("--debris", is_flag=True, help="Also what a build leaves and your ignore rules match.")
def command(session: str | None, debris: bool) -> int:
    """Show the changes of session ID (any unique prefix), or of this repository's latest undecided session; then ask.

    The answer is one line of standard input: y, yes, o or oui applies; anything else refuses. No option replaces it. All
    changes are applied or none; if the repository changed underneath, none. Nothing is committed.

    \b
    lemni apply
    lemni apply 01k7
    """
    import trio

    from agent.auth.local import identify
    from agent.cli.changes import amount, show
    from agent.cli.store import chosen
    from agent.cli.terminal import BOLD, GREEN, err, paint
    from agent.cli.visible import visible
    from supervisor.errors import StoreError
    from supervisor.session.decide import decide
    from supervisor.session.state import state_directory
    from supervisor.workspace.apply import UNDONE, Conflict, PathReason, recover
    from supervisor.workspace.store import Decision, Store

    state = state_directory()
    store = Store(state)
    record = chosen(store, session)
    if recover(record.project, store.applying(record.project_id)):
        err(UNDONE)
    if record.decision is Decision.APPLIED:
        raise StoreError("the changes of this session were applied already", on=record.id, code="already_applied")
    changes = store.load_changes(record)
    show(store, record, changes)
    wanted = (*changes.proposed, *changes.debris) if debris else changes.proposed
    if not wanted:
        err("nothing to apply" + (f": {left}" if (left := _left(record.id, changes)) else ""))
        return 0
    if conflicts := [PathReason(entry.path, entry.conflict) for entry in wanted if entry.conflict]:
        return _conflict(conflicts)
    where = visible(record.project, lines=False)
    accepted = _asked(paint(f"Apply these changes to {where}?", BOLD) + " [y/N] ")
    outcome = trio.run(
        lambda: decide(state, store, record, changes, identify(), accepted=accepted, debris=debris)
    )
    if outcome is None:
        err(f"refused: nothing was changed; `lemni apply {record.id}` asks again")
        return 0
    if isinstance(outcome, Conflict):
        return _conflict(outcome.paths)
    not_applied = {one.path for one in outcome.left_out}
    done = [entry for entry in wanted if entry.path not in not_applied]
    err(paint("applied", GREEN) + f" to {amount(done)}; nothing is committed")
    for one in outcome.left_out:
        err(f"  left out: {visible(one.path, lines=False)}: {visible(one.why, lines=False)}")
    return 0


def _left(session: str, changes: ChangeSet) -> str:
    """What of a change set no application without ``--debris`` would write, in words."""
    from agent.cli.changes import amount

    parts = []
    if changes.debris:
        parts.append(f"{amount(changes.debris)} of build debris (`lemni apply {session} --debris` takes it)")
    if changes.refused:
        parts.append(f"{amount(changes.refused)} that lemni never applies")
    return ", ".join(parts)


def _conflict(paths: Iterable[PathReason]) -> int:
    """Tell why nothing was applied; the exit code."""
    from agent.cli.terminal import err
    from agent.cli.visible import visible

    err("not applied: the repository changed since the session started, and nothing was touched")
    for one in paths:
        err(f"  {visible(one.path, lines=False)}: {visible(one.why, lines=False)}")
    return 1


def _asked(question: str) -> bool:
    """One line of standard input, terminal or not; its end or an unreadable one is a no."""
    import sys

    from agent.cli.terminal import err

    err(question, end="")
    try:
        line = sys.stdin.buffer.readline(1024) if sys.stdin is not None else b""
    except OSError:
        line = b""
    if not line.endswith(b"\n"):
        err()
    return line.strip().lower() in YES
