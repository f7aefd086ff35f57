"""What can stand in a journal: a closed set of events, each with its fields and their kinds. Nothing else is ever written.

An event is a frozen value; ``values`` turns it into what the chain serialises, after cleaning every text that somebody
else had a hand in (paths, commands, names, words of an error). There is no field for the text of a prompt, for code or
for output: digests, lengths, codes, durations (JR-17…JR-20). Writing and verifying share one schema, derived from the
annotations below, so that an event which could not be verified cannot be written.

Every entry also carries the envelope: ``at`` (UTC), ``mono`` (µs of the boot clock), ``boot``, ``who`` and ``uid``
(JR-15), ``sess``, ``sub``, ``agent`` (JR-25), ``seq``, ``v``.
"""
from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from native.record import Schema
from supervisor.journal.redact import clean_command, clean_path, clean_text

# Kinds of field. The annotation of a field is its kind: it decides how it is cleaned and what the verifier accepts.
Word = str  # a stable code or name of ours: written as it is
Text = str  # words that others had a hand in: through the secret filter, at most 1 KiB
FilePath = str  # as the model or the file system has it (surrogate escapes are shown as \xNN): through the secret filter
Shell = str  # a command text: secret filter, long operands replaced by their digest, at most 4 KiB
Digest = str  # 64 lower-case hexadecimal digits
Count = int  # 0 or more
Number = int  # may be negative
Flag = bool
Words = tuple[str, ...]
Texts = tuple[str, ...]


class Event:
    """Base of the closed set. ``EV`` is the name in the journal."""

    EV: ClassVar[str]
    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Frame(Event):
    """Entry 0, written and synced before the first act (JR-10): who, under what policy, confined by what.

    ``kind`` is session, exec or apply; ``names`` is the session that an apply is about. ``method`` is how the identity
    was established. ``layers_on``/``layers_off`` are isolation layers with their fact (``landlock: ABI 7``).
    """

    EV: ClassVar[str] = "session.frame"
    kind: Word
    names: Word | None
    method: Word
    surface: Word
    mode: Word
    project: FilePath
    policy: Digest | None
    profile: Word
    kernel: Text
    layers_on: Texts
    layers_off: Texts
    version: Word


@dataclass(frozen=True, slots=True)
class Authenticated(Event):
    """How the identity was established, failures too (JR-02). ``outcome`` is accepted or a reason code."""

    EV: ClassVar[str] = "session.authenticated"
    method: Word
    outcome: Word


@dataclass(frozen=True, slots=True)
class PolicyInForce(Event):
    """The policy at session start and at each change (JR-08). ``tools`` and ``budgets`` as ``name=value``."""

    EV: ClassVar[str] = "policy.in_force"
    sha256: Digest | None
    origin: Word
    project: Word | None
    tools: Texts
    commands: Count
    budgets: Texts


@dataclass(frozen=True, slots=True)
class Stage(Event):
    """One of the five stages begins (GA-18)."""

    EV: ClassVar[str] = "session.stage"
    n: Count
    name: Word


@dataclass(frozen=True, slots=True)
class SandboxOpened(Event):
    """The sandbox stands. ``layers_off`` names what is off and announced."""

    EV: ClassVar[str] = "sandbox.opened"
    duration_us: Count
    layers_on: Texts
    layers_off: Texts


@dataclass(frozen=True, slots=True)
class SandboxDestroyed(Event):
    """The sandbox is gone; what it used in all: CPU in µs, peaks in bytes and processes."""

    EV: ClassVar[str] = "sandbox.destroyed"
    cpu_us: Count
    memory_peak: Count
    processes_peak: Count


@dataclass(frozen=True, slots=True)
class Noticed(Event):
    """Something that was announced to the person: a layer off, a setting's effect, masked paths."""

    EV: ClassVar[str] = "session.noticed"
    code: Word
    text: Text


@dataclass(frozen=True, slots=True)
class Prompt(Event):
    """A user message, by digest and length in bytes (JR-03)."""

    EV: ClassVar[str] = "prompt"
    sha256: Digest
    length: Count


@dataclass(frozen=True, slots=True)
class ModelExchange(Event):
    """One call of the model: bytes sent and received."""

    EV: ClassVar[str] = "model.exchange"
    turn: Count
    sent: Count
    received: Count
    duration_us: Count


@dataclass(frozen=True, slots=True)
class Proposed(Event):
    """A request of the model, malformed ones included (JR-05). ``raw_*`` are the arguments as sent.

    ``content_*`` is what a Write or Edit would put in place. ``fault`` is set where the request is no action.
    """

    EV: ClassVar[str] = "call.proposed"
    call: Word
    tool: Text
    raw_sha256: Digest
    raw_length: Count
    path: FilePath | None = None
    command: Shell | None = None
    content_sha256: Digest | None = None
    content_length: Count | None = None
    fault: Word | None = None


@dataclass(frozen=True, slots=True)
class Judged(Event):
    """The guard's verdict: allow, ask or exclude, with the reason code and the rule that decided."""

    EV: ClassVar[str] = "call.judged"
    call: Word
    verdict: Word
    reason: Word | None
    rule: Text | None


@dataclass(frozen=True, slots=True)
class Decision(Event):
    """Who approved or refused a call (JR-06): ``attribution`` is human or automation."""

    EV: ClassVar[str] = "call.decided"
    call: Word
    answer: Word
    attribution: Word


@dataclass(frozen=True, slots=True)
class Started(Event):
    """The authorisation to act: on disk before anything runs."""

    EV: ClassVar[str] = "call.started"
    call: Word


@dataclass(frozen=True, slots=True)
class Executed(Event):
    """How a command in the sandbox ended (JR-07): code or signal, µs, bytes kept and dropped of each stream."""

    EV: ClassVar[str] = "call.executed"
    call: Word
    code: Number | None
    signal: Count | None
    duration_us: Count
    cpu_us: Count
    max_rss: Count
    kept_out: Count
    dropped_out: Count
    kept_err: Count
    dropped_err: Count
    timed_out: Flag
    killed: Flag


@dataclass(frozen=True, slots=True)
class FileTouched(Event):
    """A file tool's effect (JR-04): ``kind`` is read, list, search, write or edit; digest and length of what was written."""

    EV: ClassVar[str] = "file.touched"
    call: Word
    kind: Word
    path: FilePath
    sha256: Digest | None
    length: Count | None


@dataclass(frozen=True, slots=True)
class Ended(Event):
    """A call reached its last state: done, errored or canceled."""

    EV: ClassVar[str] = "call.ended"
    call: Word
    state: Word
    reason: Word | None


@dataclass(frozen=True, slots=True)
class BoundReached(Event):
    """A budget is used up; numbers in the budget's own unit."""

    EV: ClassVar[str] = "bound.reached"
    budget: Word
    limit: Count
    used: Count


@dataclass(frozen=True, slots=True)
class BoundExtended(Event):
    """A person extended the bounds (JR-09)."""

    EV: ClassVar[str] = "bound.extended"
    actions: Count
    minutes: Count
    attribution: Word


@dataclass(frozen=True, slots=True)
class LoopBlocked(Event):
    """The same call for the n-th time."""

    EV: ClassVar[str] = "loop.blocked"
    call: Word
    tool: Text
    count: Count


@dataclass(frozen=True, slots=True)
class ResourceStop(Event):
    """A cap of the sandbox was exceeded: memory, processes, cpu_seconds, wall_seconds."""

    EV: ClassVar[str] = "resource.exceeded"
    resource: Word
    limit: Count
    used: Count


@dataclass(frozen=True, slots=True)
class Interrupted(Event):
    """The person interrupted the turn (JR-06)."""

    EV: ClassVar[str] = "session.interrupted"


@dataclass(frozen=True, slots=True)
class Stopped(Event):
    """The session was stopped: by the person, or by a failure named in ``reason``."""

    EV: ClassVar[str] = "session.stopped"
    reason: Word


@dataclass(frozen=True, slots=True)
class Compacted(Event):
    """The context was compacted: bytes before and after."""

    EV: ClassVar[str] = "context.compacted"
    before: Count
    after: Count


@dataclass(frozen=True, slots=True)
class ChangeFile(Event):
    """One changed path of the diff: ``op`` is added, modified, deleted, …; content by digest before and after."""

    EV: ClassVar[str] = "changes.file"
    path: FilePath
    op: Word
    before: Digest | None
    after: Digest | None
    conflict: Flag


@dataclass(frozen=True, slots=True)
class Changes(Event):
    """The diff as it was collected and stored: digest, number of files, lines added and removed."""

    EV: ClassVar[str] = "changes.collected"
    sha256: Digest
    files: Count
    added: Count
    removed: Count


@dataclass(frozen=True, slots=True)
class ChangeDecision(Event):
    """Validation or refusal of the diff of session ``of`` (JR-06)."""

    EV: ClassVar[str] = "changes.decided"
    of: Word
    answer: Word
    attribution: Word


@dataclass(frozen=True, slots=True)
class Applied(Event):
    """The diff of session ``of`` was applied to this many files, or was not: ``outcome`` is applied or a reason code."""

    EV: ClassVar[str] = "changes.applied"
    of: Word
    files: Count
    outcome: Word


@dataclass(frozen=True, slots=True)
class SessionRefused(Event):
    """The session could not be opened; nothing ran."""

    EV: ClassVar[str] = "session.refused"
    code: Word


@dataclass(frozen=True, slots=True)
class SessionClosed(Event):
    """The last entry: exit code and reason. Nothing may follow it."""

    EV: ClassVar[str] = "session.closed"
    exit: Count
    reason: Word


@dataclass(frozen=True, slots=True)
class Recovered(Event):
    """A torn end was found on reopening: where it begins, its length and digest. It stays in the file, accepted by this."""

    EV: ClassVar[str] = "journal.recovered"
    torn_off: Count
    torn_len: Count
    torn_sha256: Digest


@dataclass(frozen=True, slots=True)
class LedgerFrame(Event):
    """Entry 0 of the ledger."""

    EV: ClassVar[str] = "ledger.frame"


@dataclass(frozen=True, slots=True)
class JournalOpened(Event):
    """A journal exists: its id and the hash of its entry 0."""

    EV: ClassVar[str] = "journal.opened"
    journal: Word
    head: Digest


@dataclass(frozen=True, slots=True)
class JournalClosed(Event):
    """A journal is complete: its id, the hash of its last entry, its number of entries."""

    EV: ClassVar[str] = "journal.closed"
    journal: Word
    head: Digest
    entries: Count


EVENTS: tuple[type[Event], ...] = (
    Frame, Authenticated, PolicyInForce, Stage, SandboxOpened, SandboxDestroyed, Noticed, Prompt, ModelExchange,
    Proposed, Judged, Decision, Started, Executed, FileTouched, Ended, BoundReached, BoundExtended, LoopBlocked,
    ResourceStop, Interrupted, Stopped, Compacted, ChangeFile, Changes, ChangeDecision, Applied, SessionRefused,
    SessionClosed, Recovered, LedgerFrame, JournalOpened, JournalClosed,
)
GENESIS = frozenset({Frame.EV, LedgerFrame.EV})  # these also carry ``alg`` and ``jid``
LAST = SessionClosed.EV

# annotation -> (letter of native.record, cleaner)
_KINDS: dict[str, tuple[str, Callable[[Any], Any] | None]] = {
    "Word": ("T", None),
    "Text": ("T", clean_text),
    "FilePath": ("T", clean_path),
    "Shell": ("T", clean_command),
    "Digest": ("H", None),
    "Count": ("U", None),
    "Number": ("I", None),
    "Flag": ("B", None),
    "Words": ("L", None),
    "Texts": ("L", lambda texts: tuple(map(clean_text, texts))),
}
_NULLABLE = " | None"


_CLEANERS = {
    kind.EV: tuple((f.name, _KINDS[str(f.type).removesuffix(_NULLABLE)][1]) for f in fields(kind))  # type: ignore[arg-type]
    for kind in EVENTS
}


def values(event: Event) -> tuple[Any, ...]:
    """The event's values in the order of its fields, cleaned: what may be written."""
    result = []
    for name, clean in _CLEANERS[event.EV]:
        value = getattr(event, name)
        result.append(value if clean is None or value is None else clean(value))
    return tuple(result)


def forms() -> dict[str, tuple[tuple[str, str], ...]]:
    """The schema: for each event its fields with their kind letter, ``?`` after it where null is allowed."""
    result = {}
    for kind in EVENTS:
        form = []
        for f in fields(kind):  # type: ignore[arg-type]
            annotation = str(f.type)
            letter = _KINDS[annotation.removesuffix(_NULLABLE)][0]
            form.append((f.name, letter + ("?" if annotation.endswith(_NULLABLE) else "")))
        if kind.EV in GENESIS:
            form += [("alg", "T"), ("jid", "T")]
        result[kind.EV] = tuple(form)
    return result


@functools.cache
def schema() -> Schema:
    """The schema as the chain uses it, built once."""
    return Schema(forms())
