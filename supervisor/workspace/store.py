"""What is kept of each session on disk: its record, its changes, and the bytes behind them.

``STATE/sessions/ID/{session.json, changes.json, blobs/}`` and ``STATE/applying/PROJECT/ID.json``, directories 0700, files
0600. A file is written beside its place, synced and renamed: a reader sees the old one or the new one. The journal, not this,
is the account of what happened; this is what ``lemni sessions``, ``diff`` and ``apply`` work from.
"""
from __future__ import annotations

import contextlib
import enum
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from supervisor.errors import StoreBroken, StoreError
from supervisor.workspace.blobs import Blobs, make_private
from supervisor.workspace.changes import ChangeSet
from supervisor.workspace.session_id import is_prefix, is_session_id, make_session_id, normalise

_RECORD: Final = "session.json"
_CHANGES: Final = "changes.json"


class Decision(enum.Enum):
    """What became of a session's changes."""

    NONE = "none"  # there are none, or the session still runs
    UNDECIDED = "undecided"
    REFUSED = "refused"
    ACCEPTED = "accepted"  # a human said yes; the application failed or met a conflict
    APPLIED = "applied"

    @property
    def open(self) -> bool:
        """Whether the changes can still be taken: nobody refused them, and nothing of them is in the repository."""
        return self in (Decision.UNDECIDED, Decision.ACCEPTED)


class SessionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One session. Times in microseconds since 1970, 0 for "not yet" (and, once it was killed, for ever); ``changes`` is the
    change set's digest, or "" where nothing changed or nothing was collected. ``exit`` is what lemni itself returned.
    """

    id: str
    kind: str  # "prompt", "exec", "interactive"
    project: bytes  # the root's path; base 64 on disk, as it may be any bytes
    project_id: str
    root: int = 0  # the inode number of the root's directory; 0: not known
    user: str
    uid: int
    started_us: int
    ended_us: int = 0
    exit: int | None = None
    collected: bool = False  # what it changed was compared and kept; also where that was nothing
    changes: str = ""
    files: int = 0
    added: int = 0
    removed: int = 0
    decision: Decision = Decision.NONE
    decided_us: int = 0


def new_session_id() -> str:
    """A fresh id, from the clock and the system's random generator."""
    return make_session_id(time.time_ns() // 1_000_000, os.urandom(10))


class Store:
    """The sessions beneath a state directory (``$XDG_STATE_HOME/lemniscate``)."""

    def __init__(self, state: Path) -> None:
        self.state = state
        self.sessions = state / "sessions"

    def save(self, record: SessionRecord) -> None:
        """Write or replace a session's record. StoreBroken when it cannot be written."""
        directory = self._directory(record.id)
        with _keeping(directory):
            make_private(directory)
            _write(directory / _RECORD, msgspec.json.format(msgspec.json.encode(record), indent=1))

    def load(self, session: str) -> SessionRecord:
        """Read one record. StoreError ``not_found`` or ``record_damaged``."""
        path = self._directory(session) / _RECORD
        try:
            return msgspec.json.decode(path.read_bytes(), type=SessionRecord)
        except FileNotFoundError as error:
            raise StoreError("looking for a session", on=session, why="there is none of that id") from error
        except (OSError, msgspec.DecodeError) as error:
            raise StoreError("reading a session's record", on=str(path), why=str(error), code="record_damaged") from error

    def records(self) -> list[SessionRecord]:
        """All readable records, newest first; damaged ones are left out here, and told by ``load``."""
        found: list[SessionRecord] = []
        for session in reversed(self._ids()):
            with contextlib.suppress(StoreError):
                found.append(self.load(session))
        return found

    def find(self, prefix: str | None, project_id: str) -> SessionRecord:
        """The session of a unique prefix; without one, this project's latest session whose changes are still open.

        StoreError: ``not_found``, or ``ambiguous`` with the candidates.
        """
        if prefix is None:
            for record in self.records():
                if record.project_id == project_id and record.decision.open:
                    return record
            raise StoreError("looking for a session", why="this project has none with undecided changes")
        wanted = normalise(prefix)
        matching = [session for session in self._ids() if session.startswith(wanted)] if is_prefix(wanted) else []
        if not matching:
            raise StoreError("looking for a session", on=prefix, why="there is none of that id")
        if len(matching) > 1:
            shown = ", ".join(matching[-5:])
            raise StoreError(
                "looking for a session", on=prefix, why=f"{len(matching)} begin so: {shown}", code="ambiguous"
            )
        return self.load(matching[0])

    def blobs(self, session: str) -> Blobs:
        """Where the bytes behind a session's changes are kept."""
        return Blobs(self._directory(session) / "blobs")

    def save_changes(self, session: str, changes: ChangeSet) -> None:
        """Keep a change set whose blobs are complete. The record names it only afterwards (the caller's ``save``).

        StoreBroken when it cannot be written.
        """
        directory = self._directory(session)
        with _keeping(directory):
            make_private(directory)
            if changes.entries:
                self.blobs(session).sync()
            _write(directory / _CHANGES, changes.encode())

    def load_changes(self, record: SessionRecord) -> ChangeSet:
        """The change set that a record names, empty where the session changed nothing.

        StoreError ``changes_not_collected`` when there never was one, ``changes_damaged`` when it is not exactly that one.
        """
        if not record.collected:
            raise _not_collected(record)
        if not record.changes:
            return ChangeSet(())
        path = self._directory(record.id) / _CHANGES
        try:
            changes = ChangeSet.decode(path.read_bytes())
        except OSError as error:
            raise StoreError("reading stored changes", on=str(path), errno=error.errno, code="changes_damaged") from error
        if changes.digest != record.changes:
            raise StoreError(
                "reading stored changes", on=str(path), why="they are not those of the record", code="changes_damaged"
            )
        return changes

    def note_exit(self, session: str, code: int) -> None:
        """Note what lemni returned, where that is known only after the session has ended. StoreError."""
        self.save(msgspec.structs.replace(self.load(session), exit=code))

    def decide(self, session: str, decision: Decision) -> SessionRecord:
        """Note what was decided about a session's changes."""
        record = msgspec.structs.replace(
            self.load(session), decision=decision, decided_us=time.time_ns() // 1000
        )
        self.save(record)
        return record

    def applying(self, project_id: str) -> Path:
        """Where the records of a project's unfinished applications lie (unfinished.py)."""
        return self.state / "applying" / project_id

    def apply_journal(self, record: SessionRecord) -> Path:
        """Where ``apply_changes`` keeps what it needs to undo a crash."""
        return self.applying(record.project_id) / f"{record.id}.json"

    def remove(self, session: str) -> None:
        """Forget a session's record, changes and blobs (not its journal)."""
        shutil.rmtree(self._directory(session), ignore_errors=True)  # our own files, two levels deep

    def _directory(self, session: str) -> Path:
        if not is_session_id(session):
            raise StoreError("looking for a session", on=session, why="that is no session id")
        return self.sessions / session

    def _ids(self) -> list[str]:
        try:
            return sorted(name for name in os.listdir(self.sessions) if is_session_id(name))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise StoreError("reading the sessions", on=str(self.sessions), errno=error.errno) from error


def _not_collected(record: SessionRecord) -> StoreError:
    if record.ended_us:
        why = f"it ended (exit {record.exit}) without its changes being collected: it was refused, interrupted or failed"
    else:
        why = "it runs still, or it was killed before its changes were collected"
    return StoreError(
        "reading stored changes", on=record.id, why=why, code="changes_not_collected",
        remedy="run it again; what it did is in its journal, and your repository was not changed",
    )


@contextlib.contextmanager
def _keeping(directory: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreBroken("keeping a session", on=str(directory), errno=error.errno) from error


def _write(path: Path, content: bytes) -> None:
    partial = path.with_name(f".{path.name}-{os.getpid()}-{os.urandom(4).hex()}")
    fd = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with open(fd, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(fd)
        partial.rename(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
