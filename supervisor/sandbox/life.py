"""The life of a sandbox: opened, serving commands, destroyed; each in one place, all under one owner.

Opening: a launch, the plan in two parts, a control group, the network looked at from inside while the plan is carried out.
Serving: init runs commands and tells their ends. Destroying: SIGKILL to init, which takes the pid namespace with it; then the
group. A supervisor that is killed itself does none of this, and needs not: init sees its channel end and goes, and the next
start sweeps the group.

Everything here is cancelled from outside at any point without leaving a process: what must be undone is undone under a
shield, and each shield has a deadline.
"""
from __future__ import annotations

import os
import signal
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import trio

from profiles.model import Profile
from supervisor.errors import ChannelBroken, LaunchFailed
from supervisor.sandbox import launch, opening
from supervisor.sandbox.channel import Pending
from supervisor.sandbox.claims import Claim, claim
from supervisor.sandbox.disk import DiskWatch
from supervisor.sandbox.groups import Excess, Sample, excess
from supervisor.sandbox.ids import IdPlan
from supervisor.sandbox.machine import HostFacts
from supervisor.sandbox.outcome import execution_of
from supervisor.sandbox.spec import Command, OverlayCopy, SandboxSpec
from supervisor.sandbox.streams import Streams
from supervisor.sandbox.usage import Watched, descendants
from supervisor.sandbox.wire import Request
from supervisor.types import Execution, Layer, Stop, StopKind

__all__ = ["Claim", "Sandbox", "Usage", "claim", "open_sandbox"]

SETUP_SECONDS = 30.0  # to carry out the plan: cold disks, no more
DYING_MS = 2  # blocking for as long as most need spares a turn of the loop
DEATH_SECONDS = 10.0  # from SIGKILL to reaped: 1000 processes take 40 ms, 1 GiB of memory 60 ms
KILL_SECONDS = 5.0  # for one command's tree
LOOK_SECONDS = 0.1  # between two looks at the usage
REMOVALS = 200  # tries, 5 ms apart: a group is busy for milliseconds after its last process
BRIEF_SECONDS = 0.01  # a command that ends within this time costs no task for its streams


@dataclass(frozen=True, slots=True)
class Usage:
    """What a sandbox used so far: microseconds, bytes, count."""

    cpu_us: int
    memory_peak: int
    processes_peak: int


class Sandbox:
    """One open sandbox. Made by ``open_sandbox`` only; gone when that ends."""

    layers: tuple[Layer, ...]
    ids: IdPlan
    workdir: int  # descriptor of the working copy as the sandbox sees it; ours to close
    opened_us: int  # from the request to the first command that could run

    def __init__(self, opened: opening.Opened, spec: SandboxSpec, ids: IdPlan, host: HostFacts) -> None:
        self.layers = host.layers
        self.ids = ids
        self.workdir = -1
        self.opened_us = 0
        self._channel = opened.channel
        self._pid = opened.pid
        self._pidfd = opened.pidfd
        self._group = opened.group
        self._enforced = not isinstance(opened.group, Watched)
        self._limits = spec.limits
        layered = [copy for copy in spec.copies if isinstance(copy, OverlayCopy)]
        self._disk = DiskWatch([copy.upper for copy in layered], [copy.target for copy in layered], spec.limits)
        self._environment = spec.environment
        self._last = Sample()
        self._stop: Stop | None = None
        self._stopped = trio.Event()
        self._leftovers: trio.Nursery | None = None

    async def run(self, command: Command, on_output: Callable[[int, bytes], None] | None = None) -> Execution:
        """Run one command to its end. What it leaves in the background lives on until the sandbox ends.

        A time-out or a cancellation kills everything that it started. Raises ``ChannelBroken`` when the sandbox is over, and
        ``ValueError`` for what no execve could take.
        """
        began = time.monotonic_ns()
        streams = Streams(command.keep, on_output, relay=command.relay)
        try:
            pending = await self._start(command, streams)
            timed_out = await self._attend(command, pending, streams)
        except BaseException:
            streams.close()
            raise
        if pending.end is None and not timed_out and self._channel.broken.is_set():
            streams.close()
            raise ChannelBroken("running a command", why="the sandbox ended meanwhile")
        execution = self._outcome(command, pending, streams, began, timed_out)
        if execution.status != 0:  # a cap may be why; whoever starts the next command has to know first
            self._judge()
        if streams.at_end or self._leftovers is None or self._channel.broken.is_set():
            streams.close()
        else:
            self._leftovers.start_soon(streams.discard_rest)
        return execution

    @property
    def stop(self) -> Stop | None:
        """The cap that was exceeded, as far as it is known."""
        return self._stop

    async def exceeded(self) -> Stop:
        """Wait until a cap of the whole sandbox is exceeded: memory, processes, CPU seconds, duration. It is dead then."""
        await self._stopped.wait()
        assert self._stop is not None
        return self._stop

    def usage(self) -> Usage:
        """What it used so far; after its end, what it used in all."""
        self._look()
        return Usage(self._last.cpu_us, self._last.memory_peak, self._last.processes_peak)

    async def kill(self) -> None:
        """Kill everything at once. Running commands raise ``ChannelBroken``."""
        self._kill()
        await self._channel.broken.wait()

    def _outcome(self, command: Command, pending: Pending, streams: Streams, began: int, timed_out: bool) -> Execution:
        execution = execution_of(command, pending, streams, (time.monotonic_ns() - began) // 1000, timed_out)
        if isinstance(self._group, Watched):
            self._group.credit(execution.cpu_us, execution.max_rss)
        return execution

    def _kill(self) -> None:
        if self._pidfd >= 0:
            try:
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
            except ProcessLookupError:
                return

    def _end_of_life(self) -> None:
        # The descriptor first: the last reference to the overlay then goes with init, and we do not wait for its teardown.
        if self.workdir >= 0:
            os.close(self.workdir)
            self.workdir = -1
        self._kill()

    async def _start(self, command: Command, streams: Streams) -> Pending:
        # An empty pipe: reading it is end of file, and it is nobody else's.
        stdin, writer = os.pipe2(os.O_CLOEXEC)
        os.close(writer)
        try:
            environment = (*self._environment, *command.environment) if command.environment else self._environment
            stdio = (stdin, *streams.child_ends)
            if not self.ids.shared:
                for fd in stdio:  # theirs to open again by /dev/stdout and its kin
                    os.fchown(fd, self.ids.command_host_uid, self.ids.command_host_gid)
            return await self._channel.run(command.argv, environment, command.cwd, stdio)
        finally:
            os.close(stdin)
            streams.close_child_ends()

    async def _attend(self, command: Command, pending: Pending, streams: Streams) -> bool:
        """Wait for the end of a command and of its output. True when its time was over and it was killed."""
        deadline = trio.current_time() + command.timeout
        over = False
        try:
            with trio.move_on_after(min(BRIEF_SECONDS, command.timeout)):
                await pending.ended.wait()
            if pending.ended.is_set() and streams.pull_now():
                over = True
                return False
            with trio.CancelScope(deadline=deadline):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(streams.drain)
                    await pending.ended.wait()
                    streams.command_ended()
            over = pending.ended.is_set()
        finally:
            # Too late, cancelled from outside, or an error of ours: whatever it is, nothing of the command goes on.
            if not over:
                with trio.CancelScope(shield=True):
                    await self._end(pending)
        if not over:
            streams.pull_now()
        return not over

    async def _end(self, pending: Pending) -> None:
        """Kill everything of a command; when that does not succeed in time, the sandbox."""
        try:
            with trio.move_on_after(KILL_SECONDS) as limit:
                await self._channel.kill(pending)
                await pending.vanished.wait()
        except ChannelBroken:
            return
        if limit.cancelled_caught:
            self._kill()

    async def _watch(self, wall_seconds: float) -> None:
        """Look at the usage until a cap is exceeded; then name it and kill."""
        until = trio.current_time() + wall_seconds
        if self._enforced:
            self._look()  # opens what every later look reads, while the first command runs
        while True:
            await trio.sleep(min(LOOK_SECONDS, max(0.0, until - trio.current_time())))
            self._judge()
            if self._stop is None and self._disk.suspicious():
                found = await trio.to_thread.run_sync(self._disk.look, descendants(self._pid), abandon_on_cancel=True)
                if found is not None:
                    self._name(found)
            if self._stop is None and trio.current_time() >= until:
                self._name(Excess("wall_seconds", self._limits.wall_seconds, self._limits.wall_seconds))
            if self._stop is not None:
                self._kill()
                return

    def _judge(self) -> None:
        self._look()
        found = excess(self._limits, self._last, self._enforced)
        if found is not None and self._stop is None:
            self._name(found)

    def _look(self) -> None:
        if self._pidfd >= 0:
            self._last = self._group.sample()

    def _name(self, found: Excess) -> None:
        words = f"the sandbox reached its limit of {found.resource.replace('_', ' ')} ({found.used} of {found.limit})"
        self._stop = Stop(StopKind.RESOURCE, found.resource, found.limit, found.used, words)
        self._stopped.set()


@asynccontextmanager
async def open_sandbox(
    spec: SandboxSpec, host: HostFacts, claim: Claim, profile: Profile, warm: opening.Opened | None = None
) -> AsyncIterator[Sandbox]:
    """Open a sandbox, and destroy it at the end, whatever the end.

    ``warm`` is the base of one, made with this claim (``warm.WarmPool``): it is this sandbox from now on, whatever happens.
    Raises ``HostUnfit`` (with the remedy) when the host lacks something required, ``LaunchFailed`` when a step fails.
    """
    began = time.monotonic_ns()
    opened = warm or opening.launch_sandbox(spec, host, claim, profile)
    sandbox = Sandbox(opened, spec, claim.ids, host)
    try:
        if warm is not None:
            opened = opening.furnish(warm, spec, host, claim, profile)
        with trio.move_on_after(SETUP_SECONDS) as limit:
            await _settle(opened, sandbox, spec)
            opening.keep_share(opened, host, spec.limits)
        if limit.cancelled_caught:
            raise LaunchFailed("opening the sandbox", why=f"no answer within {SETUP_SECONDS:.0f} s")
        sandbox.opened_us = (time.monotonic_ns() - began) // 1000
        failure: BaseException | None = None
        async with trio.open_nursery() as nursery:
            sandbox._leftovers = nursery
            nursery.start_soon(opened.channel.serve)
            nursery.start_soon(sandbox._watch, spec.limits.wall_seconds)
            try:
                yield sandbox
            except BaseException as error:  # raised again below, out of the nursery: the caller's errors stay as they are
                failure = error
            sandbox._leftovers = None
            sandbox._end_of_life()  # init dies while our tasks end
            nursery.cancel_scope.cancel()
        if failure is not None:
            raise failure
    finally:
        with trio.CancelScope(shield=True):
            await _destroy(sandbox, opened, claim)


async def _settle(opened: opening.Opened, sandbox: Sandbox, spec: SandboxSpec) -> None:
    """From the launch to the first command that may run: plan carried out, descriptor taken, network looked at."""
    looked = False

    def hear(request: Request, descriptor: int) -> None:
        nonlocal looked
        if request is Request.HAND_WORKDIR and sandbox.workdir < 0:
            sandbox.workdir = descriptor
        elif request is Request.HAND_NETLINK and not looked:
            looked = True
            opening.check_links(descriptor, spec.loopback)  # while init goes on
        else:
            os.close(descriptor)
            raise ChannelBroken("opening the sandbox", why="a descriptor was handed over twice")

    await opened.ready(hear)
    if sandbox.workdir < 0 or not looked:
        raise ChannelBroken("opening the sandbox", why="a descriptor was not handed over")


async def _destroy(sandbox: Sandbox, opened: opening.Opened, claim: Claim) -> None:
    """Kill init, and with it the pid namespace; reap it; remove the group. Bounded; what stays is left to the sweep."""
    sandbox._end_of_life()
    dead = await _reap(opened.pidfd)
    sandbox._judge()  # the last word: nothing runs any more, and the group is still there
    sandbox._pidfd = -1
    await bury(opened, claim, dead)


async def _reap(pidfd: int) -> bool:
    """Wait for the end of init, bounded, and collect it. False: it does not die."""
    if launch.reap(pidfd, DYING_MS):
        return True
    with trio.move_on_after(DEATH_SECONDS):
        await trio.lowlevel.wait_readable(pidfd)
    return launch.reap(pidfd, 0)


async def discard(opened: opening.Opened, claim: Claim) -> None:
    """Destroy the base of a sandbox that nobody took."""
    signal.pidfd_send_signal(opened.pidfd, signal.SIGKILL)
    await bury(opened, claim, await _reap(opened.pidfd))


async def bury(opened: opening.Opened, claim: Claim, dead: bool) -> None:
    """After its processes: close what was open, remove the group."""
    opened.channel.close()
    os.close(opened.pidfd)
    removed = opened.group.remove()
    for _ in range(REMOVALS):
        if removed:
            break
        await trio.sleep(0.005)
        removed = opened.group.remove()
    claim.clean = removed and dead
