"""Layers in words: each thing that can be missing has its fact, and its remedy where there is one."""
from __future__ import annotations

import errno
from dataclasses import replace
from typing import Any

import pytest

from profiles.load import shipped
from supervisor.errors import HostUnfit, LaunchFailed
from supervisor.sandbox import failures, layers
from supervisor.sandbox.groups import CgroupHost
from supervisor.sandbox.ops import NewRoot, Op, Overlay, Proc, TakeIds, Tmpfs, UnshareCgroup
from supervisor.sandbox.plan import seal, whole
from supervisor.sandbox.wire import Failed, PlanFault
from supervisor.types import Layer
from support.drafts import DRAFT

FIT: dict[str, Any] = {
    "privileged": False, "namespaces_missing": (), "switches": {}, "proc_covered": (), "seccomp": True, "landlock_abi": 7,
    "apparmor": False, "cgroups": CgroupHost(2, (("memory", "/x"), ("pids", "/x"), ("cpu", "/x"))), "openat2": "",
    "profile": shipped(),
}  # fmt: skip


def named(name: str, **changes: Any) -> Layer:
    return next(layer for layer in layers.describe(**FIT | changes) if layer.name == name)


def test_a_fit_machine_lacks_nothing_that_is_required() -> None:
    assert all(layer.on for layer in layers.describe(**FIT) if layer.required)


@pytest.mark.parametrize(
    ("name", "changes", "remedy"),
    [
        ("user namespace", {"switches": {"unprivileged_userns_clone": 0}}, "Debian"),
        ("user namespace", {"switches": {"max_user_namespaces": 0}}, "RHEL"),
        ("user namespace", {"namespaces_missing": ("user",)}, "CONFIG_USER_NS"),
        ("proc", {"proc_covered": ("/proc/kcore",)}, "unmask"),
        ("seccomp", {"seccomp": False}, "CONFIG_SECCOMP_FILTER"),
        ("openat2", {"openat2": "ENOSYS"}, "seccomp filter"),
        ("network namespace", {"namespaces_missing": ("net",)}, "network namespace"),
    ],
)
def test_what_is_missing_is_off_required_and_has_a_remedy(name: str, changes: dict[str, Any], remedy: str) -> None:
    layer = named(name, **changes)
    assert not layer.on
    assert layer.required
    assert remedy in layer.remedy


def test_ubuntus_switch_is_named_and_left_to_the_trial() -> None:
    layer = named("user namespace", switches={"apparmor_restrict_unprivileged_userns": 1})
    assert layer.on  # a profile may lift it: only opening tells
    assert "Ubuntu" in layer.remedy


def test_switches_for_ordinary_users_do_not_stop_root() -> None:
    assert named("user namespace", privileged=True, switches={"unprivileged_userns_clone": 0}).on


def test_a_trial_that_got_no_namespaces_says_more_than_the_switches() -> None:
    found = (Layer("user namespace", True, "offered", required=True), Layer("proc", True, "fresh"))
    for code in (errno.EPERM, errno.ENOSPC):
        refused = failures.unfit(LaunchFailed(layers.MAKING_NAMESPACES, errno=code), {})
        user, proc = layers.refused_namespaces(found, refused)
        assert (user.on, user.required, proc) == (False, True, found[1])
        assert errno.errorcode[code] in user.fact
        assert "sysctl" in user.remedy
    other = HostUnfit("mounting a fresh /proc", errno=errno.EPERM)
    assert layers.refused_namespaces(found, other) == list(found)


def test_landlock_is_announced_not_required() -> None:
    assert (named("landlock", landlock_abi=0).on, named("landlock", landlock_abi=0).required) == (False, False)
    assert "signal" in named("landlock", landlock_abi=4).fact


def test_limits_without_groups_say_why_and_what_to_do() -> None:
    layer = named("cgroup memory", cgroups=CgroupHost(0, why="v2: no subtree is delegated to this user"))
    assert not layer.on
    assert "delegated" in layer.fact
    assert "systemd-run" in layer.remedy


STEPS = whole(DRAFT, None)  # an ordinary user's
RESTRICTED = {"apparmor_restrict_unprivileged_userns": 1}


def step(kind: type[Op]) -> int:
    return next(i for i, op in enumerate(STEPS) if isinstance(op, kind))


@pytest.mark.parametrize(
    ("failed", "switches", "words"),
    [
        (Failed(step(Proc), 11, 1, PlanFault.NONE), {}, "unmask"),
        (Failed(step(TakeIds), 3, 1, PlanFault.NONE), RESTRICTED, "Ubuntu"),
        (Failed(step(NewRoot), 4, 13, PlanFault.NONE), RESTRICTED, "Ubuntu"),
        (Failed(None, 0, 1, PlanFault.NETWORK), RESTRICTED, "Ubuntu"),
        (Failed(None, 0, 28, PlanFault.NETWORK), {}, "namespaces"),
        (Failed(step(NewRoot), 4, 38, PlanFault.NONE), {}, "5.12"),
        *((Failed(step(kind), 4, 1, PlanFault.NONE), {}, "seccomp filter") for kind in (NewRoot, Tmpfs)),
        *((Failed(step(kind), 4, 13, PlanFault.NONE), {}, "security module") for kind in (NewRoot, Tmpfs)),
    ],
)
def test_a_step_that_the_host_refuses_is_the_hosts_fault(failed: Failed, switches: dict[str, int], words: str) -> None:
    error = failures.failure(failed, STEPS, switches)
    assert isinstance(error, HostUnfit)
    assert error.remedy is not None
    assert words in error.remedy


def test_a_limit_on_namespaces_is_told_as_one() -> None:
    steps = seal(replace(DRAFT, joins=2), None, b"")
    number = next(i for i, op in enumerate(steps) if isinstance(op, UnshareCgroup))
    full = failures.failure(Failed(number, 2, 28, PlanFault.NONE, 1), steps, {})
    assert "max_" in str(full.remedy)
    assert "max_*_namespaces" in str(failures.unfit(LaunchFailed("creating the namespaces", errno=28), {}).remedy)
    none = failures.unfit(LaunchFailed("creating the namespaces", errno=28), {"max_user_namespaces": 0})
    assert "RHEL" in str(none.remedy)


def test_any_other_step_is_named_with_its_operand() -> None:
    error = failures.failure(Failed(step(Tmpfs), 14, 22, PlanFault.NONE), STEPS, {})
    assert not isinstance(error, HostUnfit)
    assert str(error) == "building the sandbox (Tmpfs /proc/acpi): EINVAL"
    assert "header" in str(failures.failure(Failed(None, 0, 0, PlanFault.HEADER), STEPS, {}))


def test_a_refused_overlay_has_a_code_since_a_plain_copy_can_take_its_place() -> None:
    error = failures.failure(Failed(step(Overlay), 14, 22, PlanFault.NONE), STEPS, {})
    assert str(error) == "mounting the working copy (Overlay /workspace): EINVAL"
    assert error.code == failures.OVERLAY_REFUSED
