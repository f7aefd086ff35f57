"""The synchronous half of opening: a group, the working copies' descriptors, the plan, the launch.

Short and without a wait that matters, so that trio's loop is held for a millisecond or two. Plans are cached by what they
depend on: a second sandbox of the same kind costs no compilation.
"""
from __future__ import annotations

import errno
import functools
import os
import socket
from contextlib import ExitStack
from dataclasses import dataclass

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
from supervisor.sandbox.ops import Op, Proc, TakeIds
from supervisor.sandbox.plan import Draft
from supervisor.sandbox.spec import OverlayCopy, PlainCopy, SandboxSpec
from supervisor.sandbox.usage import Watched
from supervisor.sandbox.wire import Failed

READY_MS = 100  # the answer comes within 3 ms on an idle machine; waiting for it here spares turns of the loop
_PLANS = 64


@dataclass(frozen=True, slots=True)
class Opened:
    """A launched sandbox: who owns this must kill, reap and close."""

    pidfd: int
    channel: Channel
    group: Group
    steps: tuple[Op, ...]
    switches: tuple[tuple[str, int], ...]

    async def ready(self) -> None:
        """Wait until the plan is carried out. Raises ``HostUnfit`` or ``LaunchFailed`` with the step's words."""
        # Blocks for as long as an idle machine needs and no longer; a busy one is awaited.
        self.channel.wait_readable(READY_MS)
        first = await self.channel.first()
        if isinstance(first, Failed):
            raise failure(first, self.steps, dict(self.switches))


def launch_sandbox(spec: SandboxSpec, host: HostFacts, claim: Claim, profile: Profile) -> Opened:
    """Make the group, launch init with the plan. Nothing is left behind when this raises."""
    facts.require(host, spec, profile)
    group = _group(spec, host, claim)
    try:
        with ExitStack() as borrowed:
            draft = _draft(spec, host, claim.ids, profile, group)
            fds = [*group.join, *(fd for copy in spec.copies for fd in _descriptors(copy, draft, borrowed))]
            steps, encoded = _compiled(draft, len(fds))
            launched = launch.launch(
                launch.IdMaps(claim.ids.uid_map, claim.ids.gid_map, claim.ids.setgroups_denied),
                encoded,
                tuple(fds),
                cgroup=group.clone,
                cgroup_namespace=not group.join,
            )
    except LaunchFailed as error:
        group.remove()
        raise _unfit(error, host) from error
    except BaseException:
        group.remove()
        raise
    group.launched(launched.pid)
    return Opened(launched.pidfd, Channel(launched.channel), group, steps, host.switches)


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
        ids=ids,
        limits=spec.limits,
        copies=tuple(copy.target if isinstance(copy, OverlayCopy) else copy for copy in spec.copies),
        files=spec.files,
        loopback=spec.loopback,
        joins=len(group.join),
        watched=isinstance(group, Watched),
        detached=host.privileged,
    )


@functools.lru_cache(_PLANS)
def _compiled(draft: Draft, fds: int) -> tuple[tuple[Op, ...], bytes]:
    work = [c if isinstance(c, bytes) else c.target for c in draft.copies]
    rules = landlock.compile_rules(
        draft.profile.landlock, draft.host.landlock_abi, [os.fsdecode(path) for path in work], draft.loopback
    )
    steps = plan.build(draft, rules, filters.program(draft.profile, draft.host.machine))
    return steps, wire.encode_plan(steps, fds)


def _descriptors(copy: OverlayCopy | PlainCopy, draft: Draft, borrowed: ExitStack) -> list[int]:
    """The descriptors of one working copy, in the plan's order. They are closed once init has its own."""
    paths = (copy.lower, copy.upper, copy.work) if isinstance(copy, OverlayCopy) else (copy.path,) if draft.detached else ()
    opened = []
    for path in paths:
        fd = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        borrowed.callback(os.close, fd)
        opened.append(fd)
    if isinstance(copy, OverlayCopy) and draft.ids.idmapped:
        host_ids = draft.ids.command_host_uid, draft.ids.command_host_gid
        opened[0] = launch.detached_mount(opened[0], userns=claims.mapping(copy.owner_uid, copy.owner_gid, *host_ids))
        borrowed.callback(os.close, opened[0])
    elif isinstance(copy, PlainCopy) and draft.detached:
        opened[0] = launch.detached_mount(opened[0])
        borrowed.callback(os.close, opened[0])
    return opened


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
    return LaunchFailed("building the sandbox", on=on, errno=failed.errno)


def _first_mount(steps: tuple[Op, ...]) -> int:
    """The step after taking the ids: AppArmor's restriction shows at the first use of a capability."""
    return next((i for i, step in enumerate(steps) if isinstance(step, TakeIds)), 0) + 1


def _unfit(error: LaunchFailed, host: HostFacts) -> LaunchFailed | HostUnfit:
    """A clone or a map that the host refuses is a switch of the host, not a fault of the plan."""
    if error.errno not in (errno.EPERM, errno.EACCES, errno.ENOSPC, errno.EUSERS):
        return error
    fact, remedy = layers.userns_remedy(dict(host.switches))
    remedies = remedy or "; ".join((layers.DEBIAN, layers.UBUNTU, layers.RHEL))
    return HostUnfit("making a user namespace", why=fact or error.why or error.doing, errno=error.errno, remedy=remedies)
