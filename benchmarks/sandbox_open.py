"""A sandbox with every layer on, beside bubblewrap with none of seccomp, Landlock and cgroups; a command, beside posix_spawn.

Ours is opened in process, as a session does it: overlay working copy, cgroup, seccomp, Landlock, network looked at.
"""
from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import trio

from benchmarks.measure import Row, Samples, compare
from profiles.load import shipped
from supervisor.sandbox import facts
from supervisor.sandbox.claims import claim
from supervisor.sandbox.examine import overlay_copy, remove, scratch_sandbox
from supervisor.sandbox.life import open_sandbox
from supervisor.sandbox.spec import Command, Limits, SandboxSpec
from supervisor.sandbox.warm import warm_pool
from supervisor.workspace.apart import keep_apart

BWRAP = ["bwrap", "--unshare-all", "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "/bin/true"]
WARM_ROUNDS = 3  # not counted
TRUE = Command((b"/bin/true",))
Side = Callable[[], Awaitable[None]]


def rows(quick: bool) -> list[Row]:
    return trio.run(_measure, 15 if quick else 150)


async def _measure(rounds: int) -> list[Row]:
    profile = shipped()
    host = facts.read(profile)
    with tempfile.TemporaryDirectory(prefix="lemni-bench-", dir="/var/tmp") as directory:
        state = Path(directory)
        keep_apart(state)  # as a session's scratch is
        project = state / "project"
        project.mkdir(mode=0o755)
        bwrap = shutil.which("bwrap")
        whole: list[float] = []
        opened: list[float] = []
        warmed: list[float] = []
        scratches: list[Path] = []

        async def ours() -> None:
            scratch = Path(tempfile.mkdtemp(dir=state))
            with claim(host, state, os.fsencode(project), host.uid, host.gid) as taken:
                spec = SandboxSpec((overlay_copy(project, scratch, taken),), Limits())
                began = time.perf_counter_ns()
                async with open_sandbox(spec, host, taken, profile) as box:
                    opened.append(box.opened_us)
                    await box.run(TRUE)
                whole.append((time.perf_counter_ns() - began) / 1000)
            scratches.append(scratch)

        async def warm() -> None:
            ready = pool.take()
            assert ready is not None
            scratch = Path(tempfile.mkdtemp(dir=state))
            with ready.held:
                spec = SandboxSpec((overlay_copy(project, scratch, ready.claim),), Limits())
                began = time.perf_counter_ns()
                async with open_sandbox(spec, host, ready.claim, profile, ready.opened) as box:
                    await box.run(TRUE)
                warmed.append((time.perf_counter_ns() - began) / 1000)
            scratches.append(scratch)

        async def theirs() -> None:
            _spawn(BWRAP)

        async with warm_pool(host, state, profile, Limits(), os.fsencode(project), host.uid, host.gid) as pool:
            await pool.fill(rounds + WARM_ROUNDS)
            sides: dict[str, Side] = {"ours": ours, "warm": warm}
            if bwrap:
                sides["bwrap"] = theirs
            taken = await _interleave(sides, rounds)
        for scratch in scratches:  # now: bubblewrap leaves nothing that its round would have to remove
            remove(scratch)
        measured = Samples(tuple(whole[-rounds:]))  # without the scratch directory, which is the workspace's business
        ready = Samples(tuple(warmed[-rounds:]))
        found = [
            compare("sandbox: open, /bin/true, destroyed", measured, taken.get("bwrap"), "bwrap … /bin/true", 0.6),
            compare("sandbox: the same, from a warm pool", ready, taken.get("bwrap"), "bwrap … /bin/true", 0.6),
            compare("sandbox: until the first command may run", Samples(tuple(opened[-rounds:])), None, "", None),
        ]
        async with scratch_sandbox(host, state, profile) as box:

            async def further() -> None:
                await box.run(TRUE)

            async def spawn() -> None:
                _spawn(["/bin/true"])

            commands = await _interleave({"ours": further, "spawn": spawn}, rounds * 2)
        found.append(compare("sandbox: a further command", commands["ours"], commands["spawn"], "posix_spawn /bin/true", 1.5))
        return found


def _spawn(argv: list[str]) -> None:
    os.waitpid(os.posix_spawnp(argv[0], argv, os.environ), 0)


async def _interleave(sides: dict[str, Side], rounds: int, warm: int = WARM_ROUNDS) -> dict[str, Samples]:
    taken: dict[str, list[float]] = {name: [] for name in sides}
    names = list(sides)
    for i in range(rounds + warm):
        for name in names[i % len(names) :] + names[: i % len(names)]:
            began = time.perf_counter_ns()
            await sides[name]()
            if i >= warm:
                taken[name].append((time.perf_counter_ns() - began) / 1000)
    return {name: Samples(tuple(values)) for name, values in taken.items()}
