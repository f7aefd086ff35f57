"""A real sandbox, from opening to nothing left: commands, output, time-outs, cancellation, separation."""
from __future__ import annotations

import math
import os
import time
import uuid

import pytest
import trio
import trio.testing

from supervisor.errors import ChannelBroken
from supervisor.sandbox import environment
from supervisor.sandbox.spec import Command, Limits
from support import boxes
from support.boxes import bash, open_box, output

pytestmark = [pytest.mark.kernel, pytest.mark.needs("userns", "overlay", "seccomp", "bash")]


async def test_a_command_runs_in_the_working_copy_and_its_end_is_told() -> None:
    async with open_box(files={"a.txt": "hello\n"}) as box:
        ran = await box.run(bash("pwd; cat a.txt; echo err >&2; exit 7"))
    assert (ran.code, ran.signal) == (7, None)
    assert ran.stdout == b"/workspace\nhello\n"
    assert ran.stderr == b"err\n"
    assert not ran.timed_out
    assert not ran.killed
    assert ran.duration_us > 0
    assert ran.max_rss > 100_000


async def test_a_signal_is_told_apart_from_a_status() -> None:
    async with open_box() as box:
        ran = await box.run(bash("kill -TERM $$"))
    assert (ran.code, ran.signal, ran.status) == (None, 15, 143)


@pytest.mark.parametrize(
    ("argv", "code", "words"),
    [((b"/usr/bin/no-such-program",), 127, b"No such file"), ((b"/etc/passwd",), 126, b"Permission denied")],
)
async def test_what_cannot_be_executed_has_the_status_of_the_shell(argv: tuple[bytes, ...], code: int, words: bytes) -> None:
    async with open_box() as box:
        ran = await box.run(Command(argv))
    assert ran.code == code
    assert words in ran.stderr


async def test_a_working_directory_that_is_gone_is_said() -> None:
    async with open_box() as box:
        ran = await box.run(bash("true", cwd=b"nowhere"))
        assert ran.code == 126
        assert b"working directory" in ran.stderr
        assert (await box.run(bash("true"))).code == 0


async def test_the_environment_is_exactly_what_was_given() -> None:
    async with open_box() as box:
        ran = await box.run(Command((b"/usr/bin/env",), environment=((b"EXTRA", b"1"),)))
    names = {line.split(b"=")[0] for line in ran.stdout.splitlines()}
    assert names == {name.encode() for name in environment.PRESETS} | {b"LANG", b"TERM", b"EXTRA"}


async def test_standard_input_is_at_its_end() -> None:
    async with open_box() as box:
        assert (await box.run(bash("cat; echo done"))).stdout == b"done\n"


async def test_standard_streams_can_be_opened_by_name() -> None:
    async with open_box() as box:
        ran = await box.run(bash("cat /dev/stdin; echo out > /dev/stdout; echo err > /dev/stderr; echo fd > /proc/self/fd/1"))
    assert (ran.code, ran.stdout, ran.stderr) == (0, b"out\nfd\n", b"err\n")


async def test_output_beyond_the_bound_is_counted_and_dropped() -> None:
    async with open_box() as box:
        ran = await box.run(bash("head -c 5000000 /dev/zero; head -c 100 /dev/zero >&2", keep=1000))
    assert (len(ran.stdout), ran.dropped_stdout) == (1000, 4_999_000)
    assert (len(ran.stderr), ran.dropped_stderr) == (100, 0)


async def test_output_is_shown_as_it_comes() -> None:
    seen: list[tuple[int, bytes]] = []
    async with open_box() as box:
        await box.run(bash("echo one; sleep 0.2; echo two >&2"), lambda stream, data: seen.append((stream, data)))
    assert seen == [(1, b"one\n"), (2, b"two\n")]


async def test_a_command_over_its_time_is_killed_with_all_that_it_started() -> None:
    marker = f"3{uuid.uuid4().int % 10**8}"
    async with open_box() as box:
        began = time.monotonic()
        script = f"trap '' TERM; setsid sleep {marker} & (setsid nohup sleep {marker} >/dev/null 2>&1 &)"
        script += f"; echo out; sleep {marker}"
        ran = await box.run(bash(script, timeout=1))
        assert time.monotonic() - began < 5
        assert ran.timed_out
        assert ran.stdout == b"out\n"
        assert boxes.processes_of(marker) == []
        assert (await box.run(bash("echo alive"))).stdout == b"alive\n"


async def test_what_a_command_leaves_lives_on_and_the_call_returns() -> None:
    marker = f"4{uuid.uuid4().int % 10**8}"
    async with open_box() as box:
        with trio.fail_after(5):
            ran = await box.run(bash(f"(sleep {marker} &); echo done", timeout=math.inf))
        assert ran.stdout == b"done\n"
        assert len(boxes.processes_of(marker)) == 1
        with trio.fail_after(5):
            again = await box.run(bash("exec > >(cat); echo a"))
        assert again.stdout == b"a\n"
    assert boxes.processes_of(marker) == []


async def test_cancellation_kills_the_tree_and_leaves_the_sandbox() -> None:
    marker = f"5{uuid.uuid4().int % 10**8}"
    async with open_box() as box:
        with trio.move_on_after(0.5) as scope:
            await box.run(bash(f"setsid sleep {marker} & sleep {marker}", timeout=60))
        assert scope.cancelled_caught
        assert boxes.processes_of(marker) == []
        assert (await box.run(bash("echo alive"))).stdout == b"alive\n"


async def test_commands_run_side_by_side() -> None:
    async with open_box() as box:
        results: dict[int, bytes] = {}

        async def one(number: int) -> None:
            results[number] = (await box.run(bash(f"sleep 0.{number}; echo {number}"))).stdout

        async with trio.open_nursery() as nursery:
            for number in range(5):
                nursery.start_soon(one, number)
    assert results == {n: b"%d\n" % n for n in range(5)}


async def test_kill_ends_everything_and_running_commands_are_told() -> None:
    async with open_box() as box:
        async with trio.open_nursery() as nursery:

            async def doomed() -> None:
                with pytest.raises(ChannelBroken):
                    await box.run(bash("sleep 1000", timeout=2000))

            nursery.start_soon(doomed)
            await trio.testing.wait_all_tasks_blocked(0.05)
            await box.kill()
        with pytest.raises(ChannelBroken):
            await box.run(bash("true"))


async def test_an_error_of_the_caller_comes_out_as_it_is() -> None:
    with pytest.raises(ZeroDivisionError):
        async with open_box():
            raise ZeroDivisionError


async def test_nothing_remains_and_nothing_is_shared() -> None:
    before = set(os.listdir("/proc"))
    async with open_box() as first, open_box() as second:
        await first.run(bash("for d in /tmp ~ /dev/shm; do echo secret > $d/x; done; ipcmk -M 4096 >/dev/null"))
        seen = await output(second, "cat /tmp/x ~/x /dev/shm/x 2>&1 | grep -c secret; ipcs -m | grep -c ^0x")
        assert seen.splitlines() == ["0", "0"]
        kinds = ("mnt", "pid", "net", "ipc", "uts", "user", "cgroup")
        script = "for n in " + " ".join(kinds) + "; do readlink /proc/self/ns/$n; done"
        one, two = (await output(first, script)).splitlines(), (await output(second, script)).splitlines()
        outside = [os.readlink(f"/proc/self/ns/{kind}") for kind in kinds]
        assert all(len({a, b, c}) == 3 for a, b, c in zip(one, two, outside, strict=True))
    left = {name for name in set(os.listdir("/proc")) - before if name.isdecimal()}
    assert not {pid for pid in left if _argv0(pid) == b"lemni-init"}


async def test_mountinfo_and_cgroup_tell_nothing_of_the_host() -> None:
    async with open_box() as box:
        mounts = await output(box, "cat /proc/self/mountinfo /proc/self/mounts")
        assert "lemni-box" not in mounts
        assert "/var/tmp" not in mounts
        assert os.path.expanduser("~") not in mounts or os.path.expanduser("~") == "/"
        groups = await output(box, "cat /proc/self/cgroup")
        assert all(line.split(":")[2] in ("/", "") for line in groups.splitlines() if boxes.host().cgroups.version)


async def test_the_account_inside_is_the_owner_of_the_files() -> None:
    async with open_box(files={"a": ""}) as box:
        uid = str(os.geteuid() or 1000)
        assert (await output(box, "id -u; stat -c %u a; touch new; stat -c %u new; id -un; hostname")).split() == [
            uid, uid, uid, "agent", "lemni",
        ]  # fmt: skip


@pytest.mark.needs("root")
async def test_no_process_of_a_root_supervisor_is_host_root() -> None:
    marker = f"6{uuid.uuid4().int % 10**8}"
    async with open_box() as box:
        await box.run(bash(f"sleep {marker} >/dev/null 2>&1 &"))
        (pid,) = boxes.processes_of(marker)
        assert os.stat(f"/proc/{pid}").st_uid == box.ids.command_host_uid != 0


async def test_usage_is_told_after_the_end_too() -> None:
    async with open_box() as box:
        await box.run(bash("i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done"))
    used = box.usage()
    assert used.cpu_us > 1000
    assert used.memory_peak > 100_000
    assert used.processes_peak >= 1


async def test_the_wall_stops_the_sandbox() -> None:
    async with open_box(Limits(wall_seconds=1)) as box:
        with trio.fail_after(10):
            with pytest.raises(ChannelBroken):
                await box.run(bash("sleep 1000", timeout=2000))
            stop = await box.exceeded()
    assert (stop.what, stop.limit) == ("wall_seconds", 1)


def _argv0(pid: str) -> bytes:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read().split(b"\0")[0]
    except OSError:
        return b""
