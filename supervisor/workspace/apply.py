"""Write a change set into the developer's tree: all of it or nothing, and never through a link.

Everything is checked first: each path must still be what the change set was compared with, by content, kind and permissions.
What is refused is left out and named; a conflict stops everything, and is a value. The steps themselves are in commit.py.
"""
from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from pathlib import Path

from supervisor.errors import Fault, WorkspaceError
from supervisor.workspace import unfinished
from supervisor.workspace.blobs import Blobs
from supervisor.workspace.changes import ChangeSet, Entry, Kind
from supervisor.workspace.commit import Changed, commit, differs, parent, undo_crash
from supervisor.workspace.gitnames import in_git_directory

UNDONE = "a `lemni apply` that was killed left work behind in this repository: it was cleaned up"
_ANOTHER = "another directory stands here than the session worked on: lemni diff --patch | git apply, if it is meant"
_ACROSS = "it lies on another mount, and moving there cannot be all or nothing: lemni diff --patch | git apply"


@dataclass(frozen=True, slots=True)
class PathReason:
    """A path that was not written, and why, in words."""

    path: bytes
    why: str


@dataclass(frozen=True, slots=True)
class Applied:
    """Everything that was proposed is in the developer's tree. ``files`` counts the paths written or deleted."""

    files: int
    left_out: tuple[PathReason, ...]


@dataclass(frozen=True, slots=True)
class Conflict:
    """Nothing was written: these paths are no longer what the changes were made against."""

    paths: tuple[PathReason, ...]


def apply_changes(
    root: bytes, changes: ChangeSet, blobs: Blobs, journal: Path, *, debris: bool = False, inode: int = 0
) -> Applied | Conflict:
    """Apply what is proposed (and with ``debris`` what builds left behind) beneath ``root``.

    ``journal`` is a path of lemni's own state, unique to this application. ``inode`` is the root's as the session found it (0:
    not known): another directory at its path is a conflict of the whole. Returns Conflict with nothing written when anything
    changed underneath. WorkspaceError ``apply_failed`` when a step failed; everything before it was undone. StoreError when a
    blob is missing or damaged, before the first step.
    """
    wanted, left_out = _choose(changes, debris)
    try:
        with unfinished.held(journal.parent):
            _recover(root, journal.parent)
            return _apply(root, wanted, left_out, blobs, journal, inode)
    except Changed as changed:
        return Conflict((PathReason(changed.path, changed.why),))
    except unfinished.Busy:
        raise WorkspaceError(
            "applying the changes", on=os.fsdecode(root), why="another `lemni apply` is at work in this repository",
            code="apply_failed", remedy="wait for its end, and ask again", fault=Fault.USER,
        ) from None
    except OSError as error:
        raise WorkspaceError(
            "applying the changes", on=os.fsdecode(error.filename or root), errno=error.errno,
            why="nothing was changed", code="apply_failed", remedy=_ACROSS if error.errno == errno.EXDEV else None,
        ) from error


def _apply(
    root: bytes, wanted: list[Entry], left_out: tuple[PathReason, ...], blobs: Blobs, journal: Path, inode: int
) -> Applied | Conflict:
    directory = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if inode and os.fstat(directory).st_ino != inode:
            return Conflict((PathReason(b".", _ANOTHER),))
        conflicts = tuple(
            PathReason(entry.path, why) for entry in wanted if (why := entry.conflict or _check(directory, entry))
        )
        if conflicts:
            return Conflict(conflicts)
        if wanted:
            commit(directory, root, wanted, blobs, journal)
        return Applied(len(wanted), left_out)
    finally:
        os.close(directory)


def recover(root: bytes, records: Path) -> bool:
    """Undo what a crash in the middle of ``apply_changes`` left, for all records of this root in their directory.

    True when there was something. It may be killed and begun again at any moment; where an application is at work, it is
    left alone. WorkspaceError ``apply_failed`` when a step cannot be undone; record and staging directory stay then.
    """
    if not unfinished.any_left(records):
        return False
    try:
        with unfinished.held(records):
            return _recover(root, records)
    except unfinished.Busy:
        return False
    except OSError as error:
        raise WorkspaceError(
            "undoing a half-applied change", on=os.fsdecode(error.filename or root), errno=error.errno, code="apply_failed"
        ) from error


def _recover(root: bytes, records: Path) -> bool:
    pending = unfinished.pending(records)
    if not pending:
        return False
    directory = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return any([undo_crash(directory, root, record) for record in pending])  # a list: all of them
    finally:
        os.close(directory)


def _choose(changes: ChangeSet, debris: bool) -> tuple[list[Entry], tuple[PathReason, ...]]:
    """What is written, and what is left out with its reason. Nothing enters a directory that is itself left out."""
    left_out = [PathReason(entry.path, entry.refused) for entry in changes.refused]
    missing: set[bytes] = set()
    wanted: list[Entry] = []
    for entry in changes.entries:  # sorted: a directory comes before what is in it
        if in_git_directory(entry.path) or any(part in (b"", b".", b"..") for part in entry.path.split(b"/")):
            raise WorkspaceError(
                "applying the changes", on=os.fsdecode(entry.path), why="no change set of ours holds such a path"
            )
        taken = not entry.refused and (debris or not entry.debris)
        if taken and os.path.dirname(entry.path) in missing:
            left_out.append(PathReason(entry.path, "its directory is not applied"))
            taken = False
        if taken:
            wanted.append(entry)
        elif entry.after is not None and entry.after.kind is Kind.DIRECTORY and entry.before is None:
            missing.add(entry.path)
    return wanted, tuple(left_out)


def _check(directory: int, entry: Entry) -> str:
    """Why the path is not what the change was made against, or ""."""
    try:
        with parent(directory, entry.path) as (above, name):
            return differs(above, name, entry.before)
    except FileNotFoundError:
        # Its directory is missing: right for something new in a directory that is new too
        return "" if entry.before is None else "its directory is gone"
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR) and entry.before is None:
            # The change set may turn a file or a link above it into a directory; if not, the commit finds it in the way
            return ""
        return "a link or a file stands in its way" if error.errno in (errno.ELOOP, errno.ENOTDIR) else str(error.strerror)
