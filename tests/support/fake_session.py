"""A session without a sandbox, for tests of the loop alone: the same contract as ``supervisor.session``, in memory.

It bounds actions, blocks the fourth identical call in a row, cancels what comes after a stop, and kills the running call on an
interruption, as the real one does; ``log`` has what the journal would have. What a call comes to is ``answer``'s to say.
"""
from __future__ import annotations

import math
from collections.abc import Awaitable, Callable

import trio

from supervisor.types import CallState, Proposal, Reason, Result, Stop, StopKind

Answer = Callable[[Proposal], Awaitable[Result]]


async def ran(proposal: Proposal) -> Result:
    """The usual answer: it ran, and says with what."""
    await trio.lowlevel.checkpoint()
    return Result(proposal.call_id, CallState.DONE, f"ran {proposal.action}", untrusted=True)


class FakeSession:
    def __init__(self, answer: Answer = ran, *, actions: int = 150, minutes: float = math.inf,
                 model_bytes: int = 32 << 20) -> None:
        self.log: list[tuple[str, object]] = []
        self.stop: Stop | None = None
        self._stopped = trio.Event()
        self._answer = answer
        self._actions = actions
        self._used = 0
        self._last: tuple[str, str] | None = None
        self._same = 0
        self._running: trio.CancelScope | None = None
        self._interrupted = False
        self._minutes = minutes
        self._model_bytes = self._max_bytes = model_bytes
        self._deadline = math.inf

    async def begin(self, prompt: str) -> None:
        self.log.append(("begin", prompt))
        self._used, self._same, self._last, self._interrupted = 0, 0, None, False
        self._deadline = trio.current_time() + self._minutes
        if self.stop is not None and self.stop.kind in (StopKind.BOUND, StopKind.LOOP):
            self.stop, self._stopped = None, trio.Event()

    def minutes_left(self) -> float:
        return max(0.0, self._deadline - trio.current_time())

    def model_bytes_left(self) -> int:
        return max(0, self._model_bytes)

    async def before_model_call(self) -> Stop | None:
        await trio.lowlevel.checkpoint()
        self.log.append(("before", self._used))
        if self.stop is None and self._used >= self._actions:
            self.halt(Stop(StopKind.BOUND, "actions", self._actions, self._used, "The bound of actions was reached."))
        if self.stop is None and self.minutes_left() == 0:
            self.halt(Stop(StopKind.BOUND, "minutes", 0, 0, "The bound of minutes was reached."))
        if self.stop is None and self._model_bytes <= 0:
            self.halt(Stop(StopKind.BOUND, "modelBytes", self._max_bytes, 0, "The bound of bytes was reached."))
        return self.stop

    async def model_exchange(self, sent: int, received: int, duration_us: int) -> None:
        await trio.lowlevel.checkpoint()
        self.log.append(("exchange", (sent, received)))
        self._model_bytes -= sent + received

    async def submit(self, proposal: Proposal) -> Result:
        self.log.append(("submit", (proposal.tool, proposal.raw_arguments)))
        result = await self._submit(proposal)
        self.log.append((result.state.value, result.call_id))
        return result

    async def _submit(self, proposal: Proposal) -> Result:
        def canceled(reason: Reason) -> Result:
            return Result(proposal.call_id, CallState.CANCELED, f"refused: {reason.value}", reason)

        if self.stop is not None:
            return canceled(Reason.STOPPED)
        if self._interrupted:
            return canceled(Reason.INTERRUPTED)
        if self._used >= self._actions:
            return canceled(Reason.BOUND)
        self._used += 1
        this = (proposal.tool, proposal.raw_arguments)
        self._same = self._same + 1 if this == self._last else 1
        self._last = this
        if self._same > 3:
            self.halt(Stop(StopKind.LOOP, proposal.tool, 3, 4, "The same call came four times in a row."))
            return canceled(Reason.LOOP)
        if proposal.action is None:
            return Result(proposal.call_id, CallState.ERRORED, proposal.fault_text, proposal.fault)
        with trio.CancelScope() as self._running:
            return await self._answer(proposal)
        return Result(proposal.call_id, CallState.ERRORED, "interrupted while it ran", Reason.INTERRUPTED)

    async def interrupt(self) -> None:
        await trio.lowlevel.checkpoint()
        self.log.append(("interrupt", None))
        self._interrupted = True
        if self._running is not None:
            self._running.cancel()

    def halt(self, stop: Stop) -> None:
        self.stop = stop
        self._stopped.set()

    async def wait_stopped(self) -> Stop:
        await self._stopped.wait()
        assert self.stop is not None
        return self.stop

    def said(self, kind: str) -> list[object]:
        return [what for name, what in self.log if name == kind]
