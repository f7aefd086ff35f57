"""Usage watched from outside, where no control group counts: sums over the sandbox's processes in /proc.

This is the announced fallback of ``limitsEnforcement: auto``, and it says *watched*, not *enforced*: a process that lives
between two looks is seen through what its parent inherited of its CPU time, and resource limits hold each process by itself.

Memory is more than what processes have to themselves. What is shared (mappings, memfds, the private tmpfs) is looked for once
the host's own count of it has risen: that is cheap to ask, and the looking is not. What no process shows at all (buffers of
sockets, memfds in flight, detached segments) is told by its absence: when the host's memory comes near its end, what is
missing since the start counts as ours.

Every process of the sandbox descends from its init: PID 1 adopts orphans, so following ``children`` from init finds all.
"""
from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass

from supervisor.sandbox.descriptors import held_open
from supervisor.sandbox.groups import Sample

_TICK_US = 1_000_000 // os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_HAS_CHILDREN_FILE = os.path.exists("/proc/thread-self/children")  # CONFIG_PROC_CHILDREN
_WORTH_A_LOOK = 32 << 20  # bytes of shared memory on the whole host beyond what was there at the start
_SCRATCH = ("/dev/shm", "/home", "/tmp")  # mount points in a read-only root: no command can put a link there
_FLOOR = 512 << 20  # bytes that have to stay available for everybody else; or a sixteenth of a large host


class Watched:
    """Stands in for a control group. The descriptors of the interface do not exist here."""

    join: tuple[int, ...] = ()
    clone = -1

    def __init__(self) -> None:
        self._init = 0
        self._memory_peak = 0
        self._processes_peak = 0
        self._cpu_us = 0
        self._ended_us = 0
        self._living: dict[tuple[int, int], int] = {}  # (pid, start time) → its own CPU microseconds at the last look
        self._vanished_us = 0
        self._start = _host()

    def launched(self, pid: int) -> None:
        self._init = pid

    def credit(self, cpu_us: int, max_rss: int) -> None:
        """A command ended: what it used is known exactly, and no look would find it any more."""
        self._ended_us += cpu_us
        self._memory_peak = max(self._memory_peak, max_rss)
        self._processes_peak = max(self._processes_peak, 1)

    def sample(self) -> Sample:
        pids = descendants(self._init)
        memory, inherited_us = 0, 0
        living: dict[tuple[int, int], int] = {}
        for pid in pids:
            seen = _process(pid)
            if seen is not None:
                memory += seen.memory
                inherited_us += seen.own_us + seen.children_us
                living[pid, seen.started] = seen.own_us
        # Who ignores SIGCHLD inherits nothing from its children: what they were seen to use is kept here.
        self._vanished_us += sum(us for process, us in self._living.items() if process not in living)
        self._living = living
        own_us = self._vanished_us + sum(living.values())
        # What ended unobserved is missing from the sums, so they may shrink: usage does not.
        self._cpu_us = max(self._cpu_us, inherited_us, own_us, self._ended_us)
        memory = self._with_shared(memory, pids) if living else 0
        self._memory_peak = max(self._memory_peak, memory)
        self._processes_peak = max(self._processes_peak, len(living))
        return Sample(
            cpu_us=self._cpu_us,
            memory=memory,
            memory_peak=self._memory_peak,
            processes=len(living),
            processes_peak=self._processes_peak,
        )

    def _with_shared(self, private: int, pids: list[int]) -> int:
        """``private`` bytes and what the sandbox holds besides."""
        (shared, available, total), (shared_then, available_then, _) = _host(), self._start
        if shared - shared_then > _WORTH_A_LOOK:
            private += _shared(self._init, pids)
        if total and available < max(_FLOOR, total // 16):
            private = max(private, available_then - available)
        return private

    def remove(self) -> bool:
        return True


def descendants(root: int) -> list[int]:
    """``root`` and everything below it, by /proc/PID/task/TID/children, or by parent ids where the kernel lacks that file."""
    if root <= 0:
        return []
    if not _HAS_CHILDREN_FILE:
        return _by_parent(root)
    found, queue = [root], [root]
    while queue:
        pid = queue.pop()
        try:
            tasks = os.listdir(f"/proc/{pid}/task")
        except OSError:  # it ended
            continue
        for task in tasks:
            try:
                with open(f"/proc/{pid}/task/{task}/children", "rb") as file:
                    children = [int(word) for word in file.read().split()]
            except OSError:
                continue
            found += children
            queue += children
    return found


def _by_parent(root: int) -> list[int]:
    below: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdecimal():
            fields = _stat(int(name))
            if fields is not None:
                below.setdefault(int(fields[1]), []).append(int(name))
    found, queue = [root], [root]
    while queue:
        children = below.get(queue.pop(), [])
        found += children
        queue += children
    return found


def _stat(pid: int) -> list[bytes] | None:
    """Fields of /proc/PID/stat from the state on: the name before it may contain anything."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()
    except OSError:
        return None


@dataclass(frozen=True, slots=True)
class _Seen:
    """One process: private resident bytes, CPU microseconds of its own and of reaped children, start time in ticks."""

    memory: int
    own_us: int
    children_us: int
    started: int


def _process(pid: int) -> _Seen | None:
    """What one process uses, or None when it ended or is a zombie."""
    fields = _stat(pid)
    if fields is None or fields[0] in (b"Z", b"X"):
        return None
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            numbers = file.read().split()
    except OSError:
        return None
    memory = max(0, int(numbers[1]) - int(numbers[2])) * _PAGE
    own, children = int(fields[11]) + int(fields[12]), int(fields[13]) + int(fields[14])
    return _Seen(memory, own * _TICK_US, children * _TICK_US, int(fields[19]))


def _host() -> tuple[int, int, int]:
    """(shared, available, total) bytes of the whole machine; zeros where it does not tell."""
    found = dict.fromkeys((b"Shmem", b"MemAvailable", b"MemTotal"), 0)
    with contextlib.suppress(OSError), open("/proc/meminfo", "rb") as file:
        for line in file:
            name, _, value = line.partition(b":")
            if name in found:
                found[name] = int(value.split()[0]) << 10
    return found[b"Shmem"], found[b"MemAvailable"], found[b"MemTotal"]


def _shared(init: int, pids: list[int]) -> int:
    """Bytes of shared memory that these processes map, or that lie in files of theirs: whichever is more.

    A file can be mapped as well, so the two may count the same pages and are not added up.
    """
    mapped = sum(_mapped_shared(pid) for pid in pids)
    in_files = 0
    for path in _SCRATCH:
        with contextlib.suppress(OSError):
            found = os.statvfs(f"/proc/{init}/root{path}")
            in_files += (found.f_blocks - found.f_bfree) * found.f_frsize
    return max(mapped, in_files + _memfds(pids))


def _mapped_shared(pid: int) -> int:
    """Its proportional share of shared memory: a region that a hundred processes map counts once in all."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/smaps_rollup", "rb") as file:
        for line in file:
            if line.startswith(b"Pss_Shmem:"):
                return int(line.split()[1]) << 10
    return 0


def _memfds(pids: list[int]) -> int:
    """Bytes in memfds that these processes hold open, each counted once."""
    own = os.memfd_create("lemni-device")
    device = os.fstat(own).st_dev  # one file system of the kernel holds all of them
    os.close(own)
    found = {status.st_ino: status.st_blocks * 512 for status, _ in held_open(pids) if status.st_dev == device}
    return sum(found.values())
