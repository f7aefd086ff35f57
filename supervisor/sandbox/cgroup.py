"""The control group of a sandbox: which kind there is here, made, and swept."""
from __future__ import annotations

import functools

from supervisor.sandbox import cgroup_v1, cgroup_v2
from supervisor.sandbox.cgroup_files import clear
from supervisor.sandbox.groups import CgroupHost, Group, parse
from supervisor.sandbox.spec import Limits


def find() -> CgroupHost:
    """The groups that this process may make: v2 where its controllers are to be had, else v1, else none with the reason."""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        mountinfo = file.read()
    with open("/proc/self/cgroup", encoding="utf-8", errors="surrogateescape") as file:
        mounted = parse(mountinfo, file.read())
    second = cgroup_v2.find(mounted)
    if second.version:
        return second
    first = cgroup_v1.find(mounted)
    return first if first.version else CgroupHost(0, why="; ".join(w for w in (second.why, first.why) if w))


def make(host: CgroupHost, name: str, limits: Limits) -> Group | None:
    """A fresh group of this name with these limits; None where there are no groups. Raises OSError."""
    if host.version == 2:
        return cgroup_v2.GroupV2(host, name, limits)
    if host.version == 1:
        return cgroup_v1.GroupV1(host, name, limits)
    return None


@functools.lru_cache(16)
def joins(host: CgroupHost, limits: Limits) -> int:
    """How many groups init has to write itself into. 0 on v2, where it is born in its group, and where there is none."""
    return len(cgroup_v1.directories(cgroup_v1.places(host, "", limits))) if host.version == 1 else 0


def directories(host: CgroupHost, name: str) -> tuple[str, ...]:
    """Where a group of this name lies: one directory in each hierarchy."""
    return tuple(sorted({f"{base}/{name}" for _, base in host.bases}))


def sweep(left: tuple[str, ...]) -> None:
    """Remove these directories of a group that a dead supervisor left; whatever still runs in it is killed."""
    for path in left:
        clear(path)
