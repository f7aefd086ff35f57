"""The last lines of a session: what it changed, what it cost, and the two commands that go on from there."""
from __future__ import annotations

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
            paint("changes  ", DIM) + paint(f"{closing.files} files, +{closing.added} −{closing.removed}", BOLD)
            + f"   lemni diff {closing.session}   lemni apply {closing.session}"
        )
    err(
        paint("session  ", DIM) + closing.session
        + paint(
            f"   {closing.actions} actions, {closing.commands} commands · sandbox opened in {milliseconds(closing.opened_us)}"
            f" · CPU {milliseconds(closing.cpu_us)} · peak memory {size(closing.memory_peak)}"
            f" · {closing.processes_peak} processes",
            DIM,
        )
    )


def milliseconds(microseconds: int) -> str:
    """``3.1 ms``, ``2.45 s``."""
    return f"{microseconds / 1000:.1f} ms" if microseconds < 1_000_000 else f"{microseconds / 1_000_000:.2f} s"


def size(count: int) -> str:
    """A number of bytes for reading: ``512 B``, ``3.4 MiB``."""
    value, unit = float(count), "B"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024 or unit == "GiB":
            break
        value /= 1024
    return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
