"""The values that cross the supervisor: calls in, results out. Frozen, closed, without behaviour beyond their own sense.

A call is what the model proposes; nothing here runs anything. Paths are text as the model wrote them; bytes that are not
UTF-8 travel as surrogate escapes (``os.fsdecode``), and are shown escaped.
"""
from __future__ import annotations

import enum
from dataclasses import dataclass


class Verdict(enum.IntEnum):
    """The three values of the policy, ordered so that ``max`` is the strictest (PP-19, PP-28)."""

    ALLOW = 0
    ASK = 1
    EXCLUDE = 2

    @property
    def word(self) -> str:
        """The terminal's spelling (PP-24)."""
        return self.name.lower()


class Attribution(enum.Enum):
    """Who approved: there is no third value and no default (PP-32, PP-33)."""

    HUMAN = "human"
    AUTOMATION = "automation"


class CallState(enum.Enum):
    """The six states of a tool call (LC-02)."""

    GENERATING = "generating"
    GENERATED = "generated"
    CALLING = "calling"
    DONE = "done"
    ERRORED = "errored"
    CANCELED = "canceled"


class Reason(enum.Enum):
    """Stable codes: why a call did not simply run, or why a session stopped."""

    # refusals of a call
    POLICY = "policy"  # the tool is at exclude
    NOT_LISTED = "not_listed"  # an unlisted command, and nobody to ask
    NEEDS_APPROVAL = "needs_approval"  # ask, and nobody to ask
    REFUSED = "refused"  # a human said no
    PERIMETER = "perimeter"  # outside the project
    REFUSED_FAMILY = "refused_family"  # sudo, mkfs, …: whatever anyone agrees to
    EVALUATION_FAILED = "evaluation_failed"  # PP-30
    LOOP = "loop"
    BOUND = "bound"
    STOPPED = "stopped"
    INTERRUPTED = "interrupted"
    # errors of a call
    MALFORMED = "malformed"  # arguments are not the complete JSON of the tool's schema
    UNKNOWN_TOOL = "unknown_tool"
    FAILED = "failed"  # the tool ran and failed
    TIMEOUT = "timeout"  # the command's own bound (CB-02)
    SANDBOX = "sandbox"  # the sandbox is gone or could not serve


@dataclass(frozen=True, slots=True)
class ReadCall:
    """Read lines of a file. ``offset`` is the 1-based first line, ``limit`` a number of lines."""

    path: str
    offset: int = 1
    limit: int = 2000


@dataclass(frozen=True, slots=True)
class ListCall:
    """List one directory, not recursively."""

    path: str


@dataclass(frozen=True, slots=True)
class SearchCall:
    """Search an RE2 pattern in files below ``path``, whose names match ``glob`` where one is given."""

    pattern: str
    path: str = "."
    glob: str | None = None


@dataclass(frozen=True, slots=True)
class WriteCall:
    """Create or replace a file with this text, making parent directories."""

    path: str
    content: str


@dataclass(frozen=True, slots=True)
class EditCall:
    """Replace ``old`` by ``new``: exactly one match, or every match with ``all``."""

    path: str
    old: str
    new: str
    all: bool = False


@dataclass(frozen=True, slots=True)
class BashCall:
    """Run a command text by bash in the sandbox. ``timeout`` in whole seconds; None is the bound (CB-02)."""

    command: str
    timeout: int | None = None


Action = ReadCall | ListCall | SearchCall | WriteCall | EditCall | BashCall

TOOL_OF: dict[type, str] = {
    ReadCall: "Read", ListCall: "List", SearchCall: "Search", WriteCall: "Write", EditCall: "Edit", BashCall: "Bash",
}  # the closed catalogue of this version, in the order in which it is offered


@dataclass(frozen=True, slots=True)
class Proposal:
    """One complete request of the model, well-formed or not: each costs one action (O-18).

    ``call_id`` is ours, unique in the session; ``tool`` and ``raw_arguments`` are as sent. Exactly one of ``action`` and
    ``fault`` is set: ``fault`` says in words for the model why there is no action (MALFORMED or UNKNOWN_TOOL).
    """

    call_id: str
    tool: str
    raw_arguments: str
    action: Action | None
    fault: Reason | None = None
    fault_text: str = ""


@dataclass(frozen=True, slots=True)
class Execution:
    """How a command in the sandbox ended.

    ``code`` is the exit status, or None when ``signal`` ended it. ``stdout``/``stderr`` are the kept first bytes;
    ``dropped_*`` count what came beyond (bytes, CB-04). Durations in microseconds, memory in bytes.
    """

    code: int | None
    signal: int | None
    stdout: bytes
    stderr: bytes
    dropped_stdout: int
    dropped_stderr: int
    duration_us: int
    cpu_us: int
    max_rss: int
    timed_out: bool = False
    killed: bool = False  # by a stop or an interrupt

    @property
    def status(self) -> int:
        """The shell's convention: the code, or 128 + signal."""
        return self.code if self.code is not None else 128 + (self.signal or 0)


@dataclass(frozen=True, slots=True)
class Result:
    """What a call came to. ``text`` is for the model; it is untrusted data when the call read or ran something (DC-03)."""

    call_id: str
    state: CallState  # DONE, ERRORED or CANCELED
    text: str
    reason: Reason | None = None
    untrusted: bool = False
    execution: Execution | None = None


class StopKind(enum.Enum):
    """Why a session takes no more calls."""

    BOUND = "bound"
    LOOP = "loop"
    RESOURCE = "resource"  # memory, processes, cpu seconds, duration of the sandbox (SB-24)
    STOP = "stop"  # the developer's stop
    FAILURE = "failure"  # journal or sandbox broken


@dataclass(frozen=True, slots=True)
class Stop:
    """A guardrail stopped the session. ``what`` names the bound, the looping tool, the resource; numbers in its own unit."""

    kind: StopKind
    what: str
    limit: int
    used: int
    text: str  # for the person: a bound was reached, not that the task is finished (SE-26)


@dataclass(frozen=True, slots=True)
class Identity:
    """Who the session belongs to (DA-01, JR-15): from the host's name service, never from USER or LOGNAME."""

    name: str
    uid: int
    source: str  # "nss"


@dataclass(frozen=True, slots=True)
class Layer:
    """One isolation layer as ``doctor`` and the session frame list it."""

    name: str  # "user namespace", "seccomp", "landlock", "cgroup memory", …
    on: bool
    fact: str  # the kernel fact: "ABI 7", "v1", "ENOSYS"
    remedy: str = ""  # what to do where it is off and could be on
    required: bool = False
