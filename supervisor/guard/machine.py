"""The guard machine: decides what runs, and that it is in the journal before it runs. Sans-IO, without a clock.

Theory of operation
-------------------
``feed(event)`` returns commands, which the session carries out in order, each one finished before the next. The machine
holds the whole authority of a session and none of its means: it cannot run anything, and the session runs nothing that is
not a ``Run`` command. Three properties follow from this file alone, and are tested on it without a kernel:

* every ``Run`` comes after ``WriteEntry(Started, sync=True)`` in the same list: what acts is on disk before it acts;
* every proposal gets exactly one ``Answer`` with a final state, in the order of the proposals;
* after ``StopSession`` no ``Run`` comes until a new prompt, and after a stop that is not a bound or a loop, never again.

One call is open at a time (executions in request order, O-53), in one of three phases:

    IDLE --proposal--> [budget, loop, fault, verdict] --ask--> ASKING --approved--> RUNNING --finished--> IDLE
                                     |                            |                    |
                                     +-- answered at once         +-- refused          +-- aborted, then finished

The order of checks on a proposal is fixed: stopped or interrupted, budget (each complete request costs one action,
well-formed or not), loop, malformed request, verdict (perimeter, tool, command: the strictest), number of commands. Time is
checked again after a person's answer, because waiting counts (O-20, SE-25).

An interrupt cancels what has not begun and kills what runs; later calls of the same turn are canceled until the next prompt
(LC-15). A bound or a loop ends the message's session: the next prompt starts anew (SE-22, X-29).
"""
from __future__ import annotations

import enum
import hashlib
from collections.abc import Callable
from dataclasses import dataclass

from supervisor.errors import InternalError
from supervisor.guard import calls, refusals
from supervisor.guard.budget import Budget, Exhausted
from supervisor.guard.judge import judge
from supervisor.guard.lattice import Judgement
from supervisor.guard.loop import LoopWindow
from supervisor.guard.protocol import (
    Abort,
    ActionFinished,
    ActionProposed,
    Announce,
    Answer,
    Answered,
    Ask,
    GuardCommand,
    GuardEvent,
    InterruptAsked,
    ModelExchanged,
    ModelTurnStarting,
    Moved,
    PartFailed,
    PromptReceived,
    ResourceExceeded,
    Run,
    StopAsked,
    StopSession,
    WriteEntry,
)
from supervisor.journal import entry
from supervisor.settings.bounds import Bounds
from supervisor.settings.policy import Policy
from supervisor.types import (
    TOOL_OF,
    Action,
    Attribution,
    BashCall,
    CallState,
    EditCall,
    Proposal,
    Reason,
    Result,
    Stop,
    StopKind,
    Verdict,
    WriteCall,
)


class Phase(enum.Enum):
    """What the one open call is doing."""

    IDLE = "idle"
    ASKING = "asking"
    RUNNING = "running"


@dataclass(frozen=True, slots=True)
class GuardConfig:
    """What the machine decides by; fixed for the session.

    ``offered`` are the tools of the session's mode. ``judgement`` replaces the judge for the person's own command
    (`lemni exec`), whose approval is then a human's.
    """

    policy: Policy
    bounds: Bounds
    interactive: bool
    offered: tuple[str, ...] = tuple(TOOL_OF.values())
    judgement: Callable[[Action], Judgement] | None = None


@dataclass(slots=True)
class _OpenCall:
    proposal: Proposal
    action: Action
    state: CallState
    phase: Phase
    aborted: Reason | None = None


class Machine:
    """One session's guard. ``stop`` is set once a guardrail stopped it; ``budget`` shows what was spent."""

    def __init__(self, config: GuardConfig) -> None:
        bounds = config.bounds
        self._config = config
        self.budget = Budget(bounds.actions, bounds.minutes, bounds.extensions, bounds.model_bytes, bounds.commands)
        self._loop = LoopWindow(bounds.loop_threshold, bounds.loop_detection)
        self.stop: Stop | None = None
        self._prompted = False
        self._interrupted = False
        self._turn = 0
        self._open: _OpenCall | None = None
        self._approved: set[str] = set()  # command texts a person approved, where the policy remembers them (PP-08)
        self._out: list[GuardCommand] = []

    @property
    def phase(self) -> Phase:
        return self._open.phase if self._open else Phase.IDLE

    def feed(self, event: GuardEvent) -> tuple[GuardCommand, ...]:
        """Take one event. InternalError when it is out of place; nothing has changed then."""
        self._check(event)
        self._out = []
        match event:
            case PromptReceived():
                self._prompt(event)
            case ModelTurnStarting(now):
                self._model_turn(now)
            case ModelExchanged(sent, received, duration):
                self._turn += 1
                self.budget = self.budget.exchange(sent + received)
                self._write(entry.ModelExchange(self._turn, sent, received, duration))
            case ActionProposed(proposal, now):
                self._propose(proposal, now)
            case Answered(_, approved, now):
                self._answered(approved, now)
            case ActionFinished():
                self._finished(event)
            case InterruptAsked():
                self._interrupt()
            case StopAsked():
                self._halt(refusals.stop_by_person(), entry.Stopped("stop"))
            case ResourceExceeded(resource, limit, used):
                self._halt(refusals.stop_for_resource(resource, limit, used), entry.ResourceStop(resource, limit, used))
            case PartFailed(code, what):
                self._halt(refusals.stop_for_failure(code, what), entry.Stopped(code))
        return tuple(self._out)

    def _check(self, event: GuardEvent) -> None:
        call = self._open
        misplaced = False
        match event:
            case PromptReceived() | ModelTurnStarting() | ActionProposed():
                misplaced = call is not None or (not self._prompted and not isinstance(event, PromptReceived))
            case Answered(call_id):
                misplaced = call is None or call.phase is not Phase.ASKING or call.proposal.call_id != call_id
            case ActionFinished(call_id, state):
                misplaced = call is None or call.phase is not Phase.RUNNING or call.proposal.call_id != call_id or (
                    state not in (CallState.DONE, CallState.ERRORED)
                )
            case _:
                return
        if misplaced:
            raise InternalError("guard a session", on=type(event).__name__, why=f"out of place while {self.phase.value}")

    # A message and its turns

    def _prompt(self, event: PromptReceived) -> None:
        self._write(entry.Prompt(event.sha256, event.length))
        self._prompted = True
        self._interrupted = False
        self.budget = self.budget.begin(event.now)
        self._loop = self._loop.restarted()
        if self.stop is not None and self.stop.kind in (StopKind.BOUND, StopKind.LOOP):
            self.stop = None

    def _model_turn(self, now: int) -> None:
        found = self.budget.exhausted(now)
        if self.stop is None and found is not None:
            self._reach(found)

    # A call

    def _propose(self, proposal: Proposal, now: int) -> None:
        self._write(_proposed(proposal))
        self._show(proposal, CallState.GENERATED)
        if self.stop is not None:
            self._end(proposal, CallState.CANCELED, refusals.REASON_OF[self.stop.kind], refusals.canceled(self.stop))
            return
        if self._interrupted:
            self._end(proposal, CallState.CANCELED, Reason.INTERRUPTED, refusals.interrupted())
            return
        found = self.budget.exhausted(now)
        if found is not None:
            self._bound(proposal, found)
            return
        self.budget = self.budget.action()
        self._loop = self._loop.after(proposal)
        if self._loop.looping:
            self._block(proposal)
            return
        action = proposal.action
        if action is None:
            self._end(proposal, CallState.ERRORED, proposal.fault or Reason.MALFORMED, proposal.fault_text)
        elif isinstance(action, BashCall) and (action.timeout or 0) > self._config.bounds.command_seconds:
            text = refusals.too_long(action.timeout or 0, self._config.bounds.command_seconds)
            self._end(proposal, CallState.ERRORED, Reason.MALFORMED, text)
        else:
            self._judge(proposal, action)

    def _judge(self, proposal: Proposal, action: Action) -> None:
        found = self._verdict(proposal.tool, action)
        self._write(entry.Judged(proposal.call_id, found.verdict.word, found.reason and found.reason.value, found.rule or None))
        if found.verdict is Verdict.EXCLUDE:
            self._decide(proposal, approved=False, by=Attribution.AUTOMATION)
            text = refusals.refused(proposal.tool, found)
            self._out.append(Announce(f"refused_{(found.reason or Reason.POLICY).value}", text))
            self._end(proposal, CallState.CANCELED, found.reason or Reason.POLICY, text)
            return
        if isinstance(action, BashCall) and (used_up := self.budget.exhausted_commands()):
            self._bound(proposal, used_up)
            return
        reason = found.reason or Reason.NEEDS_APPROVAL
        if found.verdict is Verdict.ALLOW or (isinstance(action, BashCall) and action.command in self._approved):
            self._authorise(proposal, action, Attribution.HUMAN if self._config.judgement else Attribution.AUTOMATION)
        elif self._config.interactive:
            self._open = _OpenCall(proposal, action, CallState.GENERATED, Phase.ASKING)
            self._out.append(Ask(proposal.call_id, proposal.tool, action, found.why, reason))
        else:
            self._decide(proposal, approved=False, by=Attribution.AUTOMATION)
            self._out.append(Announce(f"refused_{reason.value}", self._dry(proposal.tool, found)))
            self._end(proposal, CallState.CANCELED, reason, refusals.nobody_to_ask(proposal.tool, found))

    def _verdict(self, tool: str, action: Action) -> Judgement:
        if self._config.judgement is not None:
            return self._config.judgement(action)
        found = judge(self._config.policy, action)
        if TOOL_OF[type(action)] in self._config.offered or found.verdict is Verdict.EXCLUDE:
            return found
        return Judgement(Verdict.EXCLUDE, Reason.POLICY, "mode", f"this session's mode does not offer {tool}")

    def _answered(self, approved: bool, now: int) -> None:
        call = self._opened()
        proposal = call.proposal
        self._open = None
        self._decide(proposal, approved=approved, by=Attribution.HUMAN)
        if not approved:
            self._end(proposal, CallState.CANCELED, Reason.REFUSED, refusals.refused_by_person(proposal.tool))
            return
        late = self.budget.overdue(now)  # the wait counted; nothing runs after exhaustion
        if late is not None:
            self._bound(proposal, late)
            return
        if self._config.policy.remember_approvals and isinstance(call.action, BashCall):
            self._approved.add(call.action.command)
        self._start(proposal, call.action)

    def _authorise(self, proposal: Proposal, action: Action, by: Attribution) -> None:
        self._decide(proposal, approved=True, by=by)
        self._start(proposal, action)

    def _start(self, proposal: Proposal, action: Action) -> None:
        """The only place that lets something run; the synced entry comes first."""
        if isinstance(action, BashCall):
            self.budget = self.budget.command()
        self._write(entry.Started(proposal.call_id), sync=True)
        state = calls.advance(CallState.GENERATED, CallState.CALLING)
        self._open = _OpenCall(proposal, action, state, Phase.RUNNING)
        self._show(proposal, state)
        self._out.append(Run(proposal.call_id, action))

    def _finished(self, event: ActionFinished) -> None:
        call = self._opened()
        self._open = None
        ran = event.execution
        if ran is not None:
            self._write(entry.Executed(
                event.call_id, ran.code, ran.signal, ran.duration_us, ran.cpu_us, ran.max_rss, len(ran.stdout),
                ran.dropped_stdout, len(ran.stderr), ran.dropped_stderr, ran.timed_out, ran.killed,
            ))
        if event.touched is not None:
            self._write(event.touched)
        state, reason, text = event.state, event.reason, event.text
        if call.aborted is not None and state is CallState.ERRORED:
            reason, text = call.aborted, f"{refusals.ended_by(call.aborted)}\n{text}".rstrip()
        self._end(call.proposal, state, reason, text, from_state=call.state, event=event)

    # What ends a turn or a session

    def _interrupt(self) -> None:
        if self.stop is not None or self._interrupted:
            return
        self._write(entry.Interrupted())
        self._interrupted = True
        self._abandon(Reason.INTERRUPTED, refusals.interrupted())

    def _halt(self, stop: Stop, event: entry.Event) -> None:
        """A stop that no prompt lifts. A second one changes nothing; one after a bound or a loop takes its place."""
        if self.stop is not None and self.stop.kind not in (StopKind.BOUND, StopKind.LOOP):
            return
        self._write(event)
        self._stop(stop)
        self._abandon(refusals.REASON_OF[stop.kind], refusals.canceled(stop))

    def _abandon(self, reason: Reason, text: str) -> None:
        call = self._open
        if call is None:
            return
        self._out.append(Abort(call.proposal.call_id))
        if call.phase is Phase.ASKING:
            self._open = None
            self._end(call.proposal, CallState.CANCELED, reason, text)
        else:
            call.aborted = call.aborted or reason  # its end is still to come, and says so

    def _bound(self, proposal: Proposal, found: Exhausted) -> None:
        self._reach(found)
        assert self.stop is not None
        self._end(proposal, CallState.CANCELED, Reason.BOUND, refusals.canceled(self.stop))

    def _reach(self, found: Exhausted) -> None:
        self._write(entry.BoundReached(found.budget, found.limit, found.used))
        self._stop(refusals.stop_for_bound(found))

    def _block(self, proposal: Proposal) -> None:
        count, threshold = self._loop.count, self._loop.threshold
        self._write(entry.LoopBlocked(proposal.call_id, proposal.tool, count))
        shown = proposal.raw_arguments if len(proposal.raw_arguments) <= 400 else proposal.raw_arguments[:400] + "…"
        self._stop(refusals.stop_for_loop(proposal.tool, shown, threshold, count))
        self._end(proposal, CallState.CANCELED, Reason.LOOP, refusals.blocked_for_repetition(proposal.tool, count))

    # Small ones

    def _dry(self, tool: str, found: Judgement) -> str:
        text = f"{tool} was refused: it needs an approval ({found.why}) and nobody can be asked"
        if self._config.policy.origin == "none":
            text += "; there is no policy: write one for this repository with `lemni policy init`"
        return text

    def _opened(self) -> _OpenCall:
        assert self._open is not None  # _check saw to it
        return self._open

    def _write(self, event: entry.Event, *, sync: bool = False) -> None:
        self._out.append(WriteEntry(event, sync))

    def _show(self, proposal: Proposal, state: CallState) -> None:
        self._out.append(Moved(proposal.call_id, proposal.tool, state))

    def _decide(self, proposal: Proposal, *, approved: bool, by: Attribution) -> None:
        self._write(entry.Decision(proposal.call_id, "approved" if approved else "refused", by.value))

    def _stop(self, stop: Stop) -> None:
        self.stop = stop
        self._out.append(StopSession(stop))

    def _end(
        self, proposal: Proposal, state: CallState, reason: Reason | None, text: str, *,
        from_state: CallState = CallState.GENERATED, event: ActionFinished | None = None,
    ) -> None:
        calls.advance(from_state, state)
        self._write(entry.Ended(proposal.call_id, state.value, reason and reason.value))
        self._show(proposal, state)
        execution = event.execution if event else None
        self._out.append(Answer(Result(proposal.call_id, state, text, reason, event is not None, execution)))


def _proposed(proposal: Proposal) -> entry.Proposed:
    """A proposal as the journal has it: digests and lengths of what was written, never the text (JR-18)."""
    raw = proposal.raw_arguments.encode("utf-8", "surrogatepass")
    action = proposal.action
    path = command = content = None
    if isinstance(action, BashCall):
        command = action.command
    elif action is not None:
        path = action.path
    if isinstance(action, WriteCall):
        content = action.content.encode("utf-8", "surrogatepass")
    elif isinstance(action, EditCall):
        content = action.new.encode("utf-8", "surrogatepass")
    return entry.Proposed(
        proposal.call_id, proposal.tool, hashlib.sha256(raw).hexdigest(), len(raw), path, command,
        None if content is None else hashlib.sha256(content).hexdigest(), None if content is None else len(content),
        proposal.fault.value if proposal.fault else None,
    )
