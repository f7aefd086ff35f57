"""Control groups as values: where they can be made, what they report, when a cap is exceeded. Pure.

Two kernel interfaces and a third case. *v1*: one directory in each hierarchy; init writes itself into them. *v2*: one
directory, which the process is cloned into. *None*: an ordinary user without a delegated subtree; then the limits are
watched from outside (``usage``) and backed by resource limits, or the session is refused, as the policy says.

Sources: cgroups(7); Documentation/admin-guide/cgroup-v1/{memory,pids}.rst, cgroup-v2.rst ("Delegation", "No Internal Process
Constraint").
"""
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from supervisor.sandbox.spec import Limits

NEEDED = ("memory", "pids")  # without these two there is no group worth the name
WANTED = (*NEEDED, "cpu", "cpuacct")
PERIOD_US = 100_000  # of CPU bandwidth: the kernel's default


@dataclass(frozen=True, slots=True)
class CgroupHost:
    """Where groups can be made. ``version`` 0 means nowhere, and ``why`` says why not.

    ``bases`` are (controller, directory): for v1 one directory a hierarchy, for v2 the same directory for each controller.
    """

    version: int
    bases: tuple[tuple[str, str], ...] = ()
    why: str = ""

    def base(self, controller: str) -> str | None:
        """The directory in which a group with this controller is made."""
        return dict(self.bases).get(controller)


@dataclass(frozen=True, slots=True)
class Sample:
    """What a sandbox used so far. Bytes, microseconds, counts; ``oom_kills`` and ``forks_refused`` only ever grow."""

    cpu_us: int = 0
    memory: int = 0
    memory_peak: int = 0
    processes: int = 0
    processes_peak: int = 0
    oom_kills: int = 0
    forks_refused: int = 0


@dataclass(frozen=True, slots=True)
class Excess:
    """A cap that was reached: its name, the limit and what was used, in the limit's own unit (bytes, count, seconds)."""

    resource: str
    limit: int
    used: int


class Group(Protocol):
    """The group of one sandbox, or what stands in for it."""

    join: tuple[int, ...]  # v1: descriptors of the ``tasks`` files, for init to write itself into
    clone: int  # v2: descriptor of the group's directory, for CLONE_INTO_CGROUP; else -1

    def launched(self, pid: int) -> None:
        """The sandbox's init has this pid; the descriptors above are no longer needed."""

    def sample(self) -> Sample:
        """Usage now. Cheap enough to be asked every 100 ms."""

    def remove(self) -> bool:
        """Remove the group; every process of it is dead or dying. False when a process is still on its way out."""


def excess(limits: Limits, sample: Sample, enforced: bool) -> Excess | None:
    """The first cap that ``sample`` exceeds. Where the kernel enforces (``enforced``) it says so itself, by counters."""
    if sample.oom_kills or (not enforced and sample.memory > limits.memory):
        return Excess("memory", limits.memory, max(sample.memory_peak, sample.memory))
    if sample.forks_refused or (not enforced and sample.processes > limits.processes):
        return Excess("processes", limits.processes, max(sample.processes_peak, sample.processes))
    if sample.cpu_us > limits.cpu_seconds * 1_000_000:
        return Excess("cpu_seconds", limits.cpu_seconds, sample.cpu_us // 1_000_000)
    return None


@dataclass(frozen=True, slots=True)
class Mounted:
    """The cgroup mounts and this process's own groups, parsed: input of ``choose``."""

    v1: dict[str, str] = field(default_factory=dict)  # controller → directory of our own group
    v2: str | None = None  # directory of our own group
    v2_root: str = ""


def parse(mountinfo: str, own: str) -> Mounted:
    """Read /proc/self/mountinfo and /proc/self/cgroup. Groups outside the mounted part of a hierarchy are left out."""
    paths: dict[str, str] = {}
    for line in own.splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(",") if controllers else [""]:
            paths[controller] = path
    v1: dict[str, str] = {}
    v2, v2_root = None, ""
    for line in mountinfo.splitlines():
        head, _, tail = line.partition(" - ")
        fields, after = head.split(" "), tail.split(" ")
        root, point = unescape(fields[3]), unescape(fields[4])
        if after[0] == "cgroup2" and "" in paths and v2 is None:
            v2, v2_root = _place(root, point, paths[""]), point
        elif after[0] == "cgroup":
            for controller in after[2].split(","):
                place = _place(root, point, paths[controller]) if controller in paths else None
                if place is not None:
                    v1[controller] = place
    return Mounted(v1, v2, v2_root)


def unescape(text: str) -> str:
    """Undo the octal escapes of mountinfo (space, tab, newline, backslash)."""
    for code, character in ((r"\040", " "), (r"\011", "\t"), (r"\012", "\n"), (r"\134", "\\")):
        text = text.replace(code, character)
    return text


def _place(root: str, point: str, path: str) -> str | None:
    """The directory of group ``path`` in a hierarchy of which ``root`` is mounted on ``point``."""
    if root == "/":
        return point + path.rstrip("/")
    if path == root or path.startswith(root + "/"):
        return point + path[len(root) :]
    return None
