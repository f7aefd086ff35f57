"""Control groups of version 2, read back while a sandbox is open: the limits are the kernel's, whoever made the group."""
from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from supervisor.sandbox.life import Sandbox
from supervisor.sandbox.spec import Limits
from support import boxes
from support.boxes import bash, open_box, output

pytestmark = [pytest.mark.kernel, pytest.mark.needs("userns", "overlay", "seccomp", "bash")]
LIMITS = Limits(memory=96 << 20, processes=33, cpus=0.25, cpu_seconds=60)


@pytest.fixture(autouse=True)
def _unified() -> None:
    if boxes.host().cgroups.version != 2:
        pytest.skip(f"no cgroup v2 to make groups in: {boxes.host().cgroups.why or 'v1 is in use'}")


def group_of(box: Sandbox) -> Path:
    """The directory that holds the sandbox's processes: one of ours that lies in the place for groups."""
    base = boxes.host().cgroups.base("memory")
    assert base is not None
    (found,) = [path for path in Path(base).glob("lemni-*-*") if _holds_child_of(path, os.getpid())]
    assert box.workdir >= 0
    return found


def _holds_child_of(group: Path, parent: int) -> bool:
    pids = (group / "cgroup.procs").read_text().split()
    return any(f"\nPPid:\t{parent}\n" in Path(f"/proc/{pid}/status").read_text() for pid in pids)


async def test_the_limits_are_in_force() -> None:
    async with open_box(LIMITS) as box:
        group = group_of(box)
        assert await output(box, "cat /proc/self/cgroup") == "0::/"
        expected = {"memory.max": str(96 << 20), "memory.oom.group": "1", "pids.max": "35"}  # 33, init and its shim
        if boxes.host().cgroups.base("cpu"):
            expected["cpu.max"] = "25000 100000"
        assert {name: (group / name).read_text().strip() for name in expected} == expected
        swap = group / "memory.swap.max"
        assert not swap.exists() or swap.read_text() == "0\n"
    assert not group.exists()


async def test_the_processor_is_shared_out() -> None:
    if not boxes.host().cgroups.base("cpu"):
        pytest.skip("the cpu controller is not delegated")
    async with open_box(LIMITS) as box:
        before = box.usage().cpu_us
        started = time.monotonic()
        await box.run(bash("exec timeout 2 sh -c 'while :; do :; done'"))
        seconds = time.monotonic() - started
        used = (box.usage().cpu_us - before) / 1e6
    assert 0.05 < used / seconds < 0.25 * 1.4


async def test_no_process_of_the_sandbox_can_leave_its_group() -> None:
    async with open_box(LIMITS) as box:
        group = group_of(box)
        inside = len((group / "cgroup.procs").read_text().split())
        await box.run(bash("(setsid sleep 300 &) ; (sleep 300 &) ; true"))
        assert len((group / "cgroup.procs").read_text().split()) >= inside + 2
