"""What a caller gives to a session and gets from it: the values of its door, and the two parties that watch and answer."""
from __future__ import annotations

import enum
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from supervisor.settings.config import Config
from supervisor.settings.load import SettingFiles
from supervisor.types import Action, CallState, Execution, Identity, Reason, Stop
from supervisor.workspace.changes import ChangeSet

OWN_FAILURE = 125  # of `lemni exec`: lemni failed or refused, as with env(1), nohup(1) and timeout(1)


@dataclass(frozen=True, slots=True)
class SessionRequest:
    """What a session is opened for. ``directory`` is where the person stands; the project is found from it.

    ``surface``: "print", "terminal" or "exec", for the journal. Not ``interactive``: a question is a dry refusal, attributed
    to automation and announced. ``identity`` is who the caller found the person to be: the supervisor authenticates nobody.
    ``config`` is loaded where it is not given.
    """

    directory: bytes
    identity: Identity
    surface: str = "print"
    interactive: bool = False
    mode: str = "agent"  # or "plan": Read, List, Search
    files: SettingFiles = field(default_factory=SettingFiles.standard)
    state_dir: Path | None = None
    config: Config | None = None

    @property
    def own_failure(self) -> int:
        """The exit status where lemni failed or refused."""
        return OWN_FAILURE if self.surface == "exec" else 1


@dataclass(frozen=True, slots=True)
class ApprovalRequest:
    """A question to the person: exactly what would run, and why it asks."""

    call_id: str
    tool: str
    action: Action
    why: str
    reason: Reason


class Answer(enum.Enum):
    """A person's word. There is no third, and silence is none."""

    APPROVE = "approve"
    REFUSE = "refuse"


class Approver(Protocol):
    """Who answers; asked in interactive sessions only, one question at a time. Cancelled when the question is withdrawn."""

    async def ask(self, request: ApprovalRequest) -> Answer: ...


class Watcher(Protocol):
    """What may be shown, never what decides. No method may block; an exception in one ends the session as an error.

    Except BrokenPipeError from ``output`` of `lemni exec`: nobody reads that stream any more, and the command learns it.
    """

    def state(self, call_id: str, tool: str, state: CallState) -> None: ...

    def output(self, call_id: str, stream: int, data: bytes) -> None:
        """A piece of a command's output as it comes: stream 1 or 2, raw bytes."""

    def notice(self, code: str, text: str) -> None:
        """A line for the person: announcements, refusals, layers that are off."""


class RefuseAll:
    """Nobody is there."""

    async def ask(self, request: ApprovalRequest) -> Answer:
        return Answer.REFUSE


class SilentWatcher:
    """Shows nothing."""

    def state(self, call_id: str, tool: str, state: CallState) -> None: ...

    def output(self, call_id: str, stream: int, data: bytes) -> None: ...

    def notice(self, code: str, text: str) -> None: ...


class Outcome(enum.Enum):
    """How the caller ends a session. A stop by a guardrail wins over DONE. The last four reject what was written (SR-05)."""

    DONE = "done"
    ERROR = "error"
    INTERRUPTED = "interrupted"
    TERMINATED = "terminated"
    HANGUP = "hangup"
    QUIT = "quit"


REJECTING = frozenset({Outcome.INTERRUPTED, Outcome.TERMINATED, Outcome.HANGUP, Outcome.QUIT})



@dataclass(frozen=True, slots=True)
class Closing:
    """A session's own account of its end. Microseconds, bytes, counts.

    ``exit``: 0 done, 1 error, 3 a guardrail stopped it, 129 hung up, 130 interrupted, 131 quit, 143 terminated
    (O-13).
    ``changes`` is None where nothing is kept: rejected, or not to be collected.
    """

    session: str
    exit: int
    reason: str
    stop: Stop | None
    changes: ChangeSet | None
    files: int
    added: int
    removed: int
    actions: int
    commands: int
    opened_us: int
    cpu_us: int
    memory_peak: int
    processes_peak: int
    journal: Path
    notices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ExecOutcome:
    """What ``lemni exec`` came to: the command's status, 128+N, 125 for a refusal or failure of ours, 3 on a limit."""

    exit: int
    refusal: str | None
    execution: Execution | None
    closing: Closing
