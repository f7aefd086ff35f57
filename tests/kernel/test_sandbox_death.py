"""The supervisor is killed without a chance to clean up: processes and mounts are gone at once, the rest at the next start."""
from __future__ import annotations

import os
import random
import select
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.sandbox import cgroup, sweep
from supervisor.sandbox.groups import CgroupHost
from supervisor.sandbox.slots import Slots
from supervisor.sandbox.spec import Limits
from support import boxes

HOLDER = Path(__file__).parents[1] / "support/holder.py"
pytestmark = [pytest.mark.kernel, pytest.mark.needs("userns", "overlay", "seccomp", "bash")]


@pytest.fixture(autouse=True)
def next_start(public_tmp: Path) -> Iterator[None]:
    """What the killed holders left is taken away by what a next start does first."""
    yield
    for state in public_tmp.glob("*/state"):  # an ordinary user's slots lie in the state of each box, root's in one place
        sweep.sweep(state)


def hold(marker: str, where: Path) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, HOLDER, marker, where], stdout=subprocess.PIPE, text=True)


def inits_of(parent: int) -> list[int]:
    """Children of a process: the sandbox's init, seen from outside."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdecimal():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    fields = file.read().rpartition(b")")[2].split()
            except OSError:
                continue
            if int(fields[1]) == parent:
                found.append(int(name))
    return found


def gone(pids: list[int], seconds: float) -> bool:
    """All these processes end within the time: waited for through pidfds, not by looking again and again."""
    until = time.monotonic() + seconds
    for pid in pids:
        try:
            fd = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        ready, _, _ = select.select([fd], [], [], max(0.0, until - time.monotonic()))
        os.close(fd)
        if not ready:
            return False
    return True


def test_a_killed_supervisor_leaves_no_process(public_tmp: Path) -> None:
    public_tmp.chmod(0o777)
    marker = f"7{uuid.uuid4().int % 10**8}"
    holder = hold(marker, public_tmp)
    assert holder.stdout is not None
    with holder:
        assert holder.stdout.readline() == "starting\n"
        assert holder.stdout.readline() == "open\n"
        until = time.monotonic() + 30
        while len(inside := boxes.processes_of(f"sleep\0{marker}")) < 3 and time.monotonic() < until:
            # Only the holder's end would come by itself. Between two looks the processor is theirs: a loop that never waits has
            # been seen to keep one of them from its exec for as long as it went on.
            select.select([holder.stdout], [], [], 0.02)
        everything = inits_of(holder.pid) + inside
        holder.send_signal(signal.SIGKILL)  # before what may fail: nobody would end it
        assert len(inside) == 3
        assert gone(everything, 3)
    assert boxes.processes_of(f"sleep\0{marker}") == []


@pytest.mark.parametrize("seed", range(12))
def test_at_any_moment(seed: int, public_tmp: Path) -> None:
    public_tmp.chmod(0o777)
    marker = f"8{uuid.uuid4().int % 10**8}"
    holder = hold(marker, public_tmp)
    assert holder.stdout is not None
    with holder:
        assert holder.stdout.readline() == "starting\n"
        # The moment itself is what is tested; opening takes a few milliseconds.
        pause = random.Random(seed).uniform(0, 0.06)
        end = time.perf_counter() + pause
        while time.perf_counter() < end:
            pass
        children = inits_of(holder.pid)
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        assert gone(children, 3)
        assert gone(boxes.processes_of(f"sleep\0{marker}"), 3)
    assert boxes.processes_of(f"sleep\0{marker}") == []


def test_the_next_start_takes_back_what_a_dead_one_held(tmp_path: Path) -> None:
    host = cgroup.find()
    script = (
        "import sys, os; sys.path.insert(0, sys.argv[2])\n"
        "from pathlib import Path\nfrom supervisor.sandbox import cgroup\nfrom supervisor.sandbox.slots import Slots\n"
        "from supervisor.sandbox.spec import Limits\n"
        "slots = Slots(Path(sys.argv[1]))\nslot = slots.take()\n"
        "slots.record(slot, cgroup.directories(cgroup.find(), slot.name))\n"
        "group = cgroup.make(cgroup.find(), slot.name, Limits())\n"
        "print(slot.name, flush=True)\nos.kill(os.getpid(), 9)\n"
    )
    directory = tmp_path / "slots"
    root = Path(__file__).parents[2]
    ran = subprocess.run([sys.executable, "-c", script, directory, root], stdout=subprocess.PIPE, text=True)
    assert ran.returncode == -signal.SIGKILL
    name = ran.stdout.strip()
    if host.version:
        assert _directories(host, name)
    slots = Slots(directory)
    taken = list(slots.abandoned())
    assert [slot.name for slot in taken] == [name]
    for slot in taken:
        cgroup.sweep(slot.left)
    assert _directories(host, name) == []
    assert list(slots.abandoned()) == []
    slots.close()


def test_a_group_with_a_living_process_is_cleared(tmp_path: Path) -> None:
    host = cgroup.find()
    if host.version != 1:
        pytest.skip("writes into v1 tasks files")
    name = f"lemni-test-{uuid.uuid4().hex[:8]}"
    group = cgroup.make(host, name, Limits())
    assert group is not None
    with subprocess.Popen(["sleep", "1000"]) as sleeper:
        for fd in group.join:
            os.write(fd, str(sleeper.pid).encode())
        assert group.sample().processes_peak == 1
        assert not group.remove()
        cgroup.sweep(cgroup.directories(host, name))
        assert sleeper.wait(5) == -signal.SIGKILL
    assert _directories(host, name) == []



def _directories(host: CgroupHost, name: str) -> list[str]:
    return [path for path in cgroup.directories(host, name) if os.path.isdir(path)]
