"""The group of a sandbox on cgroup v1: one directory in each of the hierarchies memory, pids, cpu and cpuacct.

Init joins by writing "0" to ``tasks``: for one thread that costs 40 µs, where ``cgroup.procs`` waits for an
RCU grace period of 7–10 ms. Swap counts as memory where the kernel accounts for it.
"""
from __future__ import annotations

import os

from supervisor.sandbox.cgroup_files import Values, clear, write
from supervisor.sandbox.groups import NEEDED, PERIOD_US, WANTED, CgroupHost, Mounted, Sample
from supervisor.sandbox.spec import Limits


def settings(limits: Limits) -> dict[str, tuple[tuple[str, str, bool], ...]]:
    """controller → (file, value, required) in the order in which they have to be written."""
    return {
        "memory": (
            ("memory.limit_in_bytes", str(limits.memory), True),
            ("memory.memsw.limit_in_bytes", str(limits.memory), False),  # absent where swap is not accounted
        ),
        # Init and one shim a command are ours; the cap is for the commands' processes.
        "pids": (("pids.max", str(limits.processes + 2), True),),
        "cpu": (("cpu.cfs_quota_us", str(max(1000, round(limits.cpus * PERIOD_US))), True),),
        "cpuacct": (),
    }


def find(mounted: Mounted) -> CgroupHost:
    """Every wanted controller whose own group we may make directories in."""
    bases = [(c, mounted.v1[c]) for c in WANTED if c in mounted.v1 and os.access(mounted.v1[c], os.W_OK)]
    missing = [c for c in NEEDED if c not in dict(bases)]
    if missing:
        have = [c for c in missing if c in mounted.v1]
        why = "v1: " + (f"{', '.join(have)} not writable" if have else f"no {', '.join(missing)} controller")
        return CgroupHost(0, why=why)
    return CgroupHost(1, tuple(bases))


def places(host: CgroupHost, name: str, limits: Limits) -> dict[str, str]:
    """controller → directory of the group ``name``."""
    # A quota that all CPUs together cannot exceed needs no group of its own.
    idle = {"cpu"} if limits.cpus >= (os.cpu_count() or 1) else set()
    return {controller: f"{base}/{name}" for controller, base in host.bases if controller not in idle}


def directories(places: dict[str, str]) -> tuple[str, ...]:
    """Each once: cpu and cpuacct are often one hierarchy."""
    return tuple(dict.fromkeys(places.values()))


class GroupV1:
    """One sandbox's directories. Made in the constructor, or nothing is left of them."""

    clone = -1

    def __init__(self, host: CgroupHost, name: str, limits: Limits) -> None:
        self._paths = places(host, name, limits)
        self._directories = directories(self._paths)
        self._values = Values()
        self.join: tuple[int, ...] = ()
        made: list[int] = []
        try:
            for path in self._directories:
                try:
                    os.mkdir(path, 0o755)
                except FileExistsError:
                    clear(path)  # ours by name: a crash left it
                    os.mkdir(path, 0o755)
            for controller, values in settings(limits).items():
                if controller in self._paths:
                    for file, value, required in values:
                        try:
                            write(f"{self._paths[controller]}/{file}", value)
                        except FileNotFoundError:
                            if required:
                                raise
            for path in self._directories:
                made.append(os.open(f"{path}/tasks", os.O_WRONLY | os.O_CLOEXEC))
        except BaseException:
            for fd in made:
                os.close(fd)
            self.remove()
            raise
        self.join = tuple(made)

    def launched(self, pid: int) -> None:
        for fd in self.join:
            os.close(fd)
        self.join = ()

    def sample(self) -> Sample:
        memory, pids, values = self._paths["memory"], self._paths["pids"], self._values
        cpuacct = self._paths.get("cpuacct")
        peak = values.number(f"{pids}/pids.peak")  # Linux 6.7
        return Sample(
            cpu_us=values.number(f"{cpuacct}/cpuacct.usage") // 1000 if cpuacct else 0,
            memory_peak=values.number(f"{memory}/memory.max_usage_in_bytes"),
            processes_peak=peak or values.number(f"{pids}/pids.current"),
            oom_kills=values.keyed(f"{memory}/memory.oom_control", b"oom_kill"),
            forks_refused=values.keyed(f"{pids}/pids.events", b"max"),
        )

    def remove(self) -> bool:
        self.launched(0)
        self._values.close()
        for path in self._directories:
            try:
                os.rmdir(path)
            except FileNotFoundError:
                continue
            except OSError:  # EBUSY: a dead process has not left yet
                return False
        return True
