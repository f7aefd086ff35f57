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
    """Tell of every SIGINT, SIGTERM and SIGHUP until cancelled. They do nothing else meanwhile."""
    with trio.open_signal_receiver(*EXITS) as received:
        task_status.started()
        async for number in received:
            on_signal(signal.Signals(number))
