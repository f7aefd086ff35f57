"""A working copy as plain copy: where no overlay is to be had, or mounts beneath the project would not show in one.

Nothing is shared with the original but data blocks that the file system copies on write: no hard link (B17). Holes stay holes.
What was copied is remembered by inode and change time, which a session cannot set; at the end only what differs is read.
"""
from __future__ import annotations

import contextlib
import errno
import os
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from native import files
from supervisor.errors import WorkspaceError
from supervisor.workspace.changes import ChangeSet
from supervisor.workspace.collect import Collector
from supervisor.workspace.gitwork import Layers
from supervisor.workspace.overlay import Seeds
from supervisor.workspace.trees import inside

_CANNOT_CLONE = (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM)

_CLOCK_REALTIME_COARSE = 5  # <linux/time.h>: the clock that stamps files, which the time module does not name


_NOTICES = 20  # paths that were left out, told one by one


@dataclass(frozen=True, slots=True)
class CopyLayers:
    """A filled directory to bind: host path, and the path inside."""

    path: bytes
    target: bytes


@dataclass(slots=True)
class Baseline:
    """What was copied: relative path → (inode, change time in ns) of the copy; None for a directory."""

    made: dict[bytes, tuple[int, int] | None] = field(default_factory=dict)
    notices: list[str] = field(default_factory=list)
    bytes: int = 0


def make_copy(source: bytes, target: bytes, ids: tuple[int, int], seeds: Seeds, *, limit: int, inodes: int) -> Baseline:
    """Copy a tree, without what the seeds hide. ``limit`` in bytes of data, ``inodes`` in files and directories.

    WorkspaceError ``too_large_to_copy`` beyond them. What cannot be read, and FIFOs, sockets and devices, are left out with a
    notice. Mounts beneath are copied through.
    """
    done = Baseline()
    owner = ids if os.geteuid() == 0 else None
    os.mkdir(target, 0o700)
    _Copier(source, target, owner, seeds, done, limit, inodes).run()
    if (more := len(done.notices) - _NOTICES) > 0:
        done.notices[_NOTICES:] = [f"… and {more} more are not in the working copy"]
    _outwait_clock(done)
    return done


class _Copier:
    def __init__(
        self, source: bytes, target: bytes, owner: tuple[int, int] | None, seeds: Seeds, done: Baseline, limit: int, inodes: int
    ) -> None:
        self.owner, self.done, self.limit, self.inodes = owner, done, limit, inodes
        self.hidden = frozenset(seeds.hidden)
        self.contents = dict(seeds.contents)
        self.source = os.open(source, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self.target = os.open(target, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def run(self) -> None:
        modes: list[tuple[bytes, int]] = []
        stack = [b""]
        try:
            while stack:
                directory = stack.pop()
                try:
                    here = files.open_directory(self.source, directory)
                except OSError as error:
                    self._left_out(directory, os.strerror(error.errno or 0))
                    continue
                there = files.open_directory(self.target, directory)
                try:
                    modes.append((directory, stat.S_IMODE(os.fstat(here).st_mode)))
                    for _, name in files.entries(here):
                        path = directory + b"/" + name if directory else name
                        if path in self.hidden:
                            continue
                        if len(self.done.made) > self.inodes:
                            raise _too_large(f"over {self.inodes} files")
                        with self._reported(path):
                            if self._one(path, here, there, name):
                                stack.append(path)
                finally:
                    os.close(here)
                    os.close(there)
            for directory, mode in reversed(modes):  # last: a directory without write permission takes nothing more
                fd = files.open_directory(self.target, directory)
                os.fchmod(fd, mode)
                if self.owner:
                    os.fchown(fd, *self.owner)
                os.close(fd)
        finally:
            os.close(self.source)
            os.close(self.target)

    def _one(self, path: bytes, here: int, there: int, name: bytes) -> bool:
        """Copy one entry; True for a directory to go into."""
        status = os.stat(name, dir_fd=here, follow_symlinks=False)
        if stat.S_ISDIR(status.st_mode):
            os.mkdir(name, 0o700, dir_fd=there)
            self.done.made[path] = None
            return True
        if stat.S_ISLNK(status.st_mode) and path not in self.contents:
            os.symlink(os.readlink(name, dir_fd=here), name, dir_fd=there)
            if self.owner:
                os.chown(name, *self.owner, dir_fd=there, follow_symlinks=False)
        elif stat.S_ISREG(status.st_mode) or path in self.contents:
            self._file(path, here, there, name, status)
        else:
            self._left_out(path, "it is a FIFO, a socket or a device")
            return False
        made = os.stat(name, dir_fd=there, follow_symlinks=False)
        self.done.made[path] = (made.st_ino, made.st_ctime_ns)
        return False

    def _file(self, path: bytes, here: int, there: int, name: bytes, status: os.stat_result) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        content = self.contents.get(path)
        source = None if content is not None else os.open(
            name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=here
        )
        target = os.open(name, flags, 0o600, dir_fd=there)
        try:
            if source is None:
                os.write(target, content or b"")
            elif not files.clone(target, source):
                self.done.bytes += _copy_data(source, target, status.st_size, self.limit - self.done.bytes)
            if self.owner:
                os.fchown(target, *self.owner)
            os.fchmod(target, stat.S_IMODE(status.st_mode) & 0o777 if source is not None else 0o644)
            os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns))
        finally:
            os.close(target)
            if source is not None:
                os.close(source)

    @contextlib.contextmanager
    def _reported(self, path: bytes) -> Iterator[None]:
        """What cannot be read is left out; a full disk ends the copy."""
        try:
            yield
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise WorkspaceError("copying the project", on=os.fsdecode(path), errno=error.errno) from error
            self._left_out(path, os.strerror(error.errno or 0))

    def _left_out(self, path: bytes, why: str) -> None:
        self.done.notices.append(f"{os.fsdecode(path) or '.'}: not in the working copy: {why}")


def _too_large(why: str) -> WorkspaceError:
    return WorkspaceError("copying the project", why=why, code="too_large_to_copy")


def _copy_data(source: int, target: int, size: int, left: int) -> int:
    """Copy a file's data, holes apart. Returns the bytes of data; WorkspaceError when they are more than ``left``."""
    copied = at = 0
    os.ftruncate(target, size)
    while at < size:
        try:
            start = os.lseek(source, at, os.SEEK_DATA)
            end = min(os.lseek(source, start, os.SEEK_HOLE), size)
        except OSError as error:
            if error.errno == errno.ENXIO:
                break  # only a hole is left
            start, end = at, size
        at = start
        while at < end:
            if copied > left:
                raise _too_large("it holds more data than the sandbox's disk limit")
            got = _copy_piece(source, target, at, min(end - at, 64 << 20))
            if got == 0:
                return copied  # it shrank meanwhile
            at += got
            copied += got
    return copied


def _copy_piece(source: int, target: int, at: int, length: int) -> int:
    try:
        return os.copy_file_range(source, target, length, at, at)
    except OSError as error:
        if error.errno not in _CANNOT_CLONE:
            raise
        return os.pwrite(target, os.pread(source, min(length, 1 << 20), at), at)


def _outwait_clock(done: Baseline) -> None:
    """Wait for the next tick of the clock that stamps files (at most 10 ms), so that no later change has an equal time."""
    newest = max((made[1] for made in done.made.values() if made is not None), default=0)
    while time.clock_gettime_ns(_CLOCK_REALTIME_COARSE) <= newest <= time.time_ns():
        time.sleep(0.001)


def collect_copy(copy: int, baseline: Baseline, collector: Collector) -> ChangeSet:
    """Compare a plain copy with what was put into it; what differs is compared with the developer's tree."""
    stack = [b""]
    seen: set[bytes] = set()
    layers = Layers(copy, collector.lower, collector.rules.seeds, baseline.made)
    while stack:
        directory = stack.pop()
        with inside(copy, directory) as here, collector.below(directory) as lower:
            for letter, name in files.entries(here):
                path = directory + b"/" + name if directory else name
                seen.add(path)
                if collector.skips(path, name):
                    collector.look_at_git(path, layers, seen)
                    continue
                status = os.stat(name, dir_fd=here, follow_symlinks=False)
                if letter != "d" and baseline.made.get(path) == (status.st_ino, status.st_ctime_ns):
                    continue
                if collector.compare(path, here, name, status, lower, came=path in baseline.made):
                    stack.append(path)
    gone: set[bytes] = set()
    for path in baseline.made:
        if path in seen:
            continue
        if (top := collector.skipped_above(path)) is None:
            gone.add(path)
        elif (above := os.path.dirname(top)) == b"" or above in seen:  # else it is told with the directory that went
            collector.gone_from_git(top, path)
    for path in gone:
        if os.path.dirname(path) not in gone:
            collector.delete(path)
    return collector.result()
