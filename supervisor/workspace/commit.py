"""The steps by which changes enter the developer's tree, each with its undoing. Used by apply.py alone.

Theory of operation. New contents are written to a staging directory in the project's root (same file system, mode 0700). Then
come small steps: what is replaced or deleted is *moved* into the staging directory, what is new is moved out of it; directories
are made, removed, and given their permissions last. The list of steps is on disk before the first one (unfinished.py): a
failure undoes from memory, a crash is undone from the record at the next start. Once all is in, or all is undone, the record
says so by its name, the staging directory is removed, and the record goes last: a kill at any moment, that of a recovery
included, leaves a record of what is still to do, and each step of the undoing can be taken twice.

Parents are opened beneath the root with no link followed (openat2), and names are moved, not opened: a link put in the way is
refused, never followed. Moving also leaves other hard links of a file alone (B17).
"""
from __future__ import annotations

import contextlib
import enum
import errno
import os
import shutil
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from native import files
from supervisor.errors import WorkspaceError
from supervisor.workspace import unfinished
from supervisor.workspace.blobs import Blobs, digest, open_regular
from supervisor.workspace.changes import Entry, Kind, State

STAGING: Final = b".lemni-apply-"
_NOT_COPIED: Final = ("security.capability", "security.ima", "security.evm")  # attributes bound to the old bytes
_KINDS: Final = {stat.S_IFREG: Kind.FILE, stat.S_IFLNK: Kind.SYMLINK, stat.S_IFDIR: Kind.DIRECTORY}


class Changed(Exception):
    """The tree is no longer what the changes were made against. Becomes a Conflict value in apply.py."""

    def __init__(self, path: bytes, why: str) -> None:
        super().__init__(why)
        self.path, self.why = path, why


class Word(enum.Enum):
    """What a step does. ``number`` of a step is the entry's for the moves, the old permission bits for the others."""

    TAKE = "take"  # move what stands there into the staging directory
    PUT = "put"  # move what was staged to where it belongs
    MKDIR = "mkdir"
    RMDIR = "rmdir"
    CHMOD = "chmod"  # of what stays
    CLOSE = "close"  # give a directory that MKDIR made its permissions


@dataclass(frozen=True, slots=True)
class Step:
    """One step: enough to take it, and to undo it."""

    word: Word
    path: bytes
    number: int
    mode: int = 0  # CHMOD, CLOSE: the new permission bits
    before: State | None = None  # TAKE: what must have stood there; PUT: what it replaces


def plan(wanted: list[Entry], shared: frozenset[bytes] = frozenset()) -> list[Step]:
    """The steps in their order (pure): open closed directories, delete from the leaves up, write from the root down, close.

    ``shared`` are files that have other names too: they are replaced even where only their permission bits change.
    """
    numbered = list(enumerate(wanted))
    opening: list[Step] = []
    leaving: list[Step] = []
    coming: list[Step] = []
    closing: list[Step] = []
    for number, entry in sorted(numbered, key=lambda pair: pair[1].path):
        before, after = entry.before, entry.after
        if before is not None and after is not None and mode_only(entry) and entry.path not in shared:
            step = Step(Word.CHMOD, entry.path, before.mode, after.mode)
            if before.kind is Kind.FILE:
                coming.append(step)
            elif after.mode & 0o300 == 0o300:
                opening.append(step)
            else:
                closing.append(step)
            continue
        going = leaving if after is None else coming
        if before is not None and before.kind is Kind.DIRECTORY:
            going.append(Step(Word.RMDIR, entry.path, before.mode))
        elif before is not None:
            going.append(Step(Word.TAKE, entry.path, number, before=before))
        if after is not None and after.kind is Kind.DIRECTORY:
            coming.append(Step(Word.MKDIR, entry.path, 0))
            closing.append(Step(Word.CLOSE, entry.path, 0o700, after.mode))
        elif after is not None:
            coming.append(Step(Word.PUT, entry.path, number, before=before))
    return [*opening, *reversed(leaving), *coming, *reversed(closing)]


def mode_only(entry: Entry) -> bool:
    """Whether the thing itself stays and only its permission bits change."""
    before, after = entry.before, entry.after
    if before is None or after is None or before.kind is not after.kind or before.kind is Kind.SYMLINK:
        return False
    return before.kind is Kind.DIRECTORY or before.sha256 == after.sha256 != ""


def commit(root: int, root_path: bytes, wanted: list[Entry], blobs: Blobs, journal: Path) -> None:
    """Carry out everything, or nothing. ``Changed`` and OSError leave the tree as it was.

    WorkspaceError only when the undoing failed too: then the record and the staging directory stay for ``undo_crash``.
    """
    name = STAGING + os.urandom(8).hex().encode()
    shared = _of_several_names(root, wanted)
    steps = plan(wanted, shared)
    listed = [(step.word.value, step.path, step.number) for step in steps]
    record = unfinished.begin(journal, root_path, name, [])
    try:
        os.mkdir(name, 0o700, dir_fd=root)
        staging = files.open_directory(root, name)
        try:
            for number, entry in enumerate(wanted):
                _stage(root, staging, number, entry, blobs, shared)
            unfinished.begin(journal, root_path, name, listed)
            try:
                for step in steps:
                    _take(root, staging, step)
                os.sync()  # everything is down before the record says so: one call for any number of directories
                record = unfinished.settle(record, name)
            except BaseException:
                undo(root, staging, listed)
                os.sync()
                raise
        finally:
            os.close(staging)
    except WorkspaceError:
        raise
    except BaseException:
        with contextlib.suppress(OSError):  # else the record stays as it is, and all is undone once more
            unfinished.discard(root, name, unfinished.settle(record, name))
        raise
    unfinished.discard(root, name, record)


def undo_crash(root: int, root_path: bytes, record: Path) -> bool:
    """Bring to its end what the record tells of. True when it is of this root. May itself be killed, and begun again."""
    told = unfinished.read(record)
    if told is None or told.root != root_path:
        return False
    if not unfinished.is_settled(record):
        try:
            staging = files.open_directory(root, told.staging)
        except FileNotFoundError:
            staging = -1  # killed before it was made
        if staging >= 0:
            try:
                undo(root, staging, told.steps)
                os.sync()
            finally:
                os.close(staging)
        record = unfinished.settle(record, told.staging)
    unfinished.discard(root, told.staging, record)
    return True


def _of_several_names(root: int, wanted: list[Entry]) -> frozenset[bytes]:
    """The files whose permission bits alone change and that have another name, which is to stay as it is (B17)."""
    found = set()
    for entry in wanted:
        if mode_only(entry) and entry.before is not None and entry.before.kind is Kind.FILE:
            with contextlib.suppress(OSError), parent(root, entry.path) as (above, name):  # its step says what is wrong
                fd = open_regular(above, name)
                if os.fstat(fd).st_nlink > 1:
                    found.add(entry.path)
                os.close(fd)
    return frozenset(found)


def _stage(root: int, staging: int, number: int, entry: Entry, blobs: Blobs, shared: frozenset[bytes]) -> None:
    """Write a new file or link, complete with mode and owner, where nobody uses it yet."""
    state = entry.after
    if state is None or state.kind is Kind.DIRECTORY or (mode_only(entry) and entry.path not in shared):
        return
    name = b"n%d" % number
    if state.kind is Kind.SYMLINK:
        os.symlink(state.target, name, dir_fd=staging)
        return
    fd = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=staging)
    try:
        if entry.path in shared:
            _copy_own(root, entry.path, fd)
        else:
            blobs.copy(state.sha256, fd)
        if entry.before is not None and entry.before.kind is Kind.FILE:
            _dress_like(root, entry.path, fd)
        os.fchmod(fd, state.mode & 0o777)
    finally:
        os.close(fd)


def _copy_own(root: int, path: bytes, fd: int) -> None:
    """The bytes that stand there; that they are what was compared is looked at when the file is taken."""
    with (
        parent(root, path) as (above, name), os.fdopen(open_regular(above, name), "rb") as own,
        os.fdopen(fd, "wb", closefd=False) as new,
    ):
        shutil.copyfileobj(own, new, 1 << 20)


def _dress_like(root: int, path: bytes, fd: int) -> None:
    """Give the new file the owner and extended attributes of the one that it replaces, as far as that is allowed."""
    with parent(root, path) as (above, name):
        old = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=above)
    try:
        status = os.fstat(old)
        if os.geteuid() == 0:
            os.fchown(fd, status.st_uid, status.st_gid)
        with contextlib.suppress(OSError):
            for attribute in os.listxattr(f"/proc/self/fd/{old}"):
                if attribute not in _NOT_COPIED:
                    with contextlib.suppress(OSError):
                        os.setxattr(fd, attribute, os.getxattr(f"/proc/self/fd/{old}", attribute))
    finally:
        os.close(old)


def _take(root: int, staging: int, step: Step) -> None:
    try:
        with parent(root, step.path) as (above, name):
            match step.word:
                case Word.TAKE:
                    saved = b"o%d" % step.number
                    files.renameat2(above, name, staging, saved, files.NOREPLACE)
                    if why := differs(staging, saved, step.before, moved=True):
                        raise Changed(step.path, why)
                case Word.PUT:
                    if step.before is None or step.before.kind is not Kind.FILE:  # else it has that file's owner
                        _own_as(above, staging, b"n%d" % step.number)
                    files.renameat2(staging, b"n%d" % step.number, above, name, files.NOREPLACE)
                case Word.MKDIR:
                    os.mkdir(name, 0o700, dir_fd=above)
                    _own_as(above, above, name)
                case Word.RMDIR:
                    files.unlinkat(above, name, is_directory=True)
                case Word.CHMOD | Word.CLOSE:
                    _chmod(above, name, step.mode)
    except OSError as error:
        reason = {
            errno.EEXIST: "something stands there now",
            errno.ENOTEMPTY: "something new is in it",
            errno.ENOENT: "it is gone, or the directory above it",
            errno.ELOOP: "a link stands in its way",
            errno.ENOTDIR: "a directory above it is none now",
        }.get(error.errno or 0)
        if reason is None:
            error.filename = step.path
            raise
        raise Changed(step.path, reason) from error


def _own_as(above: int, directory: int, name: bytes) -> None:
    """Root only: what is new belongs to who owns the directory that it enters, not to root (VS-16)."""
    if os.geteuid() == 0:
        status = os.fstat(above)
        os.chown(name, status.st_uid, status.st_gid, dir_fd=directory, follow_symlinks=False)


def _chmod(above: int, name: bytes, mode: int) -> None:
    """Set permission bits of the thing itself, through a descriptor that no link is behind."""
    fd = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=above)
    try:
        if stat.S_ISLNK(os.fstat(fd).st_mode):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        os.chmod(f"/proc/self/fd/{fd}", mode & 0o777)
    finally:
        os.close(fd)


def undo(root: int, staging: int, steps: Sequence[tuple[str, bytes, int]]) -> None:
    """Undo from the last step to the first, whether each was taken or not, or undone already.

    WorkspaceError when one cannot be undone: nothing is removed then.
    """
    opened = {path for word, path, _ in steps if word == Word.CHMOD.value}
    for value, path, number in reversed(steps):
        word = Word(value)
        try:
            if word is Word.TAKE and not _exists(staging, b"o%d" % number):
                continue  # not taken, or back where it was
            if word is Word.PUT and _exists(staging, b"n%d" % number):
                continue  # not put, or back in the staging directory
            with parent(root, path) as (above, name):
                _undo_one(word, above, name, staging, number)
        except OSError as error:
            if word is not Word.TAKE and error.errno in (errno.ENOENT, errno.ELOOP, errno.ENOTDIR):
                continue  # the step was not taken: its directory was not made yet, or is still what it was before
            if word not in (Word.TAKE, Word.PUT):
                if error.errno in (errno.EXDEV, errno.EROFS):
                    continue  # nor could it have been: it lies on another mount, or on one that nobody can write
                if error.errno == errno.EACCES and any(above in opened for above in _above(path)):
                    continue  # below a directory that is opened first and closed last: not open yet, or closed again
            raise WorkspaceError(
                "undoing a half-applied change", on=os.fsdecode(path), errno=error.errno, code="apply_failed",
                remedy="what was replaced is kept in the project's directory .lemni-apply-*",
            ) from error


def _above(path: bytes) -> Iterator[bytes]:
    """The directories that a path lies in, the nearest first."""
    while path := path.rpartition(b"/")[0]:
        yield path


def _undo_one(word: Word, above: int, name: bytes, staging: int, number: int) -> None:
    match word:
        case Word.TAKE:
            files.renameat2(staging, b"o%d" % number, above, name, files.NOREPLACE)
        case Word.PUT:
            files.renameat2(above, name, staging, b"n%d" % number, files.NOREPLACE)
        case Word.MKDIR:
            with contextlib.suppress(NotADirectoryError):  # not made yet: what was there before it stands there
                files.unlinkat(above, name, is_directory=True)
        case Word.RMDIR:
            if not _exists(above, name):
                _make_again(above, name, staging)
            elif _mode(above, name) != stat.S_IFDIR | 0o700:
                return  # not removed, or complete
            _chmod(above, name, number)
        case Word.CHMOD:
            if stat.S_ISREG(_mode(above, name)) or stat.S_ISDIR(_mode(above, name)):
                _chmod(above, name, number)
        case Word.CLOSE:
            if stat.S_ISDIR(_mode(above, name)):  # else what the new directory replaces is back
                _chmod(above, name, number)


def _make_again(above: int, name: bytes, staging: int) -> None:
    """A removed directory, mode 0700, with its owner from the moment on that it is seen."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(b"r", 0o700, dir_fd=staging)
    _own_as(above, staging, b"r")
    try:
        files.renameat2(staging, b"r", above, name, files.NOREPLACE)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        os.mkdir(name, 0o700, dir_fd=above)
        _own_as(above, above, name)


def _mode(directory: int, name: bytes) -> int:
    return os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode


def _exists(directory: int, name: bytes) -> bool:
    try:
        os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


@contextlib.contextmanager
def parent(root: int, path: bytes) -> Iterator[tuple[int, bytes]]:
    """The directory that holds the path, opened beneath the root with no link followed, and the last name."""
    above, _, name = path.rpartition(b"/")
    fd = files.open_directory(root, above)
    try:
        yield fd, name
    finally:
        os.close(fd)


def differs(above: int, name: bytes, before: State | None, *, moved: bool = False) -> str:
    """Why what stands there is not ``before``, or "". ``moved``: by us, which changed its change time."""
    try:
        status = os.stat(name, dir_fd=above, follow_symlinks=False)
    except FileNotFoundError:
        return "" if before is None else "it is gone"
    if before is None:
        return "something stands there now"
    kind = _KINDS.get(stat.S_IFMT(status.st_mode))
    if kind is not before.kind:
        return "another kind of file stands there now"
    if kind is Kind.SYMLINK:
        return "" if os.readlink(name, dir_fd=above) == before.target else "it is another link now"
    if stat.S_IMODE(status.st_mode) & 0o777 != before.mode:
        return "its permissions changed"
    if kind is Kind.DIRECTORY:
        return ""
    if not before.sha256:  # too hollow or unreadable when it was compared
        return "" if moved or status.st_ctime_ns == before.ctime_ns else "it changed"
    if status.st_size != before.size:
        return "its content changed"
    fd = open_regular(above, name)
    try:
        return "" if digest(fd).sha256 == before.sha256 else "its content changed"
    finally:
        os.close(fd)
