"""The journal's own thread: fdatasync(2) takes as long as the disk likes, and the event loop must not wait for it.

Jobs run one after the other, in the order in which they were posted; what they return to runs on the event loop. One
thread for the journal's whole life, and not one of trio's pool: its jobs are never abandoned, and what was written
without haste is settled when nothing else has come for a while.
"""
from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable

import trio

Job = Callable[[], None]
Done = Callable[[BaseException | None], None]


class SyncThread:
    """``unsettled`` says whether ``settle`` is due after ``after`` seconds without a job; ``failed`` gets its error."""

    def __init__(self, unsettled: Callable[[], bool], settle: Job, after: float,
                 failed: Callable[[BaseException], None]) -> None:
        self._unsettled, self._settle, self._after, self._failed = unsettled, settle, after, failed
        self._jobs: queue.SimpleQueue[tuple[Job, Done] | None] = queue.SimpleQueue()
        self._token: trio.lowlevel.TrioToken

    def start(self) -> None:
        """On the event loop. The thread is a daemon: a disk that never answers must not keep the program from ending."""
        self._token = trio.lowlevel.current_trio_token()
        threading.Thread(target=self._serve, name="journal", daemon=True).start()

    def post(self, job: Job, done: Done) -> None:
        """Run ``job`` in the thread, then ``done(error or None)`` on the event loop."""
        self._jobs.put((job, done))

    async def run(self, job: Job) -> None:
        """Run ``job`` in the thread and wait for it; raises what it raises. Cancelled, the job runs all the same."""
        finished = trio.Event()
        errors: list[BaseException] = []

        def done(error: BaseException | None) -> None:
            if error is not None:
                errors.append(error)
            finished.set()

        self.post(job, done)
        await finished.wait()
        if errors:
            raise errors[0]

    async def stop(self, last: Job) -> None:
        """Run ``last`` after all that was posted, and end the thread."""
        try:
            await self.run(last)
        finally:
            self._jobs.put(None)

    def _serve(self) -> None:
        while True:
            try:
                item = self._jobs.get(timeout=self._after if self._unsettled() else None)
            except queue.Empty:
                self._attempt(self._settle, self._report)
                continue
            if item is None:
                return
            self._attempt(*item)

    def _attempt(self, job: Job, done: Done) -> None:
        error: BaseException | None = None
        try:
            job()
        except BaseException as caught:  # belongs to whoever posted the job, whatever it is
            error = caught
        with contextlib.suppress(trio.RunFinishedError):
            self._token.run_sync_soon(done, error)

    def _report(self, error: BaseException | None) -> None:
        if error is not None:
            self._failed(error)
