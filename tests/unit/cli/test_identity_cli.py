"""Nobody without a name in the host's name service opens a session, however it is asked for (DA-01)."""
from __future__ import annotations

import json

import pytest

from agent.cli import prompt, running, stdin
from agent.errors import IdentityError
from supervisor.session.request import OWN_FAILURE


@pytest.fixture(autouse=True)
def _nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown() -> None:
        raise IdentityError("resolving who you are", on="uid 54321", why="no entry")

    for module in (prompt, running):
        monkeypatch.setattr(module, "identify", unknown)
        monkeypatch.setattr(module, "harden", lambda: None)
    monkeypatch.setattr(stdin, "read", lambda: None)


def test_a_prompt_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert prompt.run("x", model=None, mode="agent", as_json=False) == 1
    told = capsys.readouterr()
    assert "identity_unresolved" in told.err
    assert told.out == ""


def test_a_script_gets_its_last_event_all_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    assert prompt.run("x", model=None, mode="agent", as_json=True) == 1
    last = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (last["type"], last["exit"]) == ("result", 1)


def test_a_command_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert running.run(["true"], None) == OWN_FAILURE
    assert "identity_unresolved" in capsys.readouterr().err
