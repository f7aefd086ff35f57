"""``run_prompt`` with the real session and sandbox: what a person does to a run from outside, and how it is reported."""
from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from agent.auth.local import identify
from agent.errors import SecretError
from agent.loop import Ending, SilentWatcher
from agent.wiring import Control, PromptRequest, Report, open_provider, run_prompt
from supervisor.errors import SettingError
from supervisor.session.request import Answer, ApprovalRequest, Outcome, SessionRequest
from supervisor.settings.config import ModelConfig
from supervisor.types import CallState, Proposal, Reason, Result
from support.scripted import FREE, call, configure

pytestmark = [pytest.mark.kernel, pytest.mark.needs("userns", "overlay", "git", "bash")]

ENDLESS: list[dict[str, Any]] = [
    {"calls": [call("Write", path="w", content="x"), call("Bash", command="sleep 1000"), call("List", path=".")]},
    {"text": "Never said."},
]


class Acting(SilentWatcher):
    """Does something when Bash begins to run; keeps what it saw."""

    def __init__(self, act: Callable[[], None] = lambda: None) -> None:
        self._act = act
        self.states: list[tuple[str, CallState]] = []
        self.results: list[Result] = []

    def state(self, call_id: str, tool: str, state: CallState) -> None:
        self.states.append((tool, state))
        if (tool, state) == ("Bash", CallState.CALLING):
            self._act()

    def result(self, proposal: Proposal, result: Result) -> None:
        self.results.append(result)


def request(repo: Path, **more: Any) -> PromptRequest:
    return PromptRequest("do it", SessionRequest(os.fsencode(repo), identify(), **more))


async def play(repo: Path, act: Callable[[Control], None]) -> tuple[Report, Acting]:
    control = Control()
    watcher = Acting(lambda: act(control))
    with trio.fail_after(30):
        return await run_prompt(request(repo), watcher, control=control), watcher


@pytest.mark.parametrize(("outcome", "exit"), [
    (Outcome.INTERRUPTED, 130), (Outcome.TERMINATED, 143), (Outcome.HANGUP, 129), (Outcome.QUIT, 131),
])
async def test_a_run_is_ended_from_outside(repo: Path, home: Path, outcome: Outcome, exit: int) -> None:
    configure(home, ENDLESS)
    report, _ = await play(repo, lambda control: control.end(outcome))
    assert (report.exit, report.ending, report.answer) == (exit, Ending.INTERRUPTED, "")
    assert report.closing.changes is None  # what was written is rejected


async def test_the_developers_stop(repo: Path, home: Path) -> None:
    configure(home, ENDLESS)
    report, _ = await play(repo, Control.halt)
    assert (report.exit, report.ending) == (3, Ending.STOPPED)
    assert report.closing.changes is None


async def test_an_interrupted_turn_has_a_result_for_every_call(repo: Path, home: Path) -> None:
    configure(home, ENDLESS)
    report, watcher = await play(repo, Control.interrupt)
    assert report.ending is Ending.INTERRUPTED
    assert [result.state for result in watcher.results] == [CallState.DONE, CallState.ERRORED, CallState.CANCELED]
    assert report.turns == 1


async def test_states_come_in_their_order(repo: Path, home: Path) -> None:
    configure(home, [{"calls": [call("Bash", command="true")]}, {"text": "Done."}])
    watcher = Acting()
    report = await run_prompt(request(repo), watcher)
    assert (report.exit, report.ending, report.answer) == (0, Ending.DONE, "Done.")
    assert watcher.states == [
        ("Bash", state) for state in (CallState.GENERATING, CallState.GENERATED, CallState.CALLING, CallState.DONE)
    ]
    assert report.sent > 0
    assert report.received > 0


class Refusing:
    async def ask(self, request: ApprovalRequest) -> Answer:
        await trio.lowlevel.checkpoint()
        return Answer.REFUSE


async def test_a_persons_refusal_hands_the_session_back(repo: Path, home: Path) -> None:
    configure(home, [{"calls": [call("Bash", command="true")]}, {"text": "Never said."}], tools={**FREE, "Bash": "ask"})
    report = await run_prompt(request(repo, interactive=True), Acting(), Refusing())
    assert (report.ending, report.turns) == (Ending.REJECTED, 1)
    assert [result.reason for _, result in report.refused] == [Reason.REFUSED]


async def test_a_screen_that_breaks_ends_the_session_in_order(repo: Path, home: Path) -> None:
    def broken() -> None:
        raise ZeroDivisionError

    configure(home, ENDLESS)
    with pytest.raises(ZeroDivisionError):
        await run_prompt(request(repo), Acting(broken))


async def test_a_model_that_cannot_be_made_starts_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SettingError):
        open_provider(ModelConfig("m", "scripted", script=str(tmp_path / "absent.yaml")))
    with pytest.raises(SecretError):
        open_provider(ModelConfig("m", "openai", api_base="http://h/v1", model="m", api_key_env="LEMNI_NO_SUCH_KEY"))
    monkeypatch.setenv("LEMNI_KEY", "sk-1")
    key = tmp_path / "key"
    key.write_text("sk-2\n")
    key.chmod(0o600)
    for origin in ({"api_key_env": "LEMNI_KEY"}, {"api_key_file": str(key)}, {}):
        async with open_provider(ModelConfig("m", "openai", api_base="http://h/v1", model="m", **origin)) as provider:
            assert provider.name == "m"
