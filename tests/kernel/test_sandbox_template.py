"""A root that was made before: seen from inside it is the one that init builds, nobody can write to it, and it is given up."""
from __future__ import annotations

import errno
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from profiles.load import shipped
from profiles.model import Scratch
from supervisor.errors import LaunchFailed
from supervisor.sandbox import facts, launch, opening, ops, template
from supervisor.sandbox.holder import Holder
from supervisor.sandbox.ids import HOLDER_ID, holding, ordinary, privileged
from supervisor.sandbox.machine import Entry
from supervisor.sandbox.plan import Draft, Layers
from supervisor.sandbox.spec import Limits
from supervisor.sandbox.template import Templates
from supervisor.sandbox.wire import Request
from support.boxes import host, open_box, output
from support.children import children

pytestmark = [
    pytest.mark.kernel, pytest.mark.needs("userns", "overlay", "seccomp", "bash"),
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
    ids = privileged(0, 0, 0, True) if host().privileged else ordinary(host().uid, host().gid)
    return Draft(
        host=host(), profile=shipped(), ids=ids.inside(), limits=Limits(),
        copies=tuple(Layers(target, b"u", b"w") for target in targets), files=(), loopback=False, joins=0, watched=True,
        detached=host().privileged,
    )  # fmt: skip


def holder(templates: Templates) -> int:
    """The pid of the one holder there is."""
    (tree,) = (tree for tree in templates._trees.values() if tree is not None)
    text = Path(f"/proc/self/fdinfo/{tree.holder._pidfd}").read_text()
    return int(dict(line.split(":\t") for line in text.splitlines())["Pid"])


def kill_holder(templates: Templates) -> int:
    killed = holder(templates)
    os.kill(killed, signal.SIGKILL)
    os.waitid(os.P_PID, killed, os.WEXITED | os.WNOWAIT)  # it is dead, and left for its owner to reap
    return killed


def status(pid: int) -> dict[str, list[str]]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: values.split() for name, values in (line.split(":", 1) for line in lines)}


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


@pytest.mark.needs("root")
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


def test_only_so_many_kinds_are_kept_and_none_at_the_end(templates: Templates) -> None:
    before, ours = set(os.listdir("/proc/self/fd")), children()
    for number in range(2 * template.KINDS + 1):
        kind = draft(b"/workspace", b"/%d" % number)
        assert not fresh(templates, kind)
        assert fresh(templates, kind)
        assert len(children() - ours) <= template.KINDS
    templates.close()
    assert children() == ours  # zombies too would be listed
    assert len(set(os.listdir("/proc/self/fd")) - before) == 0


def test_who_holds_it_is_shut_in(templates: Templates) -> None:
    made = draft(b"/workspace")
    assert not fresh(templates, made)
    assert fresh(templates, made)
    pid = holder(templates)
    found = status(pid)
    assert found["NoNewPrivs"] == ["1"]
    assert set(found["Uid"] + found["Gid"]) == {str(HOLDER_ID if os.geteuid() == 0 else os.getuid())}
    if os.geteuid() == 0:
        assert Path(f"/proc/{pid}/environ").read_bytes() == b""
    else:
        with pytest.raises(PermissionError):  # it is not dumpable: its memory is closed to others of the same uid
            Path(f"/proc/{pid}/environ").read_bytes()
    places = [line.split()[4] for line in Path(f"/proc/{pid}/mountinfo").read_text().splitlines()]
    assert places[0] == "/"
    assert "/proc" not in places
    for name in ("user", "mnt", "pid", "net", "ipc", "uts"):
        assert os.readlink(f"/proc/{pid}/ns/{name}") != os.readlink(f"/proc/self/ns/{name}")


async def test_an_opening_does_without_when_it_was_killed(templates: Templates) -> None:
    for turn in range(2):
        async with open_box():
            pass
        if turn:
            killed = kill_holder(templates)
    async with open_box() as box:
        assert await output(box, "echo here") == "here"
    async with open_box() as box:
        assert holder(templates) != killed
        assert await output(box, "echo here") == "here"


def test_one_that_is_killed_while_the_next_clone_is_due_is_given_up(templates: Templates) -> None:
    made = draft(b"/workspace")
    assert not fresh(templates, made)
    assert fresh(templates, made)
    kill_holder(templates)
    templates.prepare()
    assert list(templates._trees.values()) == [None]
    assert fresh(templates, made)


def test_a_host_that_refuses_is_asked_so_often(templates: Templates, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = 0

    def refuse(**_: object) -> None:
        nonlocal refused
        refused += 1
        raise LaunchFailed("creating the namespaces", errno=errno.ENOSPC)

    monkeypatch.setattr(launch, "begin", refuse)
    for _ in range(3 * template.ATTEMPTS):
        assert not fresh(templates, draft(b"/workspace"))
    assert refused == template.ATTEMPTS


@pytest.mark.parametrize(
    ("steps", "code"),
    [
        ((ops.Symlink(b"/a", b"usr"), ops.Dir(b"/a/b")), errno.ELOOP),  # through a link
        ((ops.Bind(b"/absent", b"/a", ops.RO),), errno.ENOENT),
        ((ops.HandOver(Request.HAND_WORKDIR),), errno.EBADF),
    ],
)
def test_what_is_wrong_in_it_is_said_and_leaves_nothing(steps: tuple[ops.Op, ...], code: int) -> None:
    before, ours = set(os.listdir("/proc/self/fd")), children()
    ids = holding(host().privileged, host().uid, host().gid)
    take = ops.TakeIds(ids.init_uid, ids.init_gid, clear_groups=not ids.setgroups_denied)
    made = Holder((take, ops.NewRoot(1 << 20, 100), *steps), launch.IdMaps(ids.uid_map, ids.gid_map, ids.setgroups_denied))
    with pytest.raises(LaunchFailed) as caught:
        made.clone()
    assert caught.value.errno == code
    made.close()
    assert set(os.listdir("/proc/self/fd")) == before
    assert children() == ours


def test_a_fork_lets_go_of_it_and_leaves_it_to_its_parent(templates: Templates) -> None:
    made = draft(b"/workspace")
    assert not fresh(templates, made)
    assert fresh(templates, made)
    pid = os.fork()
    if pid == 0:
        os._exit(0 if not fresh(templates, made) and fresh(templates, made) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    kept = holder(templates)
    assert fresh(templates, made)
    assert holder(templates) == kept


def test_it_ends_with_its_supervisor() -> None:
    root = Path(__file__).parents[2]
    script = (
        f"import sys, time; sys.path[:0] = {[str(root), str(root / 'tests')]!r}\n"
        "from kernel.test_sandbox_template import draft, fresh, holder\n"
        "from supervisor.sandbox.template import Templates\n"
        "own, made = Templates(), draft(b'/workspace')\n"
        "assert not fresh(own, made) and fresh(own, made)\n"
        "print(holder(own), flush=True); sys.stdin.read()\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        pidfd = os.pidfd_open(int(child.stdout.readline()))
        child.kill()
        assert select.select([pidfd], [], [], 60)[0]
        os.close(pidfd)
