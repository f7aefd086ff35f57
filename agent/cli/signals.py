"""Signals of a run: each ends it once, with its exit code, while the sandbox is torn down as ever."""
from __future__ import annotations

import signal
from collections.abc import Callable

import trio

EXITS = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129}


async def watch(
    on_signal: Callable[[signal.Signals], None],
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Tell of every SIGINT, SIGTERM and SIGHUP until cancelled. They do nothing else meanwhile.

    A SIGHUP that the caller ignored (nohup(1)) stays ignored. Afterwards all are: what is left of the process is its last
    words, and a second Ctrl-C must not take the exit code from a run that has ended in order.
    """
    obeyed = [number for number in EXITS if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN]
    for one in obeyed:
        signal.signal(one, signal.SIG_IGN)  # what the receiver restores when it is left
    with trio.open_signal_receiver(*obeyed) as received:
        task_status.started()
        async for number in received:
            on_signal(signal.Signals(number))
