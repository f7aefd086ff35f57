"""The last lines of a session: what it changed, what it cost, and the two commands that go on from there."""
from __future__ import annotations

from agent.cli.changes import amount
from agent.cli.numbers import counted, milliseconds, size
from agent.cli.terminal import BOLD, DIM, err, paint
from supervisor.session.request import Closing


def summary(closing: Closing) -> None:
    """What a session changed and what it cost, and the two commands that go on from there."""
    if closing.changes is None:
        err(paint("changes  ", DIM) + "none kept")
    elif not closing.changes.entries:
        err(paint("changes  ", DIM) + "none")
    elif not closing.changes.proposed:
        err(paint("changes  ", DIM) + f"none to apply   lemni diff {closing.session}")
    else:
        err(
            paint("changes  ", DIM) + paint(f"{amount(closing.changes.proposed)}, +{closing.added} −{closing.removed}", BOLD)
            + f"   lemni diff {closing.session}   lemni apply {closing.session}"
        )
    err(
        paint("session  ", DIM) + closing.session
        + paint(
            f"   {counted(closing.actions, 'action')}, {counted(closing.commands, 'command')}"
            f" · sandbox opened in {milliseconds(closing.opened_us)}"
            f" · CPU {milliseconds(closing.cpu_us)} · peak memory {size(closing.memory_peak)}"
            f" · {counted(closing.processes_peak, 'process')}",
            DIM,
        )
    )
