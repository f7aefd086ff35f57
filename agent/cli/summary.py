"""The last lines of a session: what it changed, what it cost, and the two commands that go on from there."""
from __future__ import annotations

from agent.cli.numbers import counted, milliseconds, size
from agent.cli.terminal import BOLD, DIM, err, paint
from supervisor.session.request import Closing


def summary(closing: Closing) -> None:
    """What a session changed and what it cost, and the two commands that go on from there."""
    if closing.changes is None:
        err(paint("changes  ", DIM) + "none kept")
    elif closing.files == 0:
        err(paint("changes  ", DIM) + "none")
    else:
        err(
            paint("changes  ", DIM) + paint(f"{counted(closing.files, 'file')}, +{closing.added} −{closing.removed}", BOLD)
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
