"""A session as a caller opens it, for tests: real journal, working copy and sandbox, a policy of the test's own."""
from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.auth.local import identify
from supervisor.journal.verify import ExitCode, verify
from supervisor.session.request import Answer, ApprovalRequest, SessionRequest
from supervisor.settings.load import SettingFiles
from supervisor.types import Action, BashCall, CallState, Layer, Proposal, ReadCall

FREE = """\
version: 1
defaults:
  tools: {Read: allow, List: allow, Search: allow, Write: allow, Edit: allow, Bash: allow}
  commands: ["*"]
  redirections: allow
"""


def setting_files(home: Path, policy: str | None = FREE, config: str | None = None) -> SettingFiles:
    """The four files below ``home``; no administrator's and no host's."""
    own = home / ".lemniscate"
    own.mkdir(mode=0o700, exist_ok=True)
    for name, text in (("policy.yaml", policy), ("config.yaml", config)):
        path = own / name
        path.unlink(missing_ok=True)
        if text is not None:
            path.write_text(text)
            path.chmod(0o600)
    nowhere = home / "etc"
    return SettingFiles(nowhere / "policy.yaml", own / "policy.yaml", nowhere / "config.yaml", own / "config.yaml")


def request(
    directory: Path, home: Path, policy: str | None = FREE, config: str | None = None, **more: Any
) -> SessionRequest:
    """A request whose settings and state lie below ``home``."""
    files = setting_files(home, policy, config)
    return SessionRequest(os.fsencode(directory), identify(), files=files, state_dir=home / "state", **more)


class Numbers:
    """Proposals with ids of their own."""

    def __init__(self) -> None:
        self._next = 0

    def __call__(self, action: Action, tool: str | None = None) -> Proposal:
        self._next += 1
        name = tool or type(action).__name__.removesuffix("Call")
        return Proposal(f"call-{self._next}", name, f"{self._next}", action)

    def bash(self, script: str, timeout: int | None = None) -> Proposal:
        """A script as one plain command, which the pattern ``*`` covers."""
        return self(BashCall(f"bash -c {shlex.quote(script)}", timeout))

    def plain(self, command: str) -> Proposal:
        """The command text as it stands."""
        return self(BashCall(command))

    def read(self, path: str) -> Proposal:
        return self(ReadCall(path))


class Recorder:
    """A watcher that remembers, and an approver with one answer."""

    def __init__(self, answer: Answer = Answer.APPROVE) -> None:
        self.answer = answer
        self.states: list[tuple[str, CallState]] = []
        self.outputs: dict[tuple[str, int], bytes] = {}
        self.notices: list[tuple[str, str]] = []
        self.asked: list[ApprovalRequest] = []

    def state(self, call_id: str, tool: str, state: CallState) -> None:
        self.states.append((call_id, state))

    def output(self, call_id: str, stream: int, data: bytes) -> None:
        self.outputs[call_id, stream] = self.outputs.get((call_id, stream), b"") + data

    def notice(self, code: str, text: str) -> None:
        self.notices.append((code, text))

    async def ask(self, request: ApprovalRequest) -> Answer:
        self.asked.append(request)
        return self.answer


def entries(journal: Path) -> list[dict[str, Any]]:
    """The journal's entries, after the verifier has accepted them."""
    report = verify([journal])
    assert report.exit is ExitCode.INTACT, report.lines()
    return [json.loads(line) for line in journal.read_bytes().splitlines()]


def events(journal: Path) -> list[str]:
    return [str(entry["ev"]) for entry in entries(journal)]


def journals(home: Path) -> list[Path]:
    """The journals of sessions below ``home``, oldest first."""
    return sorted(path for path in (home / "state/journal").glob("*.jsonl") if path.name != "ledger.jsonl")


def group_or_skip(layers: tuple[Layer, ...]) -> None:
    """Where no control group can be written, memory is bounded for each process: the command fails, not the session."""
    if not any(layer.on for layer in layers if layer.name == "cgroup memory"):
        pytest.skip("needs a writable memory control group")


def processes_with(marker: str) -> Iterator[int]:
    """Pids of this machine whose command line holds ``marker`` (ours alone: markers are unique)."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if marker.encode() in path.read_bytes() and int(path.parent.name) != os.getpid():
                yield int(path.parent.name)
        except OSError:
            continue
