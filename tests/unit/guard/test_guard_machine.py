"""The guard machine, scene by scene."""
from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from supervisor.errors import InternalError
from supervisor.guard.budget import MINUTE
from supervisor.guard.machine import GuardConfig, Machine, Phase
from supervisor.guard.protocol import (
    Abort,
    ActionFinished,
    ActionProposed,
    Announce,
    Answer,
    Answered,
    Ask,
    GuardCommand,
    InterruptAsked,
    ModelExchanged,
    ModelTurnStarting,
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
from supervisor.types import (
    Action,
    BashCall,
    CallState,
    Execution,
    Proposal,
    ReadCall,
    Reason,
    Result,
    StopKind,
    Verdict,
    WriteCall,
)

FREE = "{tools: {'*': allow}, commands: ['make test']}"
RAN = Execution(0, None, b"out", b"", 0, 0, 5, 5, 5)


def policy(text: str = FREE, origin: str = "user") -> Policy:
    file = parse_policy(f"version: 1\ndefaults: {text}".encode(), "policy.yaml")
    return resolve(file.defaults, origin=origin, sha256="0" * 64, project=None, sets=command_sets())


def machine(
    text: str = FREE, *, interactive: bool = False, prompted: bool = True, origin: str = "user", **bounds: Any
) -> Machine:
    made = Machine(GuardConfig(policy(text, origin), Bounds(**bounds), interactive))
    if prompted:
        made.feed(PromptReceived("0" * 64, 3, 0))
    return made


def call(name: str, action: Action | None, tool: str = "Read", raw: str | None = None) -> Proposal:
    fault, words = (None, "") if action else (Reason.MALFORMED, "no JSON")
    return Proposal(name, tool, name if raw is None else raw, action, fault, words)


def read(name: str) -> Proposal:
    return call(name, ReadCall(name))


def bash(name: str, command: str = "make test", timeout: int | None = None) -> Proposal:
    return call(name, BashCall(command, timeout), "Bash")


def answers(commands: tuple[GuardCommand, ...]) -> list[Result]:
    return [command.result for command in commands if isinstance(command, Answer)]


def events(commands: tuple[GuardCommand, ...]) -> list[entry.Event]:
    return [command.event for command in commands if isinstance(command, WriteEntry)]


def only(commands: tuple[GuardCommand, ...]) -> Result:
    (found,) = answers(commands)
    return found


def has(commands: tuple[GuardCommand, ...], kind: type) -> bool:
    return any(isinstance(command, kind) for command in commands)


def run(guard: Machine, proposal: Proposal, now: int = 1) -> Result:
    """A call that runs and is done."""
    assert has(guard.feed(ActionProposed(proposal, now)), Run)
    return only(guard.feed(ActionFinished(proposal.call_id, CallState.DONE, "text")))


def test_an_allowed_call_is_journalled_synced_then_run_then_answered() -> None:
    guard = machine()
    commands = guard.feed(ActionProposed(bash("c1"), 1))
    assert [type(event) for event in events(commands)] == [entry.Proposed, entry.Judged, entry.Decision, entry.Started]
    assert commands[-1] == Run("c1", BashCall("make test"))
    assert WriteEntry(entry.Started("c1"), sync=True) in commands
    decision = events(commands)[2]
    assert isinstance(decision, entry.Decision)
    assert (decision.answer, decision.attribution) == ("approved", "automation")
    ended = guard.feed(ActionFinished("c1", CallState.DONE, "text", execution=RAN))
    assert [type(event) for event in events(ended)] == [entry.Executed, entry.Ended]
    result = only(ended)
    assert (result.state, result.text, result.untrusted, result.execution) == (CallState.DONE, "text", True, RAN)


def test_ask_puts_the_question_and_runs_only_what_a_person_approved() -> None:
    guard = machine("{}", interactive=True)
    commands = guard.feed(ActionProposed(read("c1"), 1))
    assert has(commands, Ask)
    assert not has(commands, Run)
    approved = guard.feed(Answered("c1", True, 2))
    assert isinstance(events(approved)[0], entry.Decision)
    assert "human" in repr(events(approved)[0])
    assert has(approved, Run)
    guard.feed(ActionFinished("c1", CallState.DONE, ""))
    guard.feed(ActionProposed(read("c2"), 3))
    refused = guard.feed(Answered("c2", False, 4))
    assert (only(refused).state, only(refused).reason) == (CallState.CANCELED, Reason.REFUSED)
    assert not has(refused, Run)


def test_ask_with_nobody_is_a_dry_refusal_that_is_announced() -> None:
    guard = machine("{}", origin="none")
    commands = guard.feed(ActionProposed(read("c1"), 1))
    assert only(commands).reason is Reason.NEEDS_APPROVAL
    (announced,) = [command for command in commands if isinstance(command, Announce)]
    assert "lemni policy init" in announced.text
    assert "automation" in repr(events(commands))
    listed = machine().feed(ActionProposed(bash("c1", "make install"), 1))
    assert only(listed).reason is Reason.NOT_LISTED


@pytest.mark.parametrize(("text", "proposal", "reason"), [
    ("{tools: {Read: exclude}}", read("a"), Reason.POLICY),
    (FREE, read("../x"), Reason.PERIMETER),
    (FREE, bash("c", "sudo id"), Reason.REFUSED_FAMILY),
    (FREE, bash("c", "echo '"), Reason.EVALUATION_FAILED),
])
def test_exclude_never_asks(text: str, proposal: Proposal, reason: Reason) -> None:
    commands = machine(text, interactive=True).feed(ActionProposed(proposal, 1))
    assert (only(commands).state, only(commands).reason) == (CallState.CANCELED, reason)
    assert not has(commands, Ask)
    assert not has(commands, Run)


def test_a_tool_outside_the_mode_is_refused() -> None:
    guard = Machine(GuardConfig(policy(), Bounds(), False, offered=("Read", "List", "Search")))
    guard.feed(PromptReceived("0" * 64, 3, 0))
    result = only(guard.feed(ActionProposed(call("c", WriteCall("a", ""), "Write"), 1)))
    assert result.reason is Reason.POLICY
    assert "mode does not offer Write" in result.text


def test_a_tool_that_the_policy_excludes_says_so_whatever_is_offered() -> None:
    text = "{tools: {'*': allow, Write: exclude}}"
    guard = Machine(GuardConfig(policy(text), Bounds(), False, offered=("Read", "List", "Search")))
    guard.feed(PromptReceived("0" * 64, 3, 0))
    commands = guard.feed(ActionProposed(call("c", WriteCall("a", ""), "Write"), 1))
    assert "the policy excludes Write" in only(commands).text
    assert [e.rule for e in events(commands) if isinstance(e, entry.Judged)] == ["tools.Write"]


def test_malformed_requests_are_errors_that_cost_an_action() -> None:
    guard = machine(actions=2)
    result = only(guard.feed(ActionProposed(call("c1", None), 1)))
    assert (result.state, result.reason, result.text) == (CallState.ERRORED, Reason.MALFORMED, "no JSON")
    guard.feed(ActionProposed(call("c2", None), 1))
    assert guard.stop is None
    assert only(guard.feed(ActionProposed(read("c3"), 1))).reason is Reason.BOUND


def test_a_timeout_above_the_bound_is_an_argument_error() -> None:
    result = only(machine(command_seconds=10).feed(ActionProposed(bash("c", timeout=11), 1)))
    assert (result.state, result.reason) == (CallState.ERRORED, Reason.MALFORMED)
    assert has(machine(command_seconds=10).feed(ActionProposed(bash("c", timeout=10), 1)), Run)


def test_the_action_bound_cancels_the_rest_of_the_turn_and_a_prompt_renews_it() -> None:
    guard = machine(actions=2)
    run(guard, read("a"))
    run(guard, read("b"))
    commands = guard.feed(ActionProposed(read("c"), 1))
    assert [type(event) for event in events(commands)] == [entry.Proposed, entry.BoundReached, entry.Ended]
    assert has(commands, StopSession)
    assert "not be finished" in only(commands).text
    again = guard.feed(ActionProposed(read("d"), 1))
    assert not has(again, StopSession)
    assert only(again).reason is Reason.BOUND
    guard.feed(PromptReceived("0" * 64, 1, 5))
    assert guard.stop is None
    run(guard, read("e"))


def test_bounds_are_met_before_a_model_call() -> None:
    for guard, now, name in (
        (machine(minutes=1), MINUTE, "minutes"),
        (machine(model_bytes=10), 1, "modelBytes"),
    ):
        assert not has(guard.feed(ModelTurnStarting(0)), StopSession)
        guard.feed(ModelExchanged(5, 5, 1))
        commands = guard.feed(ModelTurnStarting(now))
        assert guard.stop is not None
        assert guard.stop.what == name
        assert isinstance(events(commands)[0], entry.BoundReached)
        guard.feed(ModelExchanged(1, 1, 1))  # the summary turn is still journalled
        assert only(guard.feed(ActionProposed(read("a"), now))).state is CallState.CANCELED


def test_the_number_of_commands_bounds_commands_only() -> None:
    guard = machine(commands=1)
    run(guard, bash("a"))
    run(guard, read("b"))
    assert only(guard.feed(ActionProposed(bash("c", "sudo id"), 1))).reason is Reason.REFUSED_FAMILY
    assert only(guard.feed(ActionProposed(bash("d"), 1))).reason is Reason.BOUND


def test_waiting_for_a_person_counts() -> None:
    guard = machine("{}", interactive=True, minutes=1)
    guard.feed(ActionProposed(read("a"), 1))
    commands = guard.feed(Answered("a", True, 2 * MINUTE))
    assert only(commands).reason is Reason.BOUND
    assert not has(commands, Run)


def test_the_fourth_identical_call_is_blocked_and_hands_the_session_back() -> None:
    guard = machine()
    for name in ("c1", "c2", "c3"):
        run(guard, call(name, ReadCall("f"), raw="f"))
    commands = guard.feed(ActionProposed(call("c4", ReadCall("f"), raw='{"path": "f"}'), 1))
    assert not has(commands, Run)
    assert "blocked for repetition, do not retry" in only(commands).text
    assert guard.stop is not None
    assert (guard.stop.kind, guard.stop.what) == (StopKind.LOOP, "Read")
    assert '"f"' in guard.stop.text
    guard.feed(PromptReceived("0" * 64, 1, 5))
    run(guard, call("c5", ReadCall("f"), raw="f"))


def test_refused_calls_loop_too_and_the_switch_is_explicit() -> None:
    guard = machine("{}")
    for name in ("c1", "c2", "c3"):
        guard.feed(ActionProposed(call(name, ReadCall("f")), 1))
    guard.feed(ActionProposed(call("c4", ReadCall("f")), 1))
    assert guard.stop is not None
    silent = machine(loop_detection=False)
    for index in range(20):
        run(silent, call(f"c{index}", ReadCall("f")))


def test_an_approved_command_is_remembered_only_where_the_policy_says_so() -> None:
    for remember in (True, False):
        guard = machine(f"{{rememberApprovals: {str(remember).lower()}}}", interactive=True)
        guard.feed(ActionProposed(bash("c1", "./run.sh"), 1))
        guard.feed(Answered("c1", True, 1))
        guard.feed(ActionFinished("c1", CallState.DONE, ""))
        again = guard.feed(ActionProposed(bash("c2", "./run.sh"), 1))
        assert has(again, Run) is remember
        assert has(again, Ask) is not remember
        if remember:
            assert "automation" in repr(events(again))


def test_an_interrupt_withdraws_a_question_and_cancels_the_rest() -> None:
    guard = machine("{}", interactive=True)
    guard.feed(ActionProposed(read("a"), 1))
    commands = guard.feed(InterruptAsked())
    assert [type(event) for event in events(commands)] == [entry.Interrupted, entry.Ended]
    assert has(commands, Abort)
    assert only(commands).reason is Reason.INTERRUPTED
    assert only(guard.feed(ActionProposed(read("b"), 1))).state is CallState.CANCELED
    assert guard.feed(InterruptAsked()) == ()
    with pytest.raises(InternalError):
        guard.feed(Answered("a", True, 1))
    guard.feed(PromptReceived("0" * 64, 1, 5))
    assert has(guard.feed(ActionProposed(read("c"), 6)), Ask)


@pytest.mark.parametrize(("event", "reason", "kind"), [
    (InterruptAsked(), Reason.INTERRUPTED, None),
    (StopAsked(), Reason.STOPPED, StopKind.STOP),
    (ResourceExceeded("memory", 1, 2), Reason.STOPPED, StopKind.RESOURCE),
    (PartFailed("sandbox_failed", "the sandbox is gone"), Reason.SANDBOX, StopKind.FAILURE),
])
def test_what_runs_is_killed_and_its_end_is_an_error(event: Any, reason: Reason, kind: StopKind | None) -> None:
    guard = machine()
    guard.feed(ActionProposed(bash("a"), 1))
    assert guard.feed(event)[-1] == Abort("a")
    killed = dataclasses.replace(RAN, code=None, signal=9, killed=True)
    result = only(guard.feed(ActionFinished("a", CallState.ERRORED, "partial", Reason.SANDBOX, killed)))
    assert (result.state, result.reason) == (CallState.ERRORED, reason)
    assert "partial" in result.text
    assert (guard.stop.kind if guard.stop else None) is kind
    if kind is not None:
        guard.feed(PromptReceived("0" * 64, 1, 5))
        assert guard.stop is not None
        assert only(guard.feed(ActionProposed(read("b"), 6))).state is CallState.CANCELED


def test_a_stop_by_a_person_replaces_a_bound_but_nothing_replaces_it() -> None:
    guard = machine(actions=1)
    run(guard, read("a"))
    guard.feed(ModelTurnStarting(1))
    guard.feed(StopAsked())
    assert guard.stop is not None
    assert guard.stop.kind is StopKind.STOP
    assert guard.feed(ResourceExceeded("memory", 1, 1)) == ()


def test_events_out_of_place_change_nothing() -> None:
    guard = machine(prompted=False)
    with pytest.raises(InternalError):
        guard.feed(ActionProposed(read("a"), 1))
    guard.feed(PromptReceived("0" * 64, 1, 0))
    guard.feed(ActionProposed(read("a"), 1))
    for event in (
        ActionProposed(read("b"), 1), Answered("a", True, 1), ActionFinished("b", CallState.DONE, ""),
        ActionFinished("a", CallState.CANCELED, ""), PromptReceived("0" * 64, 1, 1), ModelTurnStarting(1),
    ):
        with pytest.raises(InternalError):
            guard.feed(event)
    assert guard.phase is Phase.RUNNING
    guard.feed(ActionFinished("a", CallState.DONE, ""))


def test_a_persons_own_command_is_approved_by_a_human() -> None:
    from supervisor.guard.judge import judge_exec

    base = policy("{}")
    guard = Machine(GuardConfig(base, Bounds(), False, judgement=lambda action: judge_exec(base, ["frobnicate"])))
    guard.feed(PromptReceived("0" * 64, 3, 0))
    commands = guard.feed(ActionProposed(bash("exec", "frobnicate"), 1))
    assert has(commands, Run)
    assert "human" in repr(events(commands))


def test_the_journals_proposal_holds_digests_and_no_content() -> None:
    proposal = call("c", WriteCall("a.txt", "s3cret text"), "Write", raw='{"content": "s3cret text"}')
    shown = repr(events(machine().feed(ActionProposed(proposal, 1)))[0])
    assert "a.txt" in shown
    assert "s3cret" not in shown


def test_verdicts_are_written_as_the_terminal_spells_them() -> None:
    judged = events(machine("{tools: {Read: disabled}}").feed(ActionProposed(read("a"), 1)))[1]
    assert isinstance(judged, entry.Judged)
    assert judged.verdict == Verdict.EXCLUDE.word == "exclude"
