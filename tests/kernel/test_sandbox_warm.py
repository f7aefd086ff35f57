"""Warm sandboxes: used once, shared by nobody, and nothing is left of those that nobody took."""
from __future__ import annotations

import os
from pathlib import Path

import pytest

from profiles.load import shipped
from supervisor.sandbox import cgroup
from supervisor.sandbox.examine import overlay_copy, remove
from supervisor.sandbox.life import open_sandbox
from supervisor.sandbox.spec import Limits, SandboxSpec
from supervisor.sandbox.warm import warm_pool
from support.boxes import bash, host
from support.children import children

pytestmark = [pytest.mark.kernel, pytest.mark.needs("userns", "overlay", "seccomp", "bash")]


async def test_a_warm_sandbox_is_like_any_other(public_tmp: Path) -> None:
    project = public_tmp / "project"
    project.mkdir()
    (project / "a").write_text("hello\n")
    root = os.fsencode(project)
    async with warm_pool(host(), public_tmp / "state", shipped(), Limits(), root, os.geteuid(), os.getegid()) as pool:
        await pool.fill(2)
        seen: set[bytes] = set()
        for number in range(2):
            warm = pool.take()
            assert warm is not None
            scratch = public_tmp / f"scratch{number}"
            scratch.mkdir(mode=0o700)
            with warm.held:
                spec = SandboxSpec((overlay_copy(project, scratch, warm.claim),), Limits(), files=((b"/home/agent/x", b"y"),))
                async with open_sandbox(spec, host(), warm.claim, shipped(), warm.opened) as box:
                    script = "cat a ~/x; echo b > b; readlink /proc/self/ns/mnt; grep -c Seccomp:.2 /proc/self/status"
                    ran = await box.run(bash(script))
            lines = ran.stdout.splitlines()
            assert (lines[0], lines[1][:5], lines[-1]) == (b"hello", b"ymnt:", b"1")
            assert (scratch / "upper/b").read_text() == "b\n"
            seen.add(lines[1])
            remove(scratch)
        assert len(seen) == 2
        assert pool.take() is None


async def test_another_kind_is_refused_and_destroyed(public_tmp: Path) -> None:
    root = os.fsencode(public_tmp)
    async with warm_pool(host(), public_tmp / "state", shipped(), Limits(), root, os.geteuid(), os.getegid()) as pool:
        await pool.fill(1)
        warm = pool.take()
        assert warm is not None
        with warm.held, pytest.raises(ValueError, match="another kind"):
            async with open_sandbox(SandboxSpec((), Limits(memory=1 << 30)), host(), warm.claim, shipped(), warm.opened):
                raise AssertionError
        assert not any(os.path.exists(path) for path in cgroup.directories(host().cgroups, warm.claim.slot.name))


async def test_those_that_wait_go_with_the_pool(public_tmp: Path) -> None:
    root = os.fsencode(public_tmp)
    async with warm_pool(host(), public_tmp / "state", shipped(), Limits(), root, os.geteuid(), os.getegid()) as pool:
        await pool.fill(3)
        assert len(children()) == 3
    assert not children()
