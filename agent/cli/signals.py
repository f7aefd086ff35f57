"""Signals of a run: each ends it once, with its exit code, while the sandbox is torn down as ever."""
from __future__ import annotations

import signal
from collections.abc import Callable

import trio

from supervisor.session.request import Outcome

OUTCOMES = {
    signal.SIGINT: Outcome.INTERRUPTED,
    signal.SIGQUIT: Outcome.QUIT,
    signal.SIGTERM: Outcome.TERMINATED,
    signal.SIGHUP: Outcome.HANGUP,
}
EXITS = {number: 128 + number for number in OUTCOMES}  # as shells have it
_LEFT_IGNORED = frozenset({signal.SIGHUP, signal.SIGQUIT})


async def watch(
    on_signal: Callable[[signal.Signals], None],
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Tell of every SIGINT, SIGQUIT, SIGTERM and SIGHUP until cancelled. They do nothing else meanwhile.

    A SIGHUP that the caller ignored (nohup(1)), or a SIGQUIT (a shell's job in the background), stays ignored. Afterwards
    all are: what is left of the process is its last words, and a second Ctrl-C must not take the exit code from a run that
    has ended in order.
    """
    obeyed = [one for one in OUTCOMES if one not in _LEFT_IGNORED or signal.getsignal(one) is not signal.SIG_IGN]
    for one in obeyed:
        signal.signal(one, signal.SIG_IGN)  # what the receiver restores when it is left
    with trio.open_signal_receiver(*obeyed) as received:
        task_status.started()
        async for number in received:
            on_signal(signal.Signals(number))
