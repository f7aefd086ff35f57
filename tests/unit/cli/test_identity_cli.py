"""Nobody without a name in the host's name service opens a session, however it is asked for (DA-01)."""
from __future__ import annotations

import json
from pathlib import Path

import pytest

from agent.cli import prompt, request, running, stdin
from agent.errors import IdentityError
from supervisor.journal.verify import verify_all
from supervisor.session.request import OWN_FAILURE


@pytest.fixture(autouse=True)
def state(monkeypatch: pytest.MonkeyPatch, home: Path) -> Path:
    """Nobody's; where their sessions' state is."""
    def unknown() -> None:
        raise IdentityError("resolving who you are", on="uid 54321", why="no entry")

    monkeypatch.setattr(request, "identify", unknown)
    for module in (prompt, running):
        monkeypatch.setattr(module, "harden", lambda: None)
    monkeypatch.setattr(stdin, "read", lambda: None)
    return home / ".local/state/lemniscate"


def refusal(state: Path) -> list[dict[str, object]]:
    """The entries of the one journal there is, which is intact."""
    assert verify_all(state / "journal").exit == 0
    (file,) = (path for path in (state / "journal").iterdir() if path.name != "ledger.jsonl")
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_a_prompt_is_refused(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert prompt.run("x", model=None, mode="agent", as_json=False) == 1
    told = capsys.readouterr()
    assert "identity_unresolved" in told.err
    assert told.out == ""
    entries = refusal(state)
    assert [str(entry["ev"]).partition(".")[2] for entry in entries] == ["frame", "authenticated", "refused", "closed"]
    assert [entry.get("outcome") or entry.get("code") for entry in entries[1:3]] == ["identity_unresolved"] * 2


def test_a_script_gets_its_last_event_all_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    assert prompt.run("x", model=None, mode="agent", as_json=True) == 1
    last = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (last["type"], last["exit"]) == ("result", 1)


def test_a_command_is_refused(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert running.run(["true"], None) == OWN_FAILURE
    assert "identity_unresolved" in capsys.readouterr().err
    last = refusal(state)[-1]
    assert (last["ev"], last["exit"]) == ("session.closed", OWN_FAILURE)
