"""Control groups as values: where they are found, how limits are written, when a cap is exceeded."""
from __future__ import annotations

from dataclasses import replace

import pytest

from supervisor.sandbox import cgroup_v1, cgroup_v2
from supervisor.sandbox.groups import Excess, Sample, excess, parse, unescape
from supervisor.sandbox.spec import Limits

HYBRID = r"""31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
39 31 0:36 /outer /sys/fs/cgroup/pids rw,relatime shared:1 - cgroup cgroup rw,pids
40 31 0:37 / /sys/fs/cgroup/system\040d rw,relatime - cgroup cgroup rw,name=systemd
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
"""
OWN = "8:pids:/outer/mine\n4:memory:/deep/er\n2:cpu,cpuacct:/\n9:name=systemd:/x\n0::/user.slice\n"


def test_both_versions_are_found_where_they_are_mounted() -> None:
    mounted = parse(HYBRID, OWN)
    assert mounted.v1["memory"] == "/sys/fs/cgroup/memory/deep/er"
    assert mounted.v1["cpu"] == mounted.v1["cpuacct"] == "/sys/fs/cgroup/cpu,cpuacct"
    assert mounted.v1["pids"] == "/sys/fs/cgroup/pids/mine"
    assert mounted.v1["name=systemd"] == "/sys/fs/cgroup/system d/x"
    assert mounted.v2 == "/sys/fs/cgroup/unified/user.slice"


def test_a_group_outside_the_mounted_part_is_not_found() -> None:
    assert "pids" not in parse(HYBRID, "8:pids:/elsewhere\n").v1


@pytest.mark.parametrize(("text", "plain"), [(r"a\040b", "a b"), (r"a\134040", r"a\040"), ("a", "a"), (r"\011\012", "\t\n")])
def test_escapes_of_mountinfo(text: str, plain: str) -> None:
    assert unescape(text) == plain


def test_values_of_v1() -> None:
    values = cgroup_v1.settings(replace(Limits(), memory=1 << 30, processes=100, cpus=0.5))
    assert values["memory"][0] == ("memory.limit_in_bytes", "1073741824", True)
    assert values["memory"][1] == ("memory.memsw.limit_in_bytes", "1073741824", False)
    assert values["pids"] == (("pids.max", "102", True),)
    assert values["cpu"] == (("cpu.cfs_quota_us", "50000", True),)


def test_values_of_v2() -> None:
    values = {file: value for file, value, _ in cgroup_v2.settings(replace(Limits(), memory=1 << 30, cpus=0.001))}
    assert values["memory.max"] == "1073741824"
    assert values["memory.swap.max"] == "0"
    assert values["memory.oom.group"] == "1"
    assert values["cpu.max"] == "1000 100000"  # the kernel's least quota


LIMITS = replace(Limits(), memory=1000, processes=10, cpu_seconds=5)


@pytest.mark.parametrize(
    ("sample", "enforced", "found"),
    [
        (Sample(), True, None),
        (Sample(memory=2000), True, None),  # the kernel itself enforces: only its counters speak
        (Sample(memory=2000, memory_peak=3000), False, Excess("memory", 1000, 3000)),
        (Sample(oom_kills=1, memory_peak=999), True, Excess("memory", 1000, 999)),
        (Sample(forks_refused=3, processes_peak=10), True, Excess("processes", 10, 10)),
        (Sample(processes=11), False, Excess("processes", 10, 11)),
        (Sample(cpu_us=5_000_000), True, None),
        (Sample(cpu_us=6_000_001), True, Excess("cpu_seconds", 5, 6)),
    ],
)
def test_excess(sample: Sample, enforced: bool, found: Excess | None) -> None:
    assert excess(LIMITS, sample, enforced) == found
