"""The look for what a session cannot read, where a project is too large to be looked through before it opens.

It goes on beside the work, in a thread, and is told when it is done. A short session gives it a moment more; then what was
found so far is told, and that it is not all.
"""
from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio

GRACE = 0.5  # seconds for what is left to look at, when the session ends: some 300 000 files
PATIENCE = 1.0  # seconds for the thread to see that the session ends: it looks between two batches of names


class Looking:
    """One look. ``run`` is a task of the session's; ``finish`` ends it."""

    def __init__(self) -> None:
        self._ended = False
        self._done: trio.Event | None = None
        self._scope = trio.CancelScope()

    async def run(
        self, look: Callable[[Callable[[], bool]], str | None], tell: Callable[[str], Awaitable[None]]
    ) -> None:
        """Look, and tell what there is to tell. ``look`` blocks, for as long as what it is given says yes."""
        self._done = trio.Event()
        try:
            with self._scope:
                try:
                    found = await trio.to_thread.run_sync(look, lambda: not self._ended, abandon_on_cancel=True)
                finally:
                    self._ended = True  # the thread of a cancelled look reads it too
                if found is not None:
                    with trio.CancelScope(shield=True):  # what is told is on record
                        await tell(found)
        finally:
            self._done.set()

    async def finish(self) -> None:
        """Have it end soon, with what it found so far."""
        if self._done is not None:
            with trio.move_on_after(GRACE):
                await self._done.wait()
            self._ended = True
            with trio.move_on_after(PATIENCE):
                await self._done.wait()
        self._scope.cancel()
