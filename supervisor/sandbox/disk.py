"""Disk space and inodes of a working copy, watched from outside: no unprivileged quota bounds an overlay's upper layer.

*Watched*, not *enforced*: the cheap question (how much less is free on the file system, 2 µs) is asked all the time, and the
dear one (how much of that is in our layers) only once the first says that it may be too much. A file that was unlinked and
is held open is in no directory: it is counted through the descriptors that hold it. What hides even then (a mapping of such a
file, without a descriptor) counts as ours when the file system comes near its end. RLIMIT_FSIZE bounds each file besides,
and the private tmpfs have sizes that the kernel enforces.
"""
from __future__ import annotations

import os
import stat
from collections.abc import Sequence

from supervisor.sandbox.descriptors import held_open
from supervisor.sandbox.groups import Excess
from supervisor.sandbox.spec import Limits

FLOOR = 512 << 20  # bytes that have to stay free for everybody else
FLOOR_INODES = 10_000


class DiskWatch:
    """The upper layers of one sandbox, all on one file system; ``targets`` are the paths of their working copies inside."""

    def __init__(self, uppers: Sequence[bytes], targets: Sequence[bytes], limits: Limits) -> None:
        self._uppers = tuple(uppers)
        self._targets = tuple(target + b"/" for target in targets)
        self._limits = limits
        self._start = self._free() if self._uppers else (0, 0)

    def suspicious(self) -> bool:
        """So much less is free than at the start that it is worth to look. Cheap, and never wrong in the other direction."""
        if not self._uppers:
            return False
        (free, nodes), (free_then, nodes_then) = self._free(), self._start
        return free_then - free > self._limits.disk or nodes_then - nodes > self._limits.inodes

    def look(self, pids: Sequence[int]) -> Excess | None:
        """Count the layers and what ``pids``, the sandbox's processes, hold unlinked. The cap that is exceeded, if one is.

        Blocks as long as a walk takes, so it is for a thread.
        """
        used, count = used_by(self._uppers)
        used += unlinked(pids, self._targets)
        free, nodes = self._free()
        if used > self._limits.disk:
            return Excess("disk", self._limits.disk, used)
        if free < FLOOR:
            return Excess("disk", self._limits.disk, self._start[0] - free)
        if count > self._limits.inodes:
            return Excess("inodes", self._limits.inodes, count)
        if self._start[1] > 0 and nodes < FLOOR_INODES:  # some file systems make inodes as they go and report none at all
            return Excess("inodes", self._limits.inodes, self._start[1] - nodes)
        return None

    def _free(self) -> tuple[int, int]:
        found = os.statvfs(self._uppers[0])
        return found.f_bavail * found.f_frsize, found.f_favail


def unlinked(pids: Sequence[int], below: tuple[bytes, ...]) -> int:
    """Allocated bytes of regular files that these processes hold open and that have no name left, each counted once.

    ``below`` are prefixes of the paths that the kernel remembers for them: a memfd or a file of a tmpfs has another.
    """
    found: dict[tuple[int, int], int] = {}
    for status, path in held_open(pids):
        if status.st_nlink == 0 and stat.S_ISREG(status.st_mode) and path.startswith(below):
            found[status.st_dev, status.st_ino] = status.st_blocks * 512
    return sum(found.values())


def used_by(directories: Sequence[bytes]) -> tuple[int, int]:
    """(allocated bytes, entries) below these directories, however deep. What vanishes meanwhile is skipped."""
    used, count = 0, 0
    queue = list(directories)
    while queue:
        try:
            with os.scandir(queue.pop()) as entries:
                for entry in entries:
                    count += 1
                    try:
                        used += entry.stat(follow_symlinks=False).st_blocks * 512
                        if entry.is_dir(follow_symlinks=False):
                            queue.append(entry.path)
                    except OSError:
                        continue
        except OSError:  # it went, or its owner closed it
            continue
    return used, count
