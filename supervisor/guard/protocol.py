"""What goes into the guard machine and what comes out of it. Values only; times are microseconds of the boot clock."""
from __future__ import annotations

from dataclasses import dataclass

from supervisor.journal import entry
from supervisor.types import Action, CallState, Execution, Proposal, Reason, Result, Stop

# Events


@dataclass(frozen=True, slots=True)
class PromptReceived:
    """A message of the developer: fresh budgets, a fresh loop window."""

    sha256: str
    length: int
    now: int


@dataclass(frozen=True, slots=True)
class ModelTurnStarting:
    """The loop is about to call the model."""

    now: int


@dataclass(frozen=True, slots=True)
class ModelExchanged:
    """One call of the model is over."""

    sent: int
    received: int
    duration_us: int


@dataclass(frozen=True, slots=True)
class ActionProposed:
    proposal: Proposal
    now: int


@dataclass(frozen=True, slots=True)
class Answered:
    """A person answered the question about ``call_id``."""

    call_id: str
    approved: bool
    now: int


@dataclass(frozen=True, slots=True)
class ActionFinished:
    """What was told to run has ended. ``state`` is DONE or ERRORED. ``touched`` is a file tool's effect."""

    call_id: str
    state: CallState
    text: str
    reason: Reason | None = None
    execution: Execution | None = None
    touched: entry.FileTouched | None = None


@dataclass(frozen=True, slots=True)
class InterruptAsked:
    """The developer interrupts the turn."""


@dataclass(frozen=True, slots=True)
class StopAsked:
    """The developer stops the session."""


@dataclass(frozen=True, slots=True)
class ResourceExceeded:
    resource: str
    limit: int
    used: int


@dataclass(frozen=True, slots=True)
class PartFailed:
    """The journal or the sandbox is gone: ``code`` for scripts, ``what`` in words."""

    code: str
    what: str


GuardEvent = (
    PromptReceived | ModelTurnStarting | ModelExchanged | ActionProposed | Answered | ActionFinished | InterruptAsked
    | StopAsked | ResourceExceeded | PartFailed
)

# Commands


@dataclass(frozen=True, slots=True)
class WriteEntry:
    """Write to the journal; with ``sync`` the entry is on disk before the next command is carried out."""

    event: entry.Event
    sync: bool = False


@dataclass(frozen=True, slots=True)
class Ask:
    """Ask the person; answer with ``Answered``."""

    call_id: str
    tool: str
    action: Action
    why: str
    reason: Reason


@dataclass(frozen=True, slots=True)
class Run:
    """Carry the action out in the sandbox; answer with ``ActionFinished``. The only command that acts."""

    call_id: str
    action: Action


@dataclass(frozen=True, slots=True)
class Abort:
    """End what is under way for this call: withdraw its question, or kill its command (then ``ActionFinished`` follows)."""

    call_id: str


@dataclass(frozen=True, slots=True)
class Moved:
    """A call is in a new state: for the screen."""

    call_id: str
    tool: str
    state: CallState


@dataclass(frozen=True, slots=True)
class Announce:
    """A line for the person."""

    code: str
    text: str


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of a call, for the model: exactly one for each proposal."""

    result: Result


@dataclass(frozen=True, slots=True)
class StopSession:
    """A guardrail stopped the session: nothing runs from here on."""

    stop: Stop


GuardCommand = WriteEntry | Ask | Run | Abort | Moved | Announce | Answer | StopSession
