"""The machine's facts, and the trial that ``doctor`` makes of them."""
from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from profiles.load import shipped
from supervisor.errors import HostUnfit
from supervisor.sandbox import facts
from supervisor.sandbox.examine import TRIAL, examine
from supervisor.sandbox.spec import Limits, SandboxSpec
from supervisor.sandbox.usage import Watched, descendants
from supervisor.types import Layer
from support.boxes import host

pytestmark = pytest.mark.kernel
LACKING = Layer("cgroup memory", False, "v1: memory not writable", "delegate")


def test_facts_agree_with_who_asks() -> None:
    assert (host().uid, host().gid) == (os.geteuid(), os.getegid())
    assert host().privileged is (os.geteuid() == 0)
    assert host().seccomp
    assert {layer.name for layer in host().layers} >= {"user namespace", "seccomp", "landlock", "cgroup memory", "proc"}


def test_the_view_holds_what_is_there_and_no_secret() -> None:
    paths = {entry.path for entry in (*host().view.trees, *host().view.etc)}
    assert b"/usr" in paths
    assert not paths & {b"/etc/shadow", b"/etc/passwd", b"/home", b"/root", b"/etc"}


@pytest.mark.needs("userns", "overlay", "seccomp")
async def test_the_trial_opens_a_sandbox_and_leaves_nothing(public_tmp: Path) -> None:
    layers = await examine(public_tmp / "state")
    assert layers[-1].name == TRIAL
    assert layers[-1].on, layers[-1]
    assert [path.name for path in (public_tmp / "state").iterdir() if path.name.startswith("trial")] == []


@pytest.mark.needs("root", "userns")
def test_a_covered_proc_is_told_with_its_remedy(tmp_path: Path) -> None:
    script = (
        "import sys; sys.path.insert(0, sys.argv[1])\nimport trio\nfrom pathlib import Path\n"
        "from supervisor.sandbox.examine import examine\n"
        "layers = {l.name: l for l in trio.run(examine, Path(sys.argv[2]))}\n"
        "assert not layers['proc'].on and not layers['trial'].on, layers\nprint(layers['trial'].remedy)\n"
    )
    cover = "mount --bind /dev/null /proc/kcore 2>/dev/null || mount --bind /dev/null /proc/version; exec \"$@\""
    root = str(Path(__file__).parents[2])
    argv = ["unshare", "-m", "sh", "-c", cover, "-", sys.executable, "-c", script, root, str(tmp_path)]
    ran = subprocess.run(argv, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert "unmask" in ran.stdout


def test_required_limits_without_groups_are_refused() -> None:
    without = replace(host(), layers=tuple(LACKING if x.name == LACKING.name else x for x in host().layers))
    facts.require(without, SandboxSpec((), Limits()), shipped())
    with pytest.raises(HostUnfit) as caught:
        facts.require(without, SandboxSpec((), Limits(), required_limits=True), shipped())
    assert caught.value.on == "cgroup memory"
    assert caught.value.remedy == "delegate"


def test_a_watched_tree_is_found_whole() -> None:
    script = "sleep 1000 & (sleep 1000 & echo; wait) & wait"
    with subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE, start_new_session=True) as shell:
        try:
            assert shell.stdout is not None
            shell.stdout.readline()
            watched = Watched()
            watched.launched(shell.pid)
            assert shell.pid in descendants(shell.pid)
            assert len(descendants(shell.pid)) == 4
            assert watched.sample().processes == 4
        finally:
            os.killpg(shell.pid, signal.SIGKILL)  # one by one, a parent would end with its child, unseen
