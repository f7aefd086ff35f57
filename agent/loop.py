"""The loop: prompt → model → calls → ``Session.submit`` → results → model, until an answer without a call, or a stop.

The loop holds nothing that runs anything. It proposes, in the order in which the model asked, and carries the results back
in that order. Who decides, what runs and what is recorded is behind ``Door``, the session. The loop's own duties are:

* before each model call it asks the session whether there may be one (SE-11);
* each call gets exactly one result in the history, whatever happens to the turn (``context.Conversation`` insists);
* on a bound there is one last model turn without tools, and a call in it is never submitted (SE-23 to SE-25); it is announced,
  and what it may take is bounded by what the session still had, plus a little where that bound is the one that was reached;
* a loop block, a stop and a broken session end it at once (LD-04).

What stops a turn from outside (an interruption, the session's stop, the end of its minutes) cancels the model's stream; the
calls that were being generated become canceled, without a refusal on each (LC-15).
"""
from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import trio

from agent.calls import MAX_CALLS, Assembler, Call, CallDelta, clean, joined
from agent.context import Conversation, given_up, summary_request, system_prompt
from agent.errors import ModelError
from agent.providers.base import Done, Meter, ModelEvent, Provider, ReasoningDelta, TextDelta
from agent.tools.catalogue import Catalogue
from supervisor.session import request
from supervisor.types import CallState, Layer, Proposal, Reason, Result, Stop, StopKind

SUMMARY_SECONDS = 180.0  # the closing summary ends with the session's minutes, and after this long at the latest …
LATE_SUMMARY_SECONDS = 30.0  # … but has these, also where the minutes are over already
LATE_WORD_SECONDS = 5.0  # to its first word, where the model was silent or still talking when the minutes ended
_SUMMARY_SHARE = 8  # a summary after the bound of bytes may exchange this part of the bound on top of it, request included
_MARGIN_SECONDS = 0.05  # the stream is cut just after the bound, so that the session sees the bound as reached
_RECORD_SECONDS = 5.0  # for noting an exchange in the journal while the turn is being cancelled

_FINISH_ERRORS = {
    "length": ("model_truncated", "the answer reached the model's token limit", "raise the server's token limit or context"),
    "content_filter": ("model_filtered", "the server's content filter ended it", "reword the request, or use another model"),
}


class Door(Protocol):
    """What the loop needs of a session: the public methods of ``supervisor.session.live.Session``."""

    async def begin(self, prompt: str) -> None: ...
    async def before_model_call(self) -> Stop | None: ...
    async def model_exchange(self, sent: int, received: int, duration_us: int) -> None: ...
    async def submit(self, proposal: Proposal) -> Result: ...
    async def interrupt(self) -> None: ...
    async def wait_stopped(self) -> Stop: ...
    def minutes_left(self) -> float: ...
    def model_bytes_left(self) -> int: ...


class Watcher(request.Watcher, Protocol):
    """Everything that a screen may show: the session's part, and the conversation's. None may block or decide.

    Fragments are the model's raw words: a terminal must escape them. Of a call's states, GENERATING and the CANCELED of a turn
    that is given up come from the loop, the others from the session.
    """

    def opened(self, session: str, project: bytes, opened_us: int, layers: tuple[Layer, ...]) -> None:
        """The session is open; ``opened_us`` is what the sandbox took, in microseconds."""

    def turn(self, number: int, summary: bool) -> None:
        """A model call begins; ``summary``: the closing one, without tools."""

    def text(self, fragment: str) -> None:
        """A piece of the assistant's words."""

    def reasoning(self, fragment: str) -> None:
        """A piece of reasoning that the server sends apart."""

    def arguments(self, call_id: str, tool: str, fragment: str) -> None:
        """A piece of a call's argument text; the call is not complete, and may never be."""

    def proposed(self, proposal: Proposal) -> None:
        """A call is complete, or faulty for good; the session judges it next."""

    def result(self, proposal: Proposal, result: Result) -> None:
        """What the call came to."""


class SilentWatcher(request.SilentWatcher):
    """Shows nothing. Subclass it and show what you want."""

    def opened(self, session: str, project: bytes, opened_us: int, layers: tuple[Layer, ...]) -> None: ...
    def turn(self, number: int, summary: bool) -> None: ...
    def text(self, fragment: str) -> None: ...
    def reasoning(self, fragment: str) -> None: ...
    def arguments(self, call_id: str, tool: str, fragment: str) -> None: ...
    def proposed(self, proposal: Proposal) -> None: ...
    def result(self, proposal: Proposal, result: Result) -> None: ...


class Ending(enum.Enum):
    """How one user message came to its end."""

    DONE = "done"  # an answer without a call
    BOUND = "bound"  # a budget is used up; the answer is the summary
    LOOP = "loop"  # the same call over and over
    RESOURCE = "resource"  # the sandbox went over a cap
    STOPPED = "stopped"  # the developer's stop
    FAILURE = "failure"  # journal or sandbox broken
    REJECTED = "rejected"  # a human refused a call, and the settings say that this ends the turn (LC-18)
    INTERRUPTED = "interrupted"
    ERROR = "error"  # the model failed


_STOPPED = {
    StopKind.BOUND: Ending.BOUND,
    StopKind.LOOP: Ending.LOOP,
    StopKind.RESOURCE: Ending.RESOURCE,
    StopKind.STOP: Ending.STOPPED,
    StopKind.FAILURE: Ending.FAILURE,
}


@dataclass(frozen=True, slots=True)
class Ended:
    """What one user message came to. ``refused``: the calls that came back canceled. Bytes are of this message alone.

    ``answer``: the model's answer where it is DONE, its summary where a BOUND was reached, else empty: what the model said on
    the way to a stop or an error is no answer, and a script must not take it for one.
    """

    ending: Ending
    answer: str
    stop: Stop | None = None
    error: ModelError | None = None
    refused: tuple[tuple[Proposal, Result], ...] = ()
    turns: int = 0
    sent: int = 0
    received: int = 0


@dataclass(frozen=True, slots=True)
class _Allowance:
    """What one exchange may take: seconds in all, seconds to the model's first word, bytes sent and received."""

    seconds: float
    first: float
    size: int


@dataclass(frozen=True, slots=True)
class _Turn:
    """One answer of the model. ``calls`` is None when the turn was given up from outside."""

    text: str
    calls: tuple[Call, ...] | None


class Loop:
    """The conversation of one session. ``run`` once per user message."""

    def __init__(
        self,
        session: Door,
        provider: Provider,
        catalogue: Catalogue,
        watcher: Watcher,
        *,
        continue_after_rejection: bool = False,
    ) -> None:
        self._session = session
        self._provider = provider
        self._catalogue = catalogue
        self._tools = catalogue.schemas()
        self._watcher = watcher
        self._continue_after_rejection = continue_after_rejection
        self.conversation = Conversation(system_prompt(catalogue.names))
        self._begin_message()

    def _begin_message(self) -> None:
        self._interruption = trio.Event()
        self._streaming: trio.CancelScope | None = None
        self._closing = False
        self._cut = ""  # why the latest exchange was given up; empty where it was not
        self._refused: list[tuple[Proposal, Result]] = []
        self._turns = 0
        self._meter = Meter()

    def interrupt(self) -> None:
        """Give up the current turn: from a signal's task, at any moment, any number of times."""
        self._interruption.set()

    async def run(self, prompt: str, data: str | None = None) -> Ended:
        """One user message. ``data`` is what was piped in beside the prompt: untrusted.

        Errors of the model come back as a value; those of the session (a broken journal) are raised.
        """
        self._begin_message()
        await self._session.begin(prompt)
        self.conversation.prompt(prompt)
        if data is not None:
            self.conversation.data(data)
        ended: Ended | None = None
        failure: Exception | None = None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._on_interruption)
            nursery.start_soon(self._on_stop)
            try:
                ended = await self._converse()
            except Exception as error:
                failure = error  # raised outside: a nursery would wrap it into a group
            nursery.cancel_scope.cancel()
        if failure is not None:
            raise failure
        assert ended is not None
        return ended

    async def _on_interruption(self) -> None:
        await self._interruption.wait()
        if self._streaming is not None:
            self._streaming.cancel()
        with trio.CancelScope(shield=True, deadline=trio.current_time() + _RECORD_SECONDS):
            await self._session.interrupt()  # kills and journals: not given up when the turn itself is already over

    async def _on_stop(self) -> None:
        """A stop that comes while the model streams (memory, a developer's stop) does not wait for the stream's end. The
        summary is spared: it is what follows a stop."""
        await self._session.wait_stopped()
        if self._streaming is not None and not self._closing:
            self._streaming.cancel()

    async def _converse(self) -> Ended:
        try:
            while not self._interruption.is_set():
                if (stop := await self._session.before_model_call()) is not None:
                    return await self._stop(stop)
                turn = await self._model_turn()
                if turn.calls is None:
                    continue  # given up: the head of this loop knows whether by a stop or an interruption
                if not turn.calls:
                    if not turn.text:
                        self._watcher.notice("model_silent", "The model ended its turn without an answer and without a call.")
                    return self._ended(Ending.DONE, turn.text)
                if await self._carry_out(turn.calls):
                    return self._ended(Ending.REJECTED)
        except ModelError as error:
            return self._ended(Ending.ERROR, error=error)
        return self._ended(Ending.INTERRUPTED)

    async def _model_turn(self) -> _Turn:
        """One ordinary model call, bounded by the minutes that the message has left."""
        seconds = self._session.minutes_left() + _MARGIN_SECONDS
        allowance = _Allowance(seconds, seconds, self._session.model_bytes_left())
        texts, assembler, done = await self._exchange(self._tools, allowance, summary=False)
        text = joined(texts)
        if done is None:
            self._give_up(text, assembler.abandon(), self._why_given_up())
            return _Turn(text, None)
        calls = assembler.finish(cut=done.cut or done.finish == "length")
        if assembler.flooded:
            text = f"The model asked for more than {MAX_CALLS} calls in one turn; the rest is dropped."
            self._watcher.notice("calls_dropped", text)
        if not calls:
            self._insist_on_an_end(done)
        self.conversation.assistant(text, calls)
        return _Turn(text, calls)

    async def _exchange(
        self, tools: list[dict[str, Any]], allowance: _Allowance, *, summary: bool
    ) -> tuple[list[str], Assembler, Done | None]:
        """Ask the model once and show its words as they come. ``Done`` is None when the exchange was given up from outside.

        Whatever happens, the bytes that passed are counted and journalled. An answer that would use up what it may take is cut
        there, however long it was meant to be (SE-03).
        """
        self._turns += 1
        self._watcher.turn(self._turns, summary)
        assembler, texts, ends = Assembler(self.conversation.numbering), list[str](), list[Done]()
        show = self._showing(assembler, texts, ends)
        began = trio.current_time()
        scope = trio.CancelScope(deadline=began + allowance.first)
        meter = Meter(limit=allowance.size, spent=scope.cancel)
        self._cut, heard = "", False

        def deliver(event: ModelEvent) -> None:
            nonlocal heard
            scope.deadline, heard = began + allowance.seconds, True
            show(event)

        try:
            with scope:
                self._streaming = scope
                if self._interruption.is_set():
                    scope.cancel()
                await self._provider.exchange(self.conversation, tools, deliver, meter)
        except ModelError:
            self._give_up(joined(texts), assembler.abandon(), Reason.INTERRUPTED)
            raise
        finally:
            self._streaming = None
            self._meter.sent += meter.sent
            self._meter.received += meter.received
            with trio.CancelScope(shield=True, deadline=trio.current_time() + _RECORD_SECONDS):
                duration = round((trio.current_time() - began) * 1_000_000)
                await self._session.model_exchange(meter.sent, meter.received, duration)
        if scope.cancelled_caught:
            self._cut = self._why_cut(allowance, meter, heard=heard)
            return texts, assembler, None
        return texts, assembler, ends[-1] if ends else Done("", cut=True)

    def _why_cut(self, allowance: _Allowance, meter: Meter, *, heard: bool) -> str:
        if self._interruption.is_set():
            return "it was interrupted"
        if meter.sent + meter.received >= allowance.size:
            return "the bytes that the session may exchange with the model are used up (budgets.modelBytes of the policy)"
        if not heard:
            return f"the model said nothing within {allowance.first:.0f} seconds; look into the model server's log"
        return f"the model took longer than {allowance.seconds:.0f} seconds"

    def _showing(self, assembler: Assembler, texts: list[str], ends: list[Done]) -> Callable[[ModelEvent], None]:
        seen: set[str] = set()

        def deliver(event: ModelEvent) -> None:
            match event:
                case TextDelta(text):
                    texts.append(text)
                    self._watcher.text(clean(text))
                case ReasoningDelta(text):
                    self._watcher.reasoning(clean(text))
                case CallDelta(fragment=fragment):
                    if (placed := assembler.feed(event)) is None:
                        return
                    call_id, tool = placed[0], clean(placed[1])
                    if call_id not in seen:
                        seen.add(call_id)
                        self._watcher.state(call_id, tool, CallState.GENERATING)
                    self._watcher.arguments(call_id, tool, clean(fragment))
                case Done():
                    ends.append(event)

        return deliver

    async def _carry_out(self, calls: tuple[Call, ...]) -> bool:
        """Submit the calls of one turn, in order; each gets its result. True: a human's refusal ends the turn.

        After a stop or an interruption the rest is submitted all the same: the session answers each at once as canceled, and
        has it in the journal.
        """
        rejected = False
        for call in calls:
            proposal = self._catalogue.propose(call)
            self._watcher.proposed(proposal)
            result = await self._session.submit(proposal)
            self.conversation.result(result)
            self._watcher.result(proposal, result)
            if result.state is CallState.CANCELED:
                self._refused.append((proposal, result))
            rejected |= result.reason is Reason.REFUSED
        return rejected and not self._continue_after_rejection

    async def _stop(self, stop: Stop) -> Ended:
        ending = _STOPPED[stop.kind]
        return self._ended(ending, await self._summary(stop) if ending is Ending.BOUND else "", stop=stop)

    async def _summary(self, stop: Stop) -> str:
        """The one model turn after a bound. It is offered no tool, and a call in it is never submitted."""
        self._closing = True
        allowance = self._for_summary(stop)
        self.conversation.prompt(summary_request(stop.what))
        self._watcher.notice(
            "summary", f"A bound was reached ({stop.what}). The model is asked once more, for a summary: "
            f"{allowance.first:.0f} seconds to its first word, {allowance.seconds:.0f} in all.",
        )
        try:
            texts, assembler, done = await self._exchange([], allowance, summary=True)
        except ModelError as error:
            self._watcher.notice("summary_failed", f"There is no summary: {error}.")
            return ""
        text = joined(texts)
        self._give_up(text, assembler.abandon(), Reason.BOUND)
        if done is None:
            code, what = ("summary_cut", "The summary is cut") if text else ("summary_failed", "There is no summary")
            self._watcher.notice(code, f"{what}: {self._cut}.")
        elif not text:
            self._watcher.notice("summary_failed", "There is no summary: the model's answer has no text.")
        return text

    def _for_summary(self, stop: Stop) -> _Allowance:
        """What the summary may take. A server that let the minutes pass is not waited for as if this were the first time."""
        seconds = min(SUMMARY_SECONDS, max(self._session.minutes_left(), LATE_SUMMARY_SECONDS))
        late = stop.what == "minutes" and bool(self._cut)
        share = stop.limit // _SUMMARY_SHARE if stop.what == "modelBytes" else 0
        return _Allowance(seconds, LATE_WORD_SECONDS if late else seconds, self._session.model_bytes_left() + share)

    def _give_up(self, text: str, calls: tuple[Call, ...], reason: Reason) -> None:
        """Put an unfinished turn into the history: its calls were never judged, and each has its canceled result."""
        self.conversation.assistant(text, calls)
        for call in calls:
            self.conversation.result(given_up(call, reason))
            self._watcher.state(call.call_id, clean(call.tool), CallState.CANCELED)

    def _why_given_up(self) -> Reason:
        return Reason.INTERRUPTED if self._interruption.is_set() else Reason.STOPPED

    def _insist_on_an_end(self, done: Done) -> None:
        """An answer without a call ends the message, so it must be whole: half an answer is not reported as done."""
        if done.cut:
            raise ModelError(
                "reading the model's answer", why="the stream broke off in the middle of it", code="model_cut",
                remedy="look into the model server's log, or at what lies between it and this machine",
            )
        if done.finish in _FINISH_ERRORS:
            code, why, remedy = _FINISH_ERRORS[done.finish]
            raise ModelError("reading the model's answer", why=why, code=code, remedy=remedy)

    def _ended(self, ending: Ending, answer: str = "", *, stop: Stop | None = None, error: ModelError | None = None) -> Ended:
        return Ended(
            ending, answer, stop, error, tuple(self._refused), self._turns, self._meter.sent, self._meter.received
        )
