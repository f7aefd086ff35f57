"""What a failed opening means: the words for a step of the plan, or for a launch, and the remedy. Pure."""
from __future__ import annotations

import errno
from collections.abc import Mapping

from supervisor.errors import HostUnfit, LaunchFailed
from supervisor.sandbox import layers
from supervisor.sandbox.ops import (
    AdoptRoot,
    DevPts,
    MoveMount,
    Mqueue,
    NewRoot,
    Op,
    Overlay,
    Pivot,
    Proc,
    ReadOnly,
    Tmpfs,
    UnshareCgroup,
)
from supervisor.sandbox.wire import Failed, PlanFault

NAMESPACES = "a limit of user.max_*_namespaces is reached: `sysctl -a -r max_.*_namespaces` shows them, sysctl -w raises one"
_MOUNTS = (AdoptRoot, DevPts, MoveMount, Mqueue, NewRoot, Pivot, ReadOnly, Tmpfs)  # no step whose path could be closed to us
OVERLAY_REFUSED = "overlay_refused"  # by the file system of a layer (NFS, another overlay, …): a plain copy needs none


def failure(failed: Failed, steps: tuple[Op, ...], switches: Mapping[str, int]) -> LaunchFailed | HostUnfit:
    """The words for a step that failed; with the remedy where the step and the errno tell the cause."""
    refused = failed.errno in (errno.EPERM, errno.EACCES)
    restricted = refused and switches.get("apparmor_restrict_unprivileged_userns") == 1
    if failed.fault is PlanFault.NETWORK:
        remedy = NAMESPACES if failed.errno == errno.ENOSPC else layers.UBUNTU if restricted else layers.FILTERED
        return HostUnfit("making a network namespace", errno=failed.errno, remedy=remedy)
    if failed.step is None or failed.step >= len(steps):
        return LaunchFailed("checking the plan", why=failed.fault.name.lower(), code="plan_refused")
    step = steps[failed.step]
    name = type(step).__name__
    operand = getattr(step, "target", None) or getattr(step, "path", None)
    on = f"{name} {operand.decode('utf-8', 'surrogateescape')}" if isinstance(operand, bytes) else name
    if isinstance(step, Proc) and refused:
        return HostUnfit("mounting a fresh /proc", on=on, errno=failed.errno, remedy=layers.COVERED)
    if restricted and failed.part == 0 and failed.step <= _first_mount(steps):
        return HostUnfit("building inside the user namespace", on=on, errno=failed.errno, remedy=layers.UBUNTU)
    if failed.errno == errno.ENOSYS:
        return HostUnfit("building the sandbox", on=on, errno=failed.errno, remedy=layers.FILTERED)
    if isinstance(step, UnshareCgroup) and failed.errno == errno.ENOSPC:
        return HostUnfit("making a cgroup namespace", errno=failed.errno, remedy=NAMESPACES)
    if isinstance(step, Overlay):
        return LaunchFailed("mounting the working copy", on=on, errno=failed.errno, code=OVERLAY_REFUSED)
    if failed.errno == errno.EPERM or (refused and isinstance(step, _MOUNTS)):
        # The plan does nothing that init's own namespace would not let it do: a filter or a security module forbids it.
        return HostUnfit("building the sandbox", on=on, errno=failed.errno, remedy=layers.FILTERED)
    return LaunchFailed("building the sandbox", on=on, errno=failed.errno)


def _first_mount(steps: tuple[Op, ...]) -> int:
    """Where the root is made: AppArmor's restriction shows at the first use of a capability."""
    return next((i for i, step in enumerate(steps) if isinstance(step, NewRoot | AdoptRoot)), 0)


def unfit(error: LaunchFailed, switches: Mapping[str, int]) -> LaunchFailed | HostUnfit:
    """A clone, a map or a mount that the host refuses is a switch of the host, not a fault of the plan."""
    if error.errno == errno.ENOSYS:
        return HostUnfit(error.doing, errno=error.errno, remedy=layers.FILTERED)
    if error.errno not in (errno.EPERM, errno.EACCES, errno.ENOSPC, errno.EUSERS):
        return error
    fact, remedy = layers.userns_remedy(switches)
    if error.errno == errno.ENOSPC and not fact:
        return HostUnfit(error.doing, errno=error.errno, remedy=NAMESPACES)
    remedies = remedy or "; ".join((layers.DEBIAN, layers.UBUNTU, layers.RHEL))
    return HostUnfit(layers.MAKING_NAMESPACE, why=fact or error.why or error.doing, errno=error.errno, remedy=remedies)
