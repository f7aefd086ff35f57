"""A file that is only ever appended to, by one process at a time, and that is given up at the first error.

Append-only (JR-11) and exclusive by flock(2), which the kernel releases when the process dies. One write(2) a batch. After
a failed or short write, or a failed fdatasync(2), nothing is tried again: the kernel may have dropped the dirty pages and
report success next time, so that a retry would lie. Every method blocks; errors are ``JournalBroken``.
"""
from __future__ import annotations

import errno
import fcntl
import os
import stat
import time
from pathlib import Path
from typing import Self

from supervisor.durable import sync_directory
from supervisor.errors import JournalBroken

_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
_POLL = 0.002  # seconds between two tries for a lock that is held for the time of one fdatasync


class AppendFile:
    """Made by ``create`` or ``open``; ``dirty`` while something written is not known to be on disk."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self.descriptor = descriptor
        self.dirty = False
        self._broken: JournalBroken | None = None

    @classmethod
    def create(cls, path: Path) -> Self:
        """A new file, mode 0600, in a directory that is made (0700) where it is missing, its name synced to disk."""
        try:
            _make_directory(path.parent)
            descriptor = os.open(path, _FLAGS | os.O_CREAT | os.O_EXCL, 0o600)
        except OSError as error:
            raise _broken("creating the journal", path, error) from None
        file = cls(path, descriptor)
        try:
            file._lock(0)
            file._sync_name()
        except BaseException:
            file.close()
            raise
        return file

    @classmethod
    def open(cls, path: Path, wait: float = 0.0, make: bool = False) -> Self:
        """An existing file (or with ``make`` a new one); ``wait`` is how many seconds another holder is waited for."""
        while True:
            try:
                if make:
                    _make_directory(path.parent)
                descriptor = os.open(path, _FLAGS | (os.O_CREAT if make else 0), 0o600)
            except OSError as error:
                raise _broken("opening the journal", path, error) from None
            file = cls(path, descriptor)
            try:
                file._check()
                file._lock(wait)
                if file._is_at_its_name():
                    if make and file.size() == 0:  # maybe new: its name must survive a power cut too
                        file._sync_name()
                    return file
            except BaseException:
                file.close()
                raise
            file.close()  # set aside by another process while we waited for its lock: open what stands there now

    def append(self, data: bytes) -> None:
        """Write all of it by one write(2), or be broken for ever."""
        self._raise_if_broken()
        if not data:
            return
        try:
            written = os.write(self.descriptor, data)
        except OSError as error:
            self._broken = _broken("writing the journal", self.path, error)
        else:
            self.dirty = True
            if written != len(data):  # the disk is full, or a limit on the file's size was met in the middle
                self._broken = JournalBroken("writing the journal", on=str(self.path),
                                             why=f"only {written} of {len(data)} bytes were written")
        self._raise_if_broken()

    def sync(self) -> None:
        """fdatasync(2): what was appended survives a power cut, or be broken for ever."""
        self._raise_if_broken()
        if not self.dirty:
            return
        try:
            os.fdatasync(self.descriptor)
        except OSError as error:
            self._broken = _broken("syncing the journal to disk", self.path, error)
            self._raise_if_broken()
        self.dirty = False

    def size(self) -> int:
        """Bytes in the file now."""
        return os.fstat(self.descriptor).st_size

    def close(self) -> None:
        """Release the lock and the descriptor. May be called twice."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _raise_if_broken(self) -> None:
        if self._broken is not None:
            raise copy_of(self._broken)

    def _check(self) -> None:
        status = os.fstat(self.descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
            raise JournalBroken("opening the journal", on=str(self.path), why="not a regular file of this user")

    def _lock(self, wait: float) -> None:
        deadline = time.monotonic() + wait
        while True:
            try:
                fcntl.flock(self.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except OSError as error:
                if error.errno != errno.EWOULDBLOCK:
                    raise _broken("locking the journal", self.path, error) from None
                if time.monotonic() >= deadline:
                    raise JournalBroken("locking the journal", on=str(self.path), code="journal_locked",
                                        why="another process is writing it") from None
            time.sleep(_POLL)  # in the journal's own thread; flock has no time-out of its own

    def _is_at_its_name(self) -> bool:
        ours = os.fstat(self.descriptor)
        try:
            named = os.stat(self.path, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return (ours.st_dev, ours.st_ino) == (named.st_dev, named.st_ino)

    def _sync_name(self) -> None:
        try:
            sync_directory(self.path.parent)
        except OSError as error:
            raise _broken("syncing the journal's directory", self.path.parent, error) from None


def _make_directory(path: Path) -> None:
    """The directory and its missing parents, each 0700 and each name on disk. Raises OSError."""
    if path.is_dir():
        return
    _make_directory(path.parent)
    path.mkdir(mode=0o700, exist_ok=True)
    sync_directory(path.parent)


def copy_of(error: JournalBroken) -> JournalBroken:
    """The same error once more: an exception that is raised twice would collect tracebacks."""
    return JournalBroken(error.doing, on=error.on, errno=error.errno, why=error.why, remedy=error.remedy, code=error.code)


def _broken(doing: str, path: Path, error: OSError) -> JournalBroken:
    remedy = {
        errno.ENOSPC: "free some space on this file system",
        errno.EDQUOT: "free some of your quota on this file system",
        errno.EROFS: "set XDG_STATE_HOME to a directory on a writable file system",
        errno.EACCES: "make the directory writable for you, or set XDG_STATE_HOME",
    }.get(error.errno or 0)
    return JournalBroken(doing, on=str(path), errno=error.errno, remedy=remedy)
