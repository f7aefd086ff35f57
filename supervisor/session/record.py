"""What a session leaves to be read: the entries that describe it as a whole, its account, and its record in the store."""
from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from supervisor.errors import LemniError, StoreError
from supervisor.guard.budget import Budget
from supervisor.journal import entry
from supervisor.session.house import Closed
from supervisor.session.prepare import Prepared
from supervisor.session.request import OWN_FAILURE, REJECTING, Closing, Outcome, SessionRequest
from supervisor.settings.bounds import Bounds
from supervisor.settings.policy import Policy
from supervisor.types import Identity, Layer, Stop, StopKind
from supervisor.version import VERSION
from supervisor.workspace.changes import ChangeSet, count_files
from supervisor.workspace.store import Decision, SessionRecord

EXITS = {
    Outcome.DONE: 0, Outcome.ERROR: 1,
    Outcome.HANGUP: 129, Outcome.INTERRUPTED: 130, Outcome.QUIT: 131, Outcome.TERMINATED: 143,
}
GUARD_EXIT = 3  # a guardrail stopped the agent (O-13)


def frame(request: SessionRequest, prepared: Prepared, identity: Identity) -> entry.Frame:
    """Entry 0: who, under what policy, confined by what (JR-10)."""
    on, off = layer_texts(prepared.host.layers)
    return entry.Frame(
        kind="exec" if request.surface == "exec" else "session", names=None, method=identity.source, surface=request.surface,
        mode=request.mode, project=os.fsdecode(prepared.project.root), policy=prepared.policy.sha256,
        profile=prepared.policy.profile, kernel=prepared.host.kernel, layers_on=on, layers_off=off, version=VERSION,
    )


def refused_frame(request: SessionRequest, identity: Identity) -> entry.Frame:
    """Entry 0 of a session that is refused before its policy and host are known."""
    return entry.Frame(
        kind="session", names=None, method=identity.source, surface=request.surface, mode="refused",
        project=os.fsdecode(request.directory), policy=None, profile="none", kernel=os.uname().release, layers_on=(),
        layers_off=(), version=VERSION,
    )


def layer_texts(layers: tuple[Layer, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Layers that are on and off, each with the fact that says so."""
    on = tuple(f"{layer.name}: {layer.fact}" for layer in layers if layer.on)
    return on, tuple(f"{layer.name}: {layer.fact}" for layer in layers if not layer.on)


def policy_in_force(policy: Policy, bounds: Bounds) -> entry.PolicyInForce:
    """The four parts of the policy (PP-18): tools, free commands by number, what asks, budgets."""
    tools = [f"{name}={policy.tool(name).word}" for name, _ in policy.tools] + [f"*={policy.other_tools.word}"]
    budgets = {
        "actions": bounds.actions, "minutes": bounds.minutes, "extensions": bounds.extensions,
        "modelBytes": bounds.model_bytes, "commands": bounds.commands,
    }
    free = sum(len(listed) for listed in policy.commands)
    return entry.PolicyInForce(
        policy.sha256, policy.origin, policy.project, tuple(tools), free, tuple(f"{k}={v}" for k, v in budgets.items())
    )


def change_entries(changes: ChangeSet) -> Iterator[entry.ChangeFile]:
    """One entry for each changed path, contents by digest."""
    for changed in changes.entries:
        before = changed.before.sha256 if changed.before and changed.before.sha256 else None
        after = changed.after.sha256 if changed.after and changed.after.sha256 else None
        yield entry.ChangeFile(os.fsdecode(changed.path), changed.operation.value, before, after, bool(changed.conflict))


@dataclass(slots=True)
class Account:
    """How a session ended, while it is being written down. ``error`` is what failed in the end itself."""

    session: str
    outcome: Outcome
    stop: Stop | None
    closed: Closed
    opened_us: int
    budget: Budget
    rejected: bool
    error: LemniError | None = None

    def __post_init__(self) -> None:
        self.error = self.closed.error

    def fail(self, error: LemniError | OSError) -> None:
        """Something could not be written down: the session ends as an error, the first one told."""
        if isinstance(error, OSError):
            error = StoreError("keep the session's changes", on=error.filename, errno=error.errno, code="state_unusable")
        self.error = self.error or error

    @property
    def changes(self) -> ChangeSet | None:
        return self.closed.changes

    @property
    def exit(self) -> int:
        """Rejecting outcomes and errors have their own code; else a stop by a guardrail is 3 (O-13)."""
        failed = self.error is not None or (self.stop is not None and self.stop.kind is StopKind.FAILURE)
        if self.outcome in REJECTING:
            return EXITS[self.outcome]
        if failed:
            return EXITS[Outcome.ERROR]
        return GUARD_EXIT if self.stop is not None else EXITS[self.outcome]

    @property
    def reason(self) -> str:
        """A stable code: ``done``, ``bound:actions``, ``loop:Read``, ``resource:memory``, ``stop``, ``error`` …"""
        if self.outcome in REJECTING:
            return str(self.outcome.value)
        if self.error is not None:
            return self.error.code
        if self.stop is None:
            return str(self.outcome.value)
        if self.stop.kind in (StopKind.STOP, StopKind.FAILURE):
            return self.stop.what
        return f"{self.stop.kind.value}:{_code(self.stop.what)}"

    @property
    def files(self) -> int:
        return count_files(self.changes.proposed) if self.changes else 0

    def closing(self, journal: Path, notices: tuple[str, ...]) -> Closing:
        usage = self.closed.usage
        if self.changes is not None:
            notices += self.changes.notices
        if self.error is not None:
            notices += (str(self.error),)
        return Closing(
            self.session, self.exit, self.reason, self.stop, self.changes, self.files, self.closed.added, self.closed.removed,
            self.budget.total_actions, self.budget.commands, self.opened_us, usage.cpu_us, usage.memory_peak,
            usage.processes_peak, journal, notices,
        )


def begun(session: str, request: SessionRequest, prepared: Prepared, identity: Identity) -> SessionRecord:
    """The session's line in ``lemni sessions`` while it runs, and for ever when it crashes."""
    return SessionRecord(
        id=session, kind="exec" if request.surface == "exec" else "prompt", project=prepared.project.root,
        project_id=prepared.project.id, root=os.stat(prepared.project.root).st_ino, user=identity.name, uid=identity.uid,
        started_us=time.time_ns() // 1000,
    )


def refused(record: SessionRecord) -> SessionRecord:
    """The same line where the session could not be opened after all."""
    return msgspec.structs.replace(record, ended_us=time.time_ns() // 1000, exit=_returned(record, EXITS[Outcome.ERROR]))


def ended(record: SessionRecord, closing: Closing) -> SessionRecord:
    """The same line at the end. Changes are undecided where there is anything to apply."""
    changes = closing.changes
    return msgspec.structs.replace(
        record, ended_us=time.time_ns() // 1000, exit=_returned(record, closing.exit), files=closing.files, added=closing.added,
        removed=closing.removed, collected=changes is not None,
        changes=changes.digest if changes is not None and changes.kept else "",
        decision=Decision.UNDECIDED if changes is not None and changes.proposed else Decision.NONE,
    )


def _returned(record: SessionRecord, code: int) -> int:
    """What lemni returns for a session that ends so: `lemni exec` keeps 1 for its command."""
    return OWN_FAILURE if record.kind == "exec" and code == EXITS[Outcome.ERROR] else code


def _code(what: str) -> str:
    """A tool's name may be the model's invention: only letters, digits and underscores of it go into a code."""
    return "".join(char for char in what if char.isascii() and (char.isalnum() or char == "_"))[:40]
