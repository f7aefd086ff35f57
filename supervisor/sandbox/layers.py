"""The isolation layers in words: what is on, which kernel fact says so, and what to do where it is off. Pure.

One list serves ``lemni doctor``, the session frame of the journal and every refusal, so that they cannot disagree.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from profiles.landlock import lost
from profiles.model import Profile
from supervisor.errors import LemniError
from supervisor.sandbox.groups import CgroupHost
from supervisor.types import Layer

LIMITS = frozenset({"cgroup memory", "cgroup pids", "cgroup cpu"})  # what limitsEnforcement: required asks for

USER = "user namespace"
# What was being done when the host refused a user namespace, or one of all that are made together.
MAKING_NAMESPACE, MAKING_NAMESPACES = "making a user namespace", "creating the namespaces"

DEBIAN = "Debian: sysctl -w kernel.unprivileged_userns_clone=1"
UBUNTU = (
    "Ubuntu 24.04: allow user namespaces to lemni with an AppArmor profile (flags=(unconfined) { userns, }), "
    "or sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"
)
RHEL = "RHEL: sysctl -w user.max_user_namespaces=15000"
COVERED = (
    "run lemni outside the container, or give the container an unmasked /proc "
    "(podman: --security-opt unmask=ALL, docker: --security-opt systempaths=unconfined)"
)
FILTERED = (
    "Linux 5.12 or later; inside a container, let its seccomp filter pass clone3, seccomp, openat2 and the mount calls "
    "(open_tree, move_mount, fsopen, fsconfig, fsmount, mount_setattr, mount, umount2, pivot_root), "
    "and let no security module of it forbid mounts; or run lemni outside it"
)
PROC = "mount it (mount -t proc proc /proc), or run lemni where it is mounted"
NO_OVERLAY = (
    "load it (modprobe overlay), and let the state directory (XDG_STATE_HOME) lie on a local file system (ext4, xfs, btrfs, "
    "tmpfs); until then each session works on a copy of the project, which takes longer"
)
NO_IDMAP = (
    "Linux 5.19 or later, and the project on a file system that has them (ext4, xfs, btrfs, tmpfs); until then the project "
    "of another owner is copied for each session, which takes longer"
)
DELEGATE = (
    "run lemni below a delegated subtree (systemd-run --user --scope -p Delegate=yes lemni …) on cgroup v2, or as root; "
    "until then the limits are watched from outside and backed by resource limits, and the share of the CPUs by affinity"
)


def describe(
    *,
    privileged: bool,
    namespaces_missing: tuple[str, ...],
    switches: Mapping[str, int],
    proc_covered: tuple[str, ...],
    seccomp: bool,
    landlock_abi: int,
    apparmor: bool,
    cgroups: CgroupHost,
    openat2: str,
    profile: Profile,
) -> tuple[Layer, ...]:
    """Every layer, in the order in which they are put on. ``openat2``: "", or the errno's name with which it is refused."""
    return (
        _user(privileged, namespaces_missing, switches),
        *(_namespace(name, label, namespaces_missing) for name, label in _OTHERS),
        Layer("proc", not proc_covered, _covered(proc_covered), "" if not proc_covered else COVERED, required=True),
        Layer(
            "separate ids", privileged, "init and commands have ids of their own" if privileged else "one id can be mapped",
            "" if privileged else "as root each sandbox has two host ids of its own",
        ),
        Layer("no_new_privs", True, "prctl", required=True),
        Layer(
            "seccomp", seccomp, "kill, errno, allow" if seccomp else "CONFIG_SECCOMP_FILTER is off",
            "" if seccomp else "use a kernel with CONFIG_SECCOMP_FILTER", required=True,
        ),
        _landlock(landlock_abi, profile),
        Layer("apparmor", False, f"{'offered' if apparmor else 'absent'}, and not used: lemni ships no profile for it yet"),
        *_groups(cgroups),
        Layer(
            "openat2", not openat2, openat2 or "the file tools cannot leave the working copy", FILTERED if openat2 else "",
            required=True,
        ),
        Layer("disk", True, "tmpfs sizes are enforced; the working copy is watched and bounded per file"),
    )


def refused_namespaces(found: Sequence[Layer], error: LemniError) -> list[Layer]:
    """The layers after a trial that got no namespaces: then they are not offered here, whatever the switches say."""
    if error.doing not in (MAKING_NAMESPACE, MAKING_NAMESPACES):
        return list(found)
    refused = f"this or another namespace is refused here ({error.errno_name})"
    return [replace(layer, on=False, fact=refused, remedy=error.remedy or "") if layer.name == USER and layer.on else layer
            for layer in found]


def overlay(refused: str) -> Layer:
    """Whether a working copy can be an overlay, from a trial; ``refused`` is why not, or empty."""
    return Layer("overlay", not refused, refused or "mounted as a working copy", NO_OVERLAY if refused else "")


def idmapped(offered: bool) -> Layer:
    """Whether root can show a project to a sandbox's ids without a copy, from a trial."""
    fact = "a mount with other owners was made" if offered else "the file system of the state directory refuses one"
    return Layer("idmapped mounts", offered, fact, "" if offered else NO_IDMAP)


_OTHERS = (
    ("mnt", "mount namespace"), ("pid", "pid namespace"), ("net", "network namespace"), ("ipc", "ipc namespace"),
    ("uts", "uts namespace"), ("cgroup", "cgroup namespace"),
)


def userns_remedy(switches: Mapping[str, int]) -> tuple[str, str]:
    """(fact, remedy) of the switch that is known to forbid user namespaces to ordinary users; empty when none is."""
    if switches.get("max_user_namespaces") == 0:
        return "user.max_user_namespaces is 0", RHEL
    if switches.get("unprivileged_userns_clone") == 0:
        return "kernel.unprivileged_userns_clone is 0", DEBIAN
    if switches.get("apparmor_restrict_unprivileged_userns") == 1:
        return "kernel.apparmor_restrict_unprivileged_userns is 1", UBUNTU
    return "", ""


def _user(privileged: bool, missing: tuple[str, ...], switches: Mapping[str, int]) -> Layer:
    if "user" in missing:
        return Layer(USER, False, "CONFIG_USER_NS is off", "use a kernel with CONFIG_USER_NS", required=True)
    if switches.get("max_user_namespaces") == 0:
        return Layer(USER, False, "user.max_user_namespaces is 0", RHEL, required=True)
    fact, remedy = ("", "") if privileged else userns_remedy(switches)
    # AppArmor's switch forbids what is done inside, not the namespace, and a profile may lift it: only opening tells.
    closed = bool(fact) and remedy is not UBUNTU
    return Layer(USER, not closed, fact or "offered", remedy if closed or remedy is UBUNTU else "", required=True)


def _namespace(name: str, label: str, missing: tuple[str, ...]) -> Layer:
    absent = name in missing
    remedy = f"use a kernel with the {label}" if absent else ""
    return Layer(label, not absent, "absent" if absent else "offered", remedy, required=True)


def _covered(points: tuple[str, ...]) -> str:
    if not points:
        return "a fresh proc can be mounted"
    return f"/proc is partly covered ({', '.join(points[:3])}{', …' if len(points) > 3 else ''})"


def _landlock(abi: int, profile: Profile) -> Layer:
    missing = lost(profile.landlock, abi)
    if "all" in missing:
        fact = f"ABI {abi} is too old" if abi else "absent"
        return Layer("landlock", False, fact, "Linux 5.19 or later with landlock in the lsm= list", profile.landlock.required)
    fact = f"ABI {abi}" + (f", without {', '.join(missing)}" if missing else "")
    return Layer("landlock", True, fact, "", profile.landlock.required)


def _groups(host: CgroupHost) -> tuple[Layer, ...]:
    have = {controller for controller, _ in host.bases}
    made = []
    for controller in ("memory", "pids", "cpu"):
        on = controller in have
        fact = f"v{host.version}" if on else (host.why or f"v{host.version} without this controller")
        made.append(Layer(f"cgroup {controller}", on, fact, "" if on else DELEGATE))
    return tuple(made)
