"""Usage watched from outside, where no control group counts: sums over the sandbox's processes in /proc.

This is the announced fallback of ``limitsEnforcement: auto``, and it says *watched*, not *enforced*: a process that lives
between two looks is seen through what its parent inherited of its CPU time, and resource limits hold each process by itself.

Every process of the sandbox descends from its init: PID 1 adopts orphans, so following ``children`` from init finds all.
"""
from __future__ import annotations

import os

from supervisor.sandbox.groups import Sample

_TICK_US = 1_000_000 // os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_HAS_CHILDREN_FILE = os.path.exists("/proc/thread-self/children")  # CONFIG_PROC_CHILDREN


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

    def launched(self, pid: int) -> None:
        self._init = pid

    def credit(self, cpu_us: int, max_rss: int) -> None:
        """A command ended: what it used is known exactly, and no look would find it any more."""
        self._ended_us += cpu_us
        self._memory_peak = max(self._memory_peak, max_rss)
        self._processes_peak = max(self._processes_peak, 1)

    def sample(self) -> Sample:
        memory, processes, cpu_us = 0, 0, 0
        for pid in descendants(self._init):
            seen = _process(pid)
            if seen is not None:
                processes += 1
                memory += seen[0]
                cpu_us += seen[1]
        # What ended unobserved is missing from the sum, so the sum may shrink: usage does not.
        self._cpu_us = max(self._cpu_us, cpu_us, self._ended_us)
        self._memory_peak = max(self._memory_peak, memory)
        self._processes_peak = max(self._processes_peak, processes)
        return Sample(
            cpu_us=self._cpu_us,
            memory=memory,
            memory_peak=self._memory_peak,
            processes=processes,
            processes_peak=self._processes_peak,
        )

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


def _process(pid: int) -> tuple[int, int] | None:
    """(private resident bytes, CPU microseconds with those of reaped children), or None when it ended or is a zombie."""
    fields = _stat(pid)
    if fields is None or fields[0] in (b"Z", b"X"):
        return None
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            numbers = file.read().split()
    except OSError:
        return None
    memory = max(0, int(numbers[1]) - int(numbers[2])) * _PAGE
    return memory, sum(int(ticks) for ticks in fields[11:15]) * _TICK_US
