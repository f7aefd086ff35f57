"""The three promises of the guard machine, for every sequence of events: exhaustively when short, by search when long."""
from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from supervisor.errors import InternalError
from supervisor.guard.calls import FINAL, TRANSITIONS
from supervisor.guard.machine import GuardConfig, Machine, Phase
from supervisor.guard.protocol import (
    Abort,
    ActionFinished,
    ActionProposed,
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
from supervisor.settings.parse import command_sets, parse_policy
from supervisor.settings.policy import Policy, resolve
from supervisor.types import BashCall, CallState, ListCall, Proposal, ReadCall, Reason, StopKind

MINUTE = 60_000_000
KINDS = (
    "prompt", "turn", "exchange", "read", "ask", "bash", "bad", "same", "yes", "no",
    "done", "error", "interrupt", "stop", "memory", "lost",
)


def policy() -> Policy:
    text = b"version: 1\ndefaults: {tools: {Read: allow, List: ask, Bash: allow, Write: exclude}, commands: [make]}"
    return resolve(parse_policy(text, "p").defaults, origin="user", sha256="0" * 64, project=None, sets=command_sets())


POLICY = policy()


class Watched:
    """A machine, and an observer that checks every promise on what comes out of it."""

    def __init__(self, interactive: bool) -> None:
        bounds = Bounds(actions=3, minutes=1, commands=2, model_bytes=40, loop_threshold=2)
        self.machine = Machine(GuardConfig(POLICY, bounds, interactive))
        self.number = 0
        self.now = 0
        self.proposed: list[str] = []
        self.answered: list[str] = []
        self.states: dict[str, CallState] = {}
        self.stopped: StopKind | None = None
        self.final = False  # a stop that no prompt lifts
        self.asked: str | None = None
        self.running: str | None = None

    def step(self, kind: str, elapsed: int = 1) -> None:
        self.now += elapsed
        event = self.event(kind)
        before = (self.machine.phase, self.machine.stop, self.machine.budget)
        try:
            commands = self.machine.feed(event)
        except InternalError:
            assert (self.machine.phase, self.machine.stop, self.machine.budget) == before
            return
        if isinstance(event, ActionProposed):
            self.proposed.append(event.proposal.call_id)
            self.states[event.proposal.call_id] = CallState.GENERATING
        if isinstance(event, PromptReceived) and not self.final:
            self.stopped = None
        self.observe(commands)

    def event(self, kind: str) -> GuardEvent:
        name = f"c{self.number}"
        self.number += kind in ("read", "ask", "bash", "bad", "same")
        target = self.asked or self.running or "none"
        return {
            "prompt": PromptReceived("0" * 64, 1, self.now),
            "turn": ModelTurnStarting(self.now),
            "exchange": ModelExchanged(10, 5, 1),
            "read": ActionProposed(Proposal(name, "Read", name, ReadCall(name)), self.now),
            "ask": ActionProposed(Proposal(name, "List", name, ListCall(name)), self.now),
            "bash": ActionProposed(Proposal(name, "Bash", name, BashCall("make")), self.now),
            "same": ActionProposed(Proposal(name, "Read", "same", ReadCall("same")), self.now),
            "bad": ActionProposed(Proposal(name, "Read", name, None, Reason.MALFORMED, "bad"), self.now),
            "yes": Answered(target, True, self.now),
            "no": Answered(target, False, self.now),
            "done": ActionFinished(target, CallState.DONE, ""),
            "error": ActionFinished(target, CallState.ERRORED, ""),
            "interrupt": InterruptAsked(),
            "stop": StopAsked(),
            "memory": ResourceExceeded("memory", 1, 2),
            "lost": PartFailed("sandbox_failed", "gone"),
        }[kind]  # type: ignore[return-value]

    def observe(self, commands: tuple[GuardCommand, ...]) -> None:
        synced: set[str] = set()
        ended: set[str] = set()
        for command in commands:
            match command:
                case WriteEntry(entry.Started(call), sync):
                    assert sync
                    synced.add(call)
                case WriteEntry(entry.Ended(call, state)):
                    assert CallState(state) in FINAL
                    ended.add(call)
                case Run(call):
                    assert call in synced, "run before its synced entry"
                    assert self.stopped is None, "run after a stop"
                    assert self.running is None
                    self.running = call
                case Ask(call):
                    assert self.asked is None
                    assert self.stopped is None
                    self.asked = call
                case Moved(call, _, state):
                    assert state in TRANSITIONS[self.states[call]]
                    self.states[call] = state
                case Answer(result):
                    assert result.call_id in ended, "answered before its end was written"
                    assert self.states[result.call_id] is result.state
                    self.answered.append(result.call_id)
                    self.running = None if self.running == result.call_id else self.running
                    self.asked = None if self.asked == result.call_id else self.asked
                case StopSession(stop):
                    self.stopped = stop.kind
                    self.final = stop.kind not in (StopKind.BOUND, StopKind.LOOP)
                case Abort(call):
                    assert call in (self.asked, self.running)
                case _:
                    pass
        if self.running is not None:
            self.asked = None  # it was answered yes
        assert self.answered == self.proposed[: len(self.answered)], "results out of order"
        open_calls = len(self.proposed) - len(self.answered)
        assert open_calls == (self.machine.phase is not Phase.IDLE), "a call without result, or with two"
        assert (self.machine.phase is Phase.RUNNING) == (self.running is not None)
        assert self.machine.budget.actions <= 3
        assert self.machine.budget.commands <= 2


@pytest.mark.parametrize("length", [3, pytest.param(4, marks=pytest.mark.slow)])
def test_every_sequence_of_events(length: int) -> None:
    for interactive in (False, True):
        for kinds in itertools.product(KINDS, repeat=length):
            watched = Watched(interactive)
            watched.step("prompt")
            for kind in kinds:
                watched.step(kind)


@settings(max_examples=300, deadline=None)
@given(
    st.booleans(),
    st.lists(st.tuples(st.sampled_from(KINDS), st.sampled_from((0, 1, MINUTE // 2, MINUTE))), max_size=60),
)
def test_any_sequence_of_events(interactive: bool, steps: list[tuple[str, int]]) -> None:
    watched = Watched(interactive)
    for kind, elapsed in steps:
        watched.step(kind, elapsed)
