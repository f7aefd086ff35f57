"""Lattice, perimeter, budgets, loops and the table of call states."""
from __future__ import annotations

import itertools

import pytest

from supervisor.errors import InternalError
from supervisor.guard import refusals
from supervisor.guard.budget import MINUTE, Budget
from supervisor.guard.calls import FINAL, TRANSITIONS, advance
from supervisor.guard.judge import judge, judge_exec
from supervisor.guard.lattice import Judgement, strictest
from supervisor.guard.loop import LoopWindow
from supervisor.guard.perimeter import judge_perimeter, outside
from supervisor.settings.parse import SPELLINGS, command_sets, parse_policy
from supervisor.settings.policy import Policy, resolve
from supervisor.types import (
    Action,
    BashCall,
    CallState,
    EditCall,
    ListCall,
    Proposal,
    ReadCall,
    Reason,
    SearchCall,
    Verdict,
    WriteCall,
)


def policy(text: str) -> Policy:
    file = parse_policy(f"version: 1\ndefaults: {text}".encode(), "policy.yaml")
    return resolve(file.defaults, origin="user", sha256="0" * 64, project=None, sets=command_sets())


def test_the_stricter_of_any_two_verdicts_holds() -> None:
    order = {"allow": 0, "ask": 1, "exclude": 2}
    for (one, first), (other, second) in itertools.product(SPELLINGS.items(), repeat=2):
        found = strictest(Judgement(first, rule=one), Judgement(second, rule=other)).verdict
        assert order[found.word] == max(order[first.word], order[second.word])


@pytest.mark.parametrize(("base", "command", "expected"), [
    ("allow", "curl https://example.com", "ask"),
    ("allow", "npm install pkg", "ask"),
    ("allow", "wget https://example.com/file", "ask"),
    ("allow", "sudo rm -rf /", "exclude"),
    ("allow", "exec bash", "exclude"),
    ("ask", "echo test", "ask"),
    ("disabled", "true", "exclude"),
    ("allowedWithPermission", "make test", "ask"),
    ("allowedWithoutPermission", "make test", "allow"),
])
def test_tool_and_command_together(base: str, command: str, expected: str) -> None:
    found = judge(policy(f"{{tools: {{Bash: {base}}}, commands: ['make test']}}"), BashCall(command))
    assert found.verdict.word == expected
    assert (found.reason is None) == (expected == "allow")


def test_a_sensitive_tool_asks_even_at_allow() -> None:
    assert judge(policy("{tools: {Read: allow}, sensitiveTools: [Read]}"), ReadCall("a")).verdict is Verdict.ASK


def test_without_a_policy_every_tool_asks_but_questions() -> None:
    none = policy("{}")
    assert {judge(none, action).verdict for action in (
        ReadCall("a"), ListCall("."), SearchCall("x"), WriteCall("a", ""), EditCall("a", "b", "c"), BashCall("true"),
    )} == {Verdict.ASK}
    assert none.tool("Question") is none.tool("TaskResult") is Verdict.ALLOW


def test_a_failing_evaluation_refuses() -> None:
    class Broken(BashCall):
        """An action of a type that nobody knows."""

    found = judge(policy("{tools: {'*': allow}}"), Broken("true"))
    assert (found.verdict, found.reason) == (Verdict.EXCLUDE, Reason.EVALUATION_FAILED)


def test_exec_skips_ask_and_nothing_else() -> None:
    assert judge_exec(policy("{}"), ["frobnicate"]).verdict is Verdict.ALLOW
    assert judge_exec(policy("{tools: {Bash: exclude}}"), ["true"]).reason is Reason.POLICY
    assert judge_exec(policy("{}"), ["sudo", "id"]).reason is Reason.REFUSED_FAMILY


@pytest.mark.parametrize("path", [
    "/etc/passwd", "..", "../x", "a/../../x", "/", "/workspace/../etc", "/workspacex", "/workspace/a/../../b",
])
def test_outside(path: str) -> None:
    assert outside(path)
    for action in (ReadCall(path), ListCall(path), SearchCall("x", path), WriteCall(path, ""), EditCall(path, "a", "b")):
        found = judge_perimeter(action)
        assert (found.verdict, found.reason) == (Verdict.EXCLUDE, Reason.PERIMETER)
        assert path in found.why
        assert "outside the project" in found.why
    assert judge_perimeter(BashCall(f"cat {path}")).verdict is Verdict.ALLOW


@pytest.mark.parametrize("path", [".", "a", "./a/b", "a/../b", "/workspace", "/workspace/a", "...", "..a", "a/..", "new/dir/x"])
def test_inside(path: str) -> None:
    assert not outside(path)


def spent(**values: int) -> Budget:
    return Budget(max_actions=3, max_minutes=45, max_extensions=5, max_model_bytes=100, max_commands=2, **values)


def test_bounds_are_met_at_the_limit() -> None:
    assert spent(actions=2).exhausted(0) is None
    for budget, now, name, limit, used in (
        (spent(actions=3), 0, "actions", 3, 3),
        (spent(), 45 * MINUTE, "minutes", 45, 45),
        (spent(model_bytes=130), 0, "modelBytes", 100, 130),
    ):
        found = budget.exhausted(now)
        assert found is not None
        assert (found.budget, found.limit, found.used) == (name, limit, used)
    assert spent(commands=1).exhausted_commands() is None
    assert spent(commands=2).exhausted_commands() is not None


def test_a_message_renews_actions_and_minutes_but_not_what_is_the_sessions() -> None:
    renewed = spent(actions=3, commands=2, model_bytes=99, extensions=5, granted_actions=50).begin(7 * MINUTE)
    assert (renewed.actions, renewed.extensions, renewed.granted_actions, renewed.started) == (0, 0, 0, 7 * MINUTE)
    assert (renewed.commands, renewed.model_bytes) == (2, 99)


def test_an_extension_raises_both_ceilings_from_where_one_stands() -> None:
    on_time = spent(actions=3).extended(10 * MINUTE)
    assert on_time.exhausted(59 * MINUTE) is None
    assert on_time.exhausted(60 * MINUTE) is not None
    late = spent(actions=3).extended(100 * MINUTE)
    assert late.exhausted(114 * MINUTE) is None
    assert late.exhausted(115 * MINUTE) is not None
    found = spent(actions=53).extended(0).exhausted(0)
    assert found is not None
    assert found.limit == 53
    assert not spent(extensions=5).extensible


def proposal(tool: str, raw: str, action: Action | None = None) -> Proposal:
    return Proposal("c", tool, raw, action, None if action else Reason.MALFORMED)


def looping(window: LoopWindow, *proposals: Proposal) -> list[bool]:
    seen = []
    for one in proposals:
        window = window.after(one)
        seen.append(window.looping)
    return seen


def test_the_fourth_identical_call_loops() -> None:
    same = proposal("Read", '{"path":"a"}', ReadCall("a"))
    spaced = proposal("Read", '{ "path" : "a" }', ReadCall("a"))
    other = proposal("Read", '{"path":"b"}', ReadCall("b"))
    broken = proposal("Read", '{"path":')
    assert looping(LoopWindow(3), same, spaced, same, spaced) == [False, False, False, True]
    assert looping(LoopWindow(3), same, same, same, other, same) == [False] * 5
    assert looping(LoopWindow(1), same, same) == [False, True]
    assert looping(LoopWindow(3), *[broken] * 4) == [False, False, False, True]
    assert looping(LoopWindow(3, enabled=False), *[same] * 20) == [False] * 20
    assert not LoopWindow(1).after(same).restarted().after(same).looping


def test_only_the_tables_transitions() -> None:
    assert {CallState.DONE, CallState.ERRORED, CallState.CANCELED} == FINAL
    for one, other in itertools.product(CallState, repeat=2):
        if other in TRANSITIONS[one]:
            assert advance(one, other) is other
        else:
            with pytest.raises(InternalError):
                advance(one, other)


@pytest.mark.parametrize(("resource", "limit", "used", "words"), [
    ("memory", 128 << 20, (128 << 20) + 4096, "its limit of 128 MiB of memory (used: 128.0 MiB of memory)"),
    ("disk", 3 << 19, 2 << 20, "its limit of 1.5 MiB of disk space (used: 2 MiB of disk space)"),
    ("processes", 1, 2, "its limit of 1 process (used: 2 processes)"),
    ("cpu_seconds", 600, 601, "its limit of 600 s of CPU time (used: 601 s of CPU time)"),
    ("inodes", 5000, 5001, "its limit of 5000 files (used: 5001 files)"),
])
def test_a_limit_is_told_in_its_unit(resource: str, limit: int, used: int, words: str) -> None:
    assert words in refusals.stop_for_resource(resource, limit, used).text
