"""The synchronous half of opening: a group, the working copies' descriptors, the plan, the launch.

Short and without a wait that matters, so that trio's loop is held for a millisecond or two. Plans are cached by what they
depend on: a second sandbox of the same kind costs no compilation.
"""
from __future__ import annotations

import errno
import functools
import os
import socket
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

from profiles import landlock
from profiles.model import Profile
from supervisor.errors import HostUnfit, LaunchFailed
from supervisor.sandbox import cgroup, claims, facts, filters, launch, layers, plan, wire
from supervisor.sandbox.channel import Channel
from supervisor.sandbox.claims import Claim
from supervisor.sandbox.groups import Group
from supervisor.sandbox.ids import IdPlan
from supervisor.sandbox.links import links
from supervisor.sandbox.machine import HostFacts
from supervisor.sandbox.ops import Op, Overlay, Proc, TakeIds
from supervisor.sandbox.plan import Draft, Layers
from supervisor.sandbox.spec import Limits, OverlayCopy, PlainCopy, SandboxSpec
from supervisor.sandbox.usage import Watched
from supervisor.sandbox.wire import Failed

READY_MS = 100  # the answer comes within 3 ms on an idle machine; waiting for it here spares turns of the loop
_PLANS = 64
OVERLAY_REFUSED = "overlay_refused"  # by the file system of a layer (NFS, another overlay, …): a plain copy needs none


@dataclass(frozen=True, slots=True)
class Opened:
    """A launched sandbox: who owns this must kill, reap and close.

    ``steps`` are those of the plan that is under way, ``warm`` the limits and the profile that its base was made for.
    """

    pid: int
    pidfd: int
    channel: Channel
    group: Group
    steps: tuple[Op, ...]
    switches: tuple[tuple[str, int], ...]
    warm: tuple[Limits, Profile, bool] | None = None

    async def ready(self) -> None:
        """Wait until the plan is carried out. Raises ``HostUnfit`` or ``LaunchFailed`` with the step's words."""
        # Blocks for as long as an idle machine needs and no longer; a busy one is awaited.
        self.channel.wait_readable(READY_MS)
        first = await self.channel.first()
        if isinstance(first, Failed):
            raise failure(first, self.steps, dict(self.switches))


def launch_sandbox(spec: SandboxSpec, host: HostFacts, claim: Claim, profile: Profile) -> Opened:
    """Make the group, launch init with the whole plan. Nothing is left behind when this raises."""
    facts.require(host, spec, profile)
    group = _group(spec, host, claim)
    try:
        with ExitStack() as borrowed:
            draft = _draft(spec, host, claim.ids, profile, group)
            fds = _all_descriptors(spec, claim.ids, draft, group, borrowed)
            steps, encoded = _compiled(draft, len(fds))
            return _launch(claim, host, group, steps, encoded, fds)
    except BaseException:
        group.remove()
        raise


def launch_warm(spec: SandboxSpec, host: HostFacts, claim: Claim, profile: Profile) -> Opened:
    """Make the group, launch init with the base of the plan: ``spec`` has no working copy and no files yet."""
    facts.require(host, spec, profile)
    group = _group(spec, host, claim)
    try:
        steps, encoded = _compiled_base(_draft(spec, host, claim.ids, profile, group))
        opened = _launch(claim, host, group, steps, None, ())
    except BaseException:
        group.remove()
        raise
    opened.channel.go(encoded, (), more=True)
    return replace(opened, warm=(spec.limits, profile, spec.loopback))


def furnish(opened: Opened, spec: SandboxSpec, host: HostFacts, claim: Claim, profile: Profile) -> Opened:
    """Send a warm sandbox the rest of its plan. Raises ``ValueError`` when it was made for another kind."""
    if opened.warm != (spec.limits, profile, spec.loopback):
        raise ValueError("a warm sandbox of another kind")
    with ExitStack() as borrowed:
        draft = _draft(spec, host, claim.ids, profile, opened.group)
        fds = _all_descriptors(spec, claim.ids, draft, opened.group, borrowed)
        steps, encoded = _compiled_rest(draft, len(fds))
        opened.channel.go(encoded, tuple(fds), more=False)
    opened.group.launched(0)
    return replace(opened, steps=steps)


def _launch(
    claim: Claim, host: HostFacts, group: Group, steps: tuple[Op, ...], encoded: bytes | None, fds: Sequence[int]
) -> Opened:
    maps = launch.IdMaps(claim.ids.uid_map, claim.ids.gid_map, claim.ids.setgroups_denied)
    try:
        launched = launch.launch(maps, encoded, fds, cgroup=group.clone, cgroup_namespace=not group.join)
    except LaunchFailed as error:
        raise _unfit(error, host) from error
    if encoded is not None or not group.join:
        group.launched(launched.pid)
    return Opened(launched.pid, launched.pidfd, Channel(launched.channel), group, steps, host.switches)


def _group(spec: SandboxSpec, host: HostFacts, claim: Claim) -> Group:
    try:
        made = cgroup.make(host.cgroups, claim.slot.name, spec.limits)
    except OSError as error:
        raise LaunchFailed("making the control group", on=claim.slot.name, errno=error.errno) from error
    return made if made is not None else Watched()


def _draft(spec: SandboxSpec, host: HostFacts, ids: IdPlan, profile: Profile, group: Group) -> Draft:
    return Draft(
        host=host,
        profile=profile,
        ids=ids.inside(),
        limits=spec.limits,
        copies=tuple(_named(copy) if isinstance(copy, OverlayCopy) else copy for copy in spec.copies),
        files=spec.files,
        loopback=spec.loopback,
        joins=len(group.join),
        watched=isinstance(group, Watched),
        detached=host.privileged,
    )


def _named(copy: OverlayCopy) -> Layers:
    upper, work = os.path.split(copy.upper), os.path.split(copy.work)
    if upper[0] != work[0]:
        raise LaunchFailed("laying out the working copy", why="upper and work do not lie in one directory")
    return Layers(copy.target, upper[1], work[1])


@functools.lru_cache(_PLANS)
def _compiled(draft: Draft, fds: int) -> tuple[tuple[Op, ...], bytes]:
    steps = plan.build(draft, *_confinement(draft))
    return steps, wire.encode_plan(steps, fds)


@functools.lru_cache(_PLANS)
def _compiled_base(draft: Draft) -> tuple[tuple[Op, ...], bytes]:
    steps = plan.base(draft)
    return steps, wire.encode_plan(steps, 0)


@functools.lru_cache(_PLANS)
def _compiled_rest(draft: Draft, fds: int) -> tuple[tuple[Op, ...], bytes]:
    steps = plan.rest(draft, *_confinement(draft))
    return steps, wire.encode_plan(steps, fds)


def _confinement(draft: Draft) -> tuple[landlock.Compiled | None, bytes]:
    work = [os.fsdecode(copy.target) for copy in draft.copies]
    rules = landlock.compile_rules(draft.profile.landlock, draft.host.landlock_abi, work, draft.loopback)
    return rules, filters.program(draft.profile, draft.host.machine)


def _all_descriptors(spec: SandboxSpec, ids: IdPlan, draft: Draft, group: Group, borrowed: ExitStack) -> list[int]:
    return [*group.join, *(fd for copy in spec.copies for fd in _descriptors(copy, ids, draft.detached, borrowed))]


def _descriptors(copy: OverlayCopy | PlainCopy, ids: IdPlan, detached: bool, borrowed: ExitStack) -> list[int]:
    """The descriptors of one working copy, in the plan's order. They are closed once init has its own."""

    def lent(fd: int) -> int:
        borrowed.callback(os.close, fd)
        return fd

    def directory(path: bytes) -> int:
        return lent(os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC))

    if isinstance(copy, PlainCopy):
        return [lent(launch.detached_mount(directory(copy.path)))] if detached else []
    lower, upper, work = directory(copy.lower), directory(copy.upper), directory(copy.work)
    if not detached:
        return [lower, upper, work]
    userns = -1
    if ids.idmapped:
        userns = claims.mapping(copy.owner_uid, copy.owner_gid, ids.command_host_uid, ids.command_host_gid)
    holder = os.path.dirname(copy.upper)
    # Init has an id of its own and must pass through this directory, which it sees as the root of a mount. Nobody else comes
    # here: the directories above stay closed.
    os.chmod(holder, 0o711)
    scratch = launch.detached_mount(directory(holder))
    return [lent(launch.detached_mount(lower, userns=userns)), upper, work, lent(scratch)]


def check_links(netlink: int, loopback: bool) -> None:
    """Look at the links from inside. Raises ``LaunchFailed`` when one is up: the isolation does not hold."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0, fileno=netlink) as opened:
        up = [link.name for link in links(opened) if link.up]
    if up and not (loopback and up == ["lo"]):
        raise LaunchFailed("looking at the sandbox's network", why=f"{', '.join(up)} is up")


def failure(failed: Failed, steps: tuple[Op, ...], switches: dict[str, int]) -> LaunchFailed | HostUnfit:
    """The words for a step that failed; with the remedy where the step and the errno tell the cause."""
    if failed.step is None or failed.step >= len(steps):
        return LaunchFailed("checking the plan", why=failed.fault.name.lower(), code="plan_refused")
    step = steps[failed.step]
    name = type(step).__name__
    operand = getattr(step, "target", None) or getattr(step, "path", None)
    on = f"{name} {os.fsdecode(operand)}" if isinstance(operand, bytes) else name
    refused = failed.errno in (errno.EPERM, errno.EACCES)
    if isinstance(step, Proc) and refused:
        return HostUnfit("mounting a fresh /proc", on=on, errno=failed.errno, remedy=layers.COVERED)
    if refused and switches.get("apparmor_restrict_unprivileged_userns") == 1 and failed.step <= _first_mount(steps):
        return HostUnfit("building inside the user namespace", on=on, errno=failed.errno, remedy=layers.UBUNTU)
    if failed.errno == errno.ENOSYS:
        return HostUnfit("building the sandbox", on=on, errno=failed.errno, remedy=layers.FILTERED)
    if isinstance(step, Overlay):
        return LaunchFailed("mounting the working copy", on=on, errno=failed.errno, code=OVERLAY_REFUSED)
    return LaunchFailed("building the sandbox", on=on, errno=failed.errno)


def _first_mount(steps: tuple[Op, ...]) -> int:
    """The step after taking the ids: AppArmor's restriction shows at the first use of a capability."""
    return next((i for i, step in enumerate(steps) if isinstance(step, TakeIds)), 0) + 1


def _unfit(error: LaunchFailed, host: HostFacts) -> LaunchFailed | HostUnfit:
    """A clone, a map or a mount that the host refuses is a switch of the host, not a fault of the plan."""
    if error.errno == errno.ENOSYS:
        return HostUnfit(error.doing, errno=error.errno, remedy=layers.FILTERED)
    if error.errno not in (errno.EPERM, errno.EACCES, errno.ENOSPC, errno.EUSERS):
        return error
    fact, remedy = layers.userns_remedy(dict(host.switches))
    remedies = remedy or "; ".join((layers.DEBIAN, layers.UBUNTU, layers.RHEL))
    return HostUnfit("making a user namespace", why=fact or error.why or error.doing, errno=error.errno, remedy=remedies)
