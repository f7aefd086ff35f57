"""Resources: a bomb of each kind meets its limit, the limit stops the session where it must, and the host goes on."""
from __future__ import annotations

import os
import time
from dataclasses import replace

import pytest
import trio

from supervisor.errors import ChannelBroken
from supervisor.sandbox import share
from supervisor.sandbox.life import Sandbox
from supervisor.sandbox.spec import Limits
from supervisor.types import Stop
from support.attempts import attempt, attempted, jail, needs_sandbox
from support.boxes import bash, host

pytestmark = [pytest.mark.kernel, needs_sandbox]

SMALL = Limits(memory=256 << 20, processes=40, cpu_seconds=60, disk=64 << 20, inodes=2000, file_size=32 << 20, wall_seconds=60)


async def stopped(box: Sandbox, script: str) -> Stop:
    """Run a script that must exceed a cap; the stop that names it."""
    with trio.fail_after(40):
        async with trio.open_nursery() as nursery:

            async def doomed() -> None:
                try:
                    await box.run(bash(script, timeout=60))
                except ChannelBroken:
                    return

            nursery.start_soon(doomed)
            stop = await box.exceeded()
            nursery.cancel_scope.cancel()
            return stop
    raise AssertionError


async def test_a_fork_bomb_is_stopped_and_named() -> None:
    async with jail(SMALL) as box:
        stop = await stopped(box, ":(){ :|:& };: 2>/dev/null; sleep 20")
    assert (stop.what, stop.limit) == ("processes", 40)
    assert "processes" in stop.text


async def test_a_share_of_the_cpus_without_a_group_is_kept_and_cannot_be_widened() -> None:
    one = replace(SMALL, cpus=1.0)
    if not share.kept(host(), one):
        pytest.skip("a control group throttles here, or there is one CPU")
    widen = (
        "import os\ntry:\n os.sched_setaffinity(0, range(64))\n"
        "except PermissionError as e: print(e.errno, len(os.sched_getaffinity(0)))"
    )
    async with jail(one) as box:
        for _ in range(2):  # each command anew
            said = (await box.run(bash(f'nproc; python3 -I -S -c "{widen}"; taskset -p 3 $$ >/dev/null 2>&1; nproc'))).stdout
            assert said.split() == [b"1", b"1", b"1", b"1"]
    async with jail(replace(SMALL, cpus=float(len(os.sched_getaffinity(0))))) as box:
        said = (await box.run(bash('python3 -I -S -c "import os; os.sched_setaffinity(0, {0}); print(1)"'))).stdout
        assert said.split() == [b"1"]  # where there is nothing to keep, a tool may pin itself


async def test_memory_is_stopped_and_named() -> None:
    hog = "import time\nparts = []\nfor _ in range(40):\n parts.append(bytearray(16 << 20)); time.sleep(0.02)\ntime.sleep(30)"
    async with jail(SMALL) as box:
        if host().cgroups.version:
            stop = await stopped(box, f'python3 -I -S -c "{hog}"')
            assert (stop.what, stop.limit) == ("memory", 256 << 20)
        else:
            # One process alone meets RLIMIT_DATA; together they are summed from outside.
            small = hog.replace("range(40)", "range(8)")
            stop = await stopped(box, f'for i in 1 2 3 4; do python3 -I -S -c "{small}" & done; wait')
            assert stop.what == "memory"


# Memory that belongs to no process alone. Each holds twice the cap, then waits to be found.
SHARED = {
    "memfds": "fds = [os.memfd_create('m') for _ in range(8)]\nfor i in range(512): os.write(fds[i % 8], b'm' * (1 << 20))",
    "shared mappings": (
        "for _ in range(3): os.fork()\n"  # eight processes: where only limits of processes hold, they hold each by itself
        "m = mmap.mmap(-1, 64 << 20)\nfor at in range(0, 64 << 20, 1 << 20): m[at:at + (1 << 20)] = b'm' * (1 << 20)"
    ),
    "files of the private tmpfs": "for i in range(16):\n with open(f'/tmp/{i}', 'wb') as f: f.write(b'm' * (31 << 20))",
}


@pytest.mark.parametrize("script", SHARED.values(), ids=SHARED.keys())
async def test_shared_memory_counts_like_any_other(script: str) -> None:
    async with jail(replace(SMALL, disk=1 << 30, file_size=1 << 30)) as box:
        stop = await stopped(box, f'python3 -I -S -c "import mmap, os, time\n{script}\ntime.sleep(30)"')
    assert (stop.what, stop.limit) == ("memory", 256 << 20)


async def test_cpu_seconds_of_one_process_are_named_before_it_is_killed_alone() -> None:
    async with jail(Limits(cpu_seconds=1, wall_seconds=30)) as box:
        stop = await stopped(box, "while :; do :; done; echo; sleep 20")
    assert stop.what == "cpu_seconds"


async def test_cpu_seconds_of_children_that_nobody_waits_for_count() -> None:
    script = (
        "import os, signal, time\nsignal.signal(signal.SIGCHLD, signal.SIG_IGN)\nwhile True:\n if os.fork() == 0:\n"
        "  end = time.time() + 0.3\n  while time.time() < end: pass\n  os._exit(0)\n time.sleep(0.25)"
    )
    async with jail(Limits(cpu_seconds=1, wall_seconds=30)) as box:
        stop = await stopped(box, f'python3 -I -S -c "{script}"')
    assert stop.what == "cpu_seconds"


async def test_cpu_seconds_are_stopped_and_named() -> None:
    limits = Limits(cpu_seconds=1, wall_seconds=60)
    async with jail(limits) as box:
        stop = await stopped(box, "for i in 1 2; do while :; do :; done & done; wait")
    assert (stop.what, stop.limit) == ("cpu_seconds", 1)


async def test_scratch_is_bounded_in_bytes_and_inodes() -> None:
    async with jail(SMALL) as box:
        fill = "head -c 24M /dev/zero | tee $d/1 $d/2 $d/3 $d/4 >/dev/null"
        said = await attempt(box, f"for d in /tmp /dev/shm ~; do {fill}; echo $?; rm -f $d/?; done 2>/dev/null")
        assert said.split() == ["1"] * 3
        said = await attempt(
            box, "python3 -I -S -c 'import os\nfor i in range(100000): os.close(os.open(\"/tmp/i%d\" % i, 65))' 2>&1 | tail -1"
        )
        assert "No space" in said


async def test_a_file_of_the_working_copy_is_bounded() -> None:
    async with jail(SMALL) as box:
        script = "head -c 100M /dev/zero > big; echo $?; stat -c %s big; truncate -s 1T sparse; echo $?; rm -f big"
        ran = await attempted(box, script)
    said = ran.stdout.split()
    assert int(said[0]) != 0
    assert int(said[1]) <= 32 << 20
    assert int(said[2]) != 0


async def test_the_working_copy_is_watched() -> None:
    async with jail(SMALL) as box:
        stop = await stopped(box, "for i in 1 2 3 4 5; do head -c 30M /dev/urandom > big$i; done; sync; sleep 30")
    assert (stop.what, stop.limit) == ("disk", 64 << 20)
    assert stop.used > 64 << 20


async def test_a_file_without_a_name_is_watched_too() -> None:
    held = "for i in 1 2 3 4 5; do exec {fd}<>big$i; rm big$i; head -c 30M /dev/urandom >&$fd; done; sync; sleep 30"
    async with jail(SMALL) as box:
        stop = await stopped(box, held)
    assert (stop.what, stop.limit) == ("disk", 64 << 20)


async def test_open_files_are_bounded() -> None:
    async with jail(Limits(open_files=64)) as box:
        said = await attempt(box, "ulimit -n; ulimit -Hn; python3 -I -S -c 'import os\nwhile 1: os.dup(0)' 2>&1 | tail -1")
    assert said.splitlines()[:2] == ["64", "64"]
    assert "Too many open files" in said


async def test_stopping_everything_stops_no_limit() -> None:
    async with jail() as box:
        began = time.monotonic()
        ran = await box.run(bash("kill -STOP -1; kill -STOP $$", timeout=1))
        assert ran.timed_out
        assert time.monotonic() - began < 8


async def test_killing_everything_ends_the_command_and_no_more() -> None:
    async with jail() as box:
        with trio.fail_after(10):
            await box.run(bash("kill -KILL -1; sleep 1", timeout=5))
            try:
                assert (await box.run(bash("echo alive"))).stdout == b"alive\n"
            except ChannelBroken:
                pytest.fail("init did not survive")


@pytest.mark.needs("root")
async def test_cpu_share_is_throttled() -> None:
    if host().cgroups.base("cpu") is None:
        pytest.skip("no cpu controller")
    async with jail(Limits(cpus=0.25)) as box:
        ran = await box.run(bash("for i in 1 2; do (timeout 2 sh -c 'while :; do :; done') & done; wait", timeout=30))
    assert ran.duration_us > 1_500_000
    assert box.usage().cpu_us < ran.duration_us * 0.25 * 1.5
