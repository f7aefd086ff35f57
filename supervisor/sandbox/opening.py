"""The synchronous half of opening: the working copies' descriptors, the plan, the launch, a group.

Short and without a wait that matters, so that trio's loop is held for a few milliseconds at most. Plans are cached by what they
depend on: a second sandbox of the same kind costs no compilation.
"""
from __future__ import annotations

import functools
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

from profiles import landlock
from profiles.model import Profile
from supervisor.errors import LaunchFailed
from supervisor.sandbox import cgroup, claims, facts, filters, launch, plan, share, wire
from supervisor.sandbox.channel import Channel
from supervisor.sandbox.claims import Claim
from supervisor.sandbox.failures import failure, unfit
from supervisor.sandbox.groups import Group
from supervisor.sandbox.ids import IdPlan
from supervisor.sandbox.machine import HostFacts
from supervisor.sandbox.ops import Op
from supervisor.sandbox.plan import Draft, Layers
from supervisor.sandbox.spec import Limits, OverlayCopy, PlainCopy, SandboxSpec
from supervisor.sandbox.template import TEMPLATES
from supervisor.sandbox.usage import Watched
from supervisor.sandbox.wire import Failed, Handed, Ready, Request

_PLANS = 64
DYING_MS = 2000  # for an init that has started nothing: a disk that does not answer may hold it


@dataclass(frozen=True, slots=True)
class Opened:
    """A launched sandbox: who owns this must kill, reap and close.

    ``parts`` are the steps of each part of the plan that was sent; ``warm`` what a base was made for.
    """

    pid: int
    pidfd: int
    channel: Channel
    group: Group
    parts: tuple[tuple[Op, ...], ...]
    switches: tuple[tuple[str, int], ...]
    warm: tuple[Limits, Profile, bool] | None = None

    async def ready(self, hear: Callable[[Request, int], None] | None = None) -> None:
        """Wait until what is under way is carried out. ``hear`` gets each descriptor that comes meanwhile, as its owner.

        Raises ``HostUnfit`` or ``LaunchFailed`` with the words of the step that failed, ``ChannelBroken``.
        """
        while True:
            match await self.channel.opening():
                case Ready():
                    TEMPLATES.prepare()
                    return
                case Failed() as failed:
                    steps = self.parts[failed.part] if failed.part < len(self.parts) else ()
                    raise failure(failed, steps, dict(self.switches))
                case Handed(request) if hear is not None:
                    hear(request, self.channel.take(request))


def launch_sandbox(spec: SandboxSpec, host: HostFacts, claim: Claim, profile: Profile) -> Opened:
    """Launch init and send it the whole plan. Nothing is left behind when this raises.

    In this order, so that init has something to do as early as it can: begin, the first part, the group, the second part.
    """
    with _launching(spec, host, claim, profile) as birth, ExitStack() as borrowed:
        draft, root = _adopting(_draft(spec, host, claim.ids, profile), borrowed)
        fds = [*_descriptors_of(spec, claim.ids, draft, borrowed), *root]
        whole, encoded = _whole(draft, len(fds))
        pid, pidfd, channel = birth.plan(encoded, fds, wire.MORE | wire.QUIET)
        group = birth.group()
        seal, encoded = _seal(draft)
        channel.go(encoded, group.join)
        group.launched(pid)
        return Opened(pid, pidfd, channel, group, (whole, seal), host.switches)


def launch_warm(spec: SandboxSpec, host: HostFacts, claim: Claim, profile: Profile) -> Opened:
    """Launch init and send it the base of the plan: ``spec`` has no working copy and no files yet."""
    with _launching(spec, host, claim, profile) as birth, ExitStack() as borrowed:
        draft, root = _adopting(_draft(spec, host, claim.ids, profile), borrowed)
        base, encoded = _base(draft, len(root))
        pid, pidfd, channel = birth.plan(encoded, root, wire.MORE)
        group = birth.group()
        if not group.join:
            group.launched(pid)
        return Opened(pid, pidfd, channel, group, (base,), host.switches, (spec.limits, profile, spec.loopback))


def furnish(opened: Opened, spec: SandboxSpec, host: HostFacts, claim: Claim, profile: Profile) -> Opened:
    """Send a warm sandbox the rest of its plan. Raises ``ValueError`` when it was made for another kind."""
    if opened.warm != (spec.limits, profile, spec.loopback):
        raise ValueError("a warm sandbox of another kind")
    with ExitStack() as borrowed:
        draft = _draft(spec, host, claim.ids, profile)
        fds = _descriptors_of(spec, claim.ids, draft, borrowed)
        rest, encoded = _late(draft, len(fds))
        opened.channel.go(encoded, (*fds, *opened.group.join))
    opened.group.launched(opened.pid)
    return replace(opened, parts=(*opened.parts, rest))


class _Birth:
    """An init on its way, and its group."""

    def __init__(self, spec: SandboxSpec, host: HostFacts, claim: Claim) -> None:
        self._spec, self._host, self._claim = spec, host, claim
        self._maps = launch.IdMaps(claim.ids.uid_map, claim.ids.gid_map, claim.ids.setgroups_denied)
        self._group: Group | None = None
        self._begun: launch.Launch | None = None
        self._launched: tuple[int, int, Channel] | None = None

    def begin(self) -> None:
        """Clone. On v2 init is born in its group, so that one is made before."""
        joins = cgroup.joins(self._host.cgroups, self._spec.limits) > 0
        if not joins:
            self._group = _group(self._spec, self._host, self._claim)
        with _explained(self._host):
            self._begun = launch.begin(cgroup=self._group.clone if self._group else -1, cgroup_namespace=not joins)

    def plan(self, encoded: bytes, fds: Sequence[int], flags: int) -> tuple[int, int, Channel]:
        """Send init the first part of its plan as soon as it runs: its pid, its pidfd, its channel."""
        assert self._begun is not None
        with _explained(self._host):
            launched = self._begun.settle(self._maps)
        self._launched = launched.pid, launched.pidfd, Channel(launched.channel)
        self._launched[2].go(encoded, fds, flags)
        return self._launched

    def group(self) -> Group:
        """The group: on v1 made now, while init carries out the plan, which joins it last."""
        if self._group is None:
            self._group = _group(self._spec, self._host, self._claim)
        return self._group

    def undo(self) -> None:
        """Leave nothing of it. Init has started nothing, so that waiting for its end takes a millisecond."""
        if self._launched is not None:
            _, pidfd, channel = self._launched
            channel.close()
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            launch.reap(pidfd, DYING_MS)
            os.close(pidfd)
        elif self._begun is not None:
            self._begun.abandon()
        if self._group is not None:
            self._group.remove()


@contextmanager
def _launching(spec: SandboxSpec, host: HostFacts, claim: Claim, profile: Profile) -> Iterator[_Birth]:
    """An init that was begun; nothing is left of it when the body raises."""
    facts.require(host, spec, profile)
    birth = _Birth(spec, host, claim)
    try:
        birth.begin()
        yield birth
    except BaseException:
        birth.undo()
        raise


@contextmanager
def _explained(host: HostFacts) -> Iterator[None]:
    """A launch that the host refuses, in the host's words."""
    try:
        yield
    except LaunchFailed as error:
        raise unfit(error, dict(host.switches)) from error


def _group(spec: SandboxSpec, host: HostFacts, claim: Claim) -> Group:
    try:
        made = cgroup.make(host.cgroups, claim.slot.name, spec.limits)
    except OSError as error:
        raise LaunchFailed("making the control group", on=claim.slot.name, errno=error.errno) from error
    return made if made is not None else Watched()


def _draft(spec: SandboxSpec, host: HostFacts, ids: IdPlan, profile: Profile) -> Draft:
    return Draft(
        host=host,
        profile=profile,
        ids=ids.inside(),
        limits=spec.limits,
        copies=tuple(_named(copy) if isinstance(copy, OverlayCopy) else copy for copy in spec.copies),
        files=spec.files,
        loopback=spec.loopback,
        joins=cgroup.joins(host.cgroups, spec.limits),
        watched=host.cgroups.version == 0,
        detached=host.privileged,
        pinned=share.kept(host, spec.limits),
    )


def _adopting(draft: Draft, borrowed: ExitStack) -> tuple[Draft, list[int]]:
    """The draft with the shell of its root made before, where that is to be had, and the descriptor of it."""
    root = TEMPLATES.clone(draft)
    if root is None:
        return draft, []
    borrowed.callback(os.close, root)
    return replace(draft, adopted=True), [root]


def _named(copy: OverlayCopy) -> Layers:
    upper, work = os.path.split(copy.upper), os.path.split(copy.work)
    if upper[0] != work[0]:
        raise LaunchFailed("laying out the working copy", why="upper and work do not lie in one directory")
    return Layers(copy.target, upper[1], work[1])


@functools.lru_cache(_PLANS)
def _whole(draft: Draft, fds: int) -> tuple[tuple[Op, ...], bytes]:
    steps = plan.whole(draft, _rules(draft))
    return steps, wire.encode_plan(steps, fds)


@functools.lru_cache(_PLANS)
def _base(draft: Draft, fds: int) -> tuple[tuple[Op, ...], bytes]:
    steps = plan.base(draft)
    return steps, wire.encode_plan(steps, fds)


@functools.lru_cache(_PLANS)
def _seal(draft: Draft) -> tuple[tuple[Op, ...], bytes]:
    steps = plan.seal(draft, _rules(draft), _filter(draft))
    return steps, wire.encode_plan(steps, draft.joins)


@functools.lru_cache(_PLANS)
def _late(draft: Draft, fds: int) -> tuple[tuple[Op, ...], bytes]:
    rules, program = _rules(draft), _filter(draft)
    steps = (*plan.late(draft, rules), *plan.seal(draft, rules, program, first=fds))
    return steps, wire.encode_plan(steps, fds + draft.joins)


def _filter(draft: Draft) -> bytes:
    return filters.program(share.profile_of(draft.profile) if draft.pinned else draft.profile, draft.host.machine)


def _rules(draft: Draft) -> landlock.Compiled | None:
    work = [os.fsdecode(copy.target) for copy in draft.copies]
    return landlock.compile_rules(draft.profile.landlock, draft.host.landlock_abi, work, draft.loopback)


def _descriptors_of(spec: SandboxSpec, ids: IdPlan, draft: Draft, borrowed: ExitStack) -> list[int]:
    return [fd for copy in spec.copies for fd in _descriptors(copy, ids, draft.detached, borrowed)]


def _descriptors(copy: OverlayCopy | PlainCopy, ids: IdPlan, detached: bool, borrowed: ExitStack) -> list[int]:
    """The descriptors of one working copy, in the plan's order. They are closed once init has its own."""

    def lent(fd: int) -> int:
        borrowed.callback(os.close, fd)
        return fd

    def directory(path: bytes) -> int:
        return lent(os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC))

    if isinstance(copy, PlainCopy):
        return [lent(launch.detached_mount(directory(copy.path)))] if detached else []
    if not detached:
        return [directory(copy.lower), directory(copy.upper), directory(copy.work)]
    userns = -1
    if ids.idmapped:
        userns = claims.mapping(copy.owner_uid, copy.owner_gid, ids.command_host_uid, ids.command_host_gid)
    holder = os.path.dirname(copy.upper)
    # Init has an id of its own and must pass through this directory, which it sees as the root of a mount. Nobody else comes
    # here: the directories above stay closed.
    os.chmod(holder, 0o711)
    scratch = lent(launch.detached_mount(directory(holder)))
    lower = lent(launch.detached_mount(directory(copy.lower), userns=userns))
    return [lower, scratch, scratch, scratch]  # init opens upper and work below it, in the place of the second and third


def keep_share(opened: Opened, host: HostFacts, limits: Limits) -> None:
    """Before the first command: the sandbox on as many CPUs as it may use. Raises ``LaunchFailed``."""
    if share.kept(host, limits):
        try:
            share.keep(opened.pid, limits)
        except OSError as error:
            raise LaunchFailed("keeping the sandbox to its CPUs", errno=error.errno) from error


def check_links(netlink: int, loopback: bool) -> None:
    """Look at the links from inside. Raises ``LaunchFailed`` when one is up: the isolation does not hold."""
    try:
        up = launch.link_up(netlink, "lo" if loopback else None)
    finally:
        os.close(netlink)
    if up is not None:
        raise LaunchFailed("looking at the sandbox's network", why=f"{up} is up")
