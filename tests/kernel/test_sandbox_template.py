"""A root that was made before: seen from inside it is the one that init builds, nobody can write to it, and it is given up."""
from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from profiles.load import shipped
from profiles.model import Scratch
from supervisor.errors import InternalError, LaunchFailed
from supervisor.sandbox import facts, launch, opening, ops, plan, template
from supervisor.sandbox.ids import privileged
from supervisor.sandbox.machine import Entry
from supervisor.sandbox.plan import Draft, Layers
from supervisor.sandbox.spec import Limits
from supervisor.sandbox.template import Templates
from support.boxes import host, open_box, output

pytestmark = [
    pytest.mark.kernel, pytest.mark.needs("root", "detached_trees", "userns", "overlay", "seccomp", "bash"),
]  # fmt: skip

# Everything of the root file system itself, then the mounts: names, kinds, modes, contents; no ids, no inode numbers.
LOOK = r"""
find / -xdev -path /workspace -prune -o -printf '%p %M %l\n' | sort
find /etc -xdev -type f -readable -exec sha256sum {} + | sort
awk '{print $5, $6}' /proc/self/mountinfo | sort
cut -d' ' -f2-4 /proc/self/mounts | sed 's/,[ug]id=[0-9]*//g' | sort
stat -c '%a %u %g %n' /tmp /home/agent /dev/shm /workspace
"""


@pytest.fixture
def templates(monkeypatch: pytest.MonkeyPatch) -> Iterator[Templates]:
    """Those of this test alone."""
    own = Templates()
    monkeypatch.setattr(opening, "TEMPLATES", own)
    yield own
    own.close()


def draft(*targets: bytes) -> Draft:
    return Draft(
        host=host(), profile=shipped(), ids=privileged(0, 0, 0, True).inside(), limits=Limits(),
        copies=tuple(Layers(target, b"u", b"w") for target in targets), files=(), loopback=False, joins=0, watched=True,
        detached=True,
    )  # fmt: skip


async def test_it_looks_like_the_root_that_init_builds(templates: Templates) -> None:
    async with open_box() as box:
        built = await output(box, LOOK)
    assert list(templates._trees.values()) == [None]  # the first of its kind is built by init
    async with open_box() as box:
        adopted = await output(box, LOOK)
    assert [tree is not None for tree in templates._trees.values()] == [True]
    assert adopted == built
    assert "/etc/passwd -rw-r--r--" in built


async def test_nothing_in_it_can_be_written_and_two_share_nothing_that_can(templates: Templates) -> None:
    async with open_box():
        pass
    tried = "for place in /x /etc/x /dev/x /usr/x /workspace/x /tmp/x /home/agent/x /dev/shm/x; do (: > $place) 2>&1; done"
    async with open_box() as one, open_box() as other:
        assert [tree is not None for tree in templates._trees.values()] == [True]
        said = await output(one, tried)
        assert [line.split(" ")[-3:] for line in said.splitlines()] == [["Read-only", "file", "system"]] * 4
        assert await output(one, "ls -d /workspace/x /tmp/x /home/agent/x /dev/shm/x | wc -l") == "4"
        assert await output(other, "ls /workspace /tmp /home/agent /dev/shm | grep -c '^x$'") == "0"


def test_a_change_of_the_hosts_mounts_gives_it_up() -> None:
    root = Path(__file__).parents[2]
    script = (
        f"import os, subprocess, sys; sys.path[:0] = {[str(root), str(root / 'tests')]!r}\n"
        "from kernel.test_sandbox_template import draft, fresh\n"
        "from supervisor.sandbox.template import Templates\n"
        "own, made = Templates(), draft(b'/workspace')\n"
        "assert not fresh(own, made)\n"
        "assert fresh(own, made) and fresh(own, made)\n"
        "subprocess.run(['mount', '-t', 'tmpfs', 'none', '/mnt'], check=True)\n"
        "assert not fresh(own, made)\n"  # given up; init builds the next one
        "assert fresh(own, made)\n"
        "own.close(); print('so')\n"
    )
    done = subprocess.run(["unshare", "-m", sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.stdout == "so\n", done.stderr


def test_a_file_that_the_host_replaces_gives_its_tree_up(templates: Templates, public_tmp: Path) -> None:
    bound = public_tmp / "cache"
    bound.write_text("old")
    view = replace(host().view, etc=(Entry(b"/etc/cache", os.fsencode(bound)),))
    made = replace(draft(b"/workspace"), host=replace(host(), view=view))
    seen = []
    for turn in range(3):
        if turn == 2:
            (public_tmp / "new").write_text("new")
            (public_tmp / "new").rename(bound)  # as ldconfig does
        clone = templates.clone(made)
        if clone is not None:
            seen.append(Path(f"/proc/self/fd/{clone}/etc/cache").read_text())
            os.close(clone)
    assert seen == ["old", "new"]


async def test_a_profile_with_a_scratch_of_its_own_opens_every_time(
    templates: Templates, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = shipped().view
    own = (*view.scratch, Scratch("/srv/deep/er", 1 << 20, 100, 0o1777), Scratch("/tmp/below", 1 << 20, 100, 0o1777))
    profile = replace(shipped(), view=replace(view, scratch=own))
    machine = facts.read(profile)
    monkeypatch.setattr(facts, "read", lambda _: machine)
    for turn in range(3):
        async with open_box(profile=profile) as box:
            said = await output(box, "stat -fc %T /srv/deep/er /tmp/below | uniq")
            assert said == "tmpfs", turn
    assert [tree is not None for tree in templates._trees.values()] == [True]


def test_what_must_be_made_in_the_root_itself_is_left_to_init(templates: Templates) -> None:
    without_home = tuple(s for s in shipped().view.scratch if s.path != "/home")
    profile = replace(shipped(), view=replace(shipped().view, scratch=without_home))
    for made in (replace(draft(b"/workspace"), profile=profile), replace(draft(b"/workspace"), files=((b"/etc/own", b"x"),))):
        assert not fresh(templates, made)
        assert not fresh(templates, made)


def fresh(templates: Templates, made: Draft) -> bool:
    """Whether there is a clone to be had; it is closed."""
    clone = templates.clone(made)
    if clone is not None:
        os.close(clone)
    return clone is not None


def test_only_so_many_kinds_are_kept(templates: Templates) -> None:
    before = set(os.listdir("/proc/self/fd"))
    for number in range(3 * template.KINDS):
        kind = draft(b"/workspace", b"/%d" % number)
        assert not fresh(templates, kind)
        assert fresh(templates, kind)
    assert len(templates._trees) <= template.KINDS
    templates.close()
    assert len(set(os.listdir("/proc/self/fd")) - before) <= 1  # mountinfo


def test_who_may_not_mount_has_none(templates: Templates) -> None:
    assert not fresh(templates, replace(draft(b"/workspace"), detached=False))
    assert templates._trees == {}


@pytest.mark.parametrize(
    "steps",
    [
        [ops.Symlink(b"/a", b"usr"), ops.Dir(b"/a/b")],  # through a link
        [ops.Bind(b"/usr", b"/usr", ops.RO), ops.File(b"/usr/x", b"")],  # into the host's tree
        [ops.File(b"/a", b""), ops.File(b"/a", b"")],
        [ops.Bind(b"/absent", b"/a", ops.RO)],
        [ops.Bind(b"/proc/self", b"/a", ops.RO)],  # a link as the source
    ],
)
def test_what_is_wrong_is_refused_and_leaves_nothing(steps: list[ops.Op]) -> None:
    before = set(os.listdir("/proc/self/fd"))
    with pytest.raises(LaunchFailed):
        template.make([ops.NewRoot(1 << 20, 100), *steps])
    with pytest.raises(InternalError):
        template.make([ops.NewRoot(1 << 20, 100), ops.Pivot()])
    assert set(os.listdir("/proc/self/fd")) == before


def test_a_host_that_refuses_is_asked_once(templates: Templates, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(mount: int, below: int, name: bytes) -> None:
        raise LaunchFailed("building a detached tree", errno=22)

    monkeypatch.setattr(launch, "attach", refuse)  # as Linux before 6.15 does
    assert not fresh(templates, draft(b"/workspace"))
    assert not fresh(templates, draft(b"/workspace"))
    monkeypatch.undo()
    assert not fresh(templates, draft(b"/workspace"))


def test_the_shell_is_all_that_a_template_can_make() -> None:
    os.close(template.make(plan.shell(draft(b"/workspace", b"/gitdir"))))
