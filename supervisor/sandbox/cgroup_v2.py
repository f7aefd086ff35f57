"""The group of a sandbox on cgroup v2: one directory, which init is cloned into (CLONE_INTO_CGROUP).

Where it may be made: root makes it below the root of the mounted hierarchy; an ordinary user needs a subtree that was
delegated to it, which systemd does for everything below ``user@UID.service``. A group that holds processes cannot hand
controllers to children, so the place is the nearest ancestor of our own group that we may write, whose controllers can be
switched on, and that is empty or the root. Where our own group is all that was delegated (a service with ``Delegate=yes``,
a user of its own), nothing above is ours, and it holds us: then we go into a child of it first, as systemd's documentation
of delegation asks, provided that nobody else is in it.

``memory.oom.group`` makes the kernel kill the whole sandbox when it runs out of memory, init included; no swap.
"""
from __future__ import annotations

import os

from supervisor.sandbox.cgroup_files import Values, clear, words, write
from supervisor.sandbox.groups import NEEDED, PERIOD_US, CgroupHost, Mounted, Sample
from supervisor.sandbox.spec import Limits

CONTROLLERS = ("memory", "pids", "cpu")
SUPERVISOR = "lemni-supervisor"  # the child that we go into


def settings(limits: Limits) -> tuple[tuple[str, str, bool], ...]:
    """(file, value, required) in the order in which they have to be written."""
    return (
        ("memory.max", str(limits.memory), True),
        ("memory.swap.max", "0", False),  # absent where swap is not accounted
        ("memory.oom.group", "1", False),
        ("pids.max", str(limits.processes + 2), True),  # init and its shim beside the commands' processes
        ("cpu.max", f"{max(1000, round(limits.cpus * PERIOD_US))} {PERIOD_US}", False),
    )


def find(mounted: Mounted) -> CgroupHost:
    """The nearest place for children with memory and pids. Switches those controllers on there when they are off."""
    if mounted.v2 is None:
        return CgroupHost(0, why="v2: not mounted")
    top = mounted.v2_root.rstrip("/")
    available = words(f"{top}/cgroup.controllers")
    lacking = [c for c in NEEDED if c not in available]
    if lacking:
        return CgroupHost(0, why=f"v2: no {', '.join(lacking)} controller")
    own = mounted.v2.rstrip("/") or top
    found = _nearest(own, top)
    if found is None and own != top and _enter_child(own):
        found = _nearest(own, top)
    return found or CgroupHost(0, why="v2: no subtree is delegated to this user")


def _nearest(own: str, top: str) -> CgroupHost | None:
    """The first group from ``own`` upwards that can have children with the needed controllers."""
    place = own
    while place.startswith(top):
        on = _switch_on(place) if _ours(place) else ()
        if all(c in on for c in NEEDED):
            return CgroupHost(2, tuple((c, place) for c in CONTROLLERS if c in on))
        if place == top:
            break
        place = os.path.dirname(place)
    return None


def _ours(place: str) -> bool:
    return os.access(place, os.W_OK) and os.access(f"{place}/cgroup.procs", os.W_OK)


def _enter_child(own: str) -> bool:
    """Move this process, if it is alone in its delegated group, into a child, so that the group can hand on controllers."""
    available = words(f"{own}/cgroup.controllers")
    alone = words(f"{own}/cgroup.procs") == (str(os.getpid()),)
    if not (alone and _ours(own) and all(c in available for c in NEEDED)):
        return False
    try:
        os.makedirs(f"{own}/{SUPERVISOR}", 0o755, exist_ok=True)
        write(f"{own}/{SUPERVISOR}/cgroup.procs", "0")  # "0": whoever writes, with all its threads
    except OSError:
        return False
    return True


def _switch_on(place: str) -> tuple[str, ...]:
    """Hand the controllers to the children of ``place``; those that are on afterwards."""
    file = f"{place}/cgroup.subtree_control"
    on = words(file)
    off = [c for c in CONTROLLERS if c not in on and c in words(f"{place}/cgroup.controllers")]
    if off:
        try:
            # All or none: cpu and pids alone would be taken by a group that holds processes, and stay on there for nothing.
            write(file, " ".join(f"+{c}" for c in off))
        except OSError:  # EBUSY: it holds processes; EACCES: not ours
            return on
    return words(file)


class GroupV2:
    """One sandbox's directory. Made in the constructor, or nothing is left of it."""

    join: tuple[int, ...] = ()

    def __init__(self, host: CgroupHost, name: str, limits: Limits) -> None:
        base = host.base("memory")
        assert base is not None
        self._path = f"{base}/{name}"
        self.clone = -1
        self._values = Values()
        controllers = {c for c, _ in host.bases}
        try:
            os.mkdir(self._path, 0o755)
        except FileExistsError:
            clear(self._path)  # ours by name: a crash left it
            os.mkdir(self._path, 0o755)
        try:
            for file, value, required in settings(limits):
                if file.partition(".")[0] in controllers:
                    try:
                        write(f"{self._path}/{file}", value)
                    except FileNotFoundError:
                        if required:
                            raise
            self.clone = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except BaseException:
            self.remove()
            raise

    def launched(self, pid: int) -> None:
        if self.clone >= 0:
            os.close(self.clone)
            self.clone = -1

    def sample(self) -> Sample:
        path, values = self._path, self._values
        memory, processes = values.number(f"{path}/memory.current"), values.number(f"{path}/pids.current")
        return Sample(
            cpu_us=values.keyed(f"{path}/cpu.stat", b"usage_usec"),
            memory=memory,
            memory_peak=values.number(f"{path}/memory.peak") or memory,
            processes=processes,
            processes_peak=values.number(f"{path}/pids.peak") or processes,
            oom_kills=values.keyed(f"{path}/memory.events", b"oom_kill"),
            forks_refused=values.keyed(f"{path}/pids.events", b"max"),
        )

    def kill(self) -> None:
        """SIGKILL to every process of the group at once (Linux 5.14)."""
        try:
            write(f"{self._path}/cgroup.kill", "1")
        except OSError:
            clear(self._path)

    def remove(self) -> bool:
        self.launched(0)
        self._values.close()
        try:
            os.rmdir(self._path)
        except FileNotFoundError:
            return True
        except OSError:
            return False
        return True
