"""Launching a sandbox's init and talking to it: descriptors and errors around ``native.launch``.

The init is executed from a sealed copy in memory, made once a process, so that no later change of the installed file
reaches a sandbox; where the kernel forbids that (vm.memfd_noexec=2, an integrity policy) the installed file serves.
"""
from __future__ import annotations

import errno
import functools
import os
import select
from collections.abc import Sequence
from dataclasses import dataclass

from native import launch as native
from supervisor.errors import HostUnfit, LaunchFailed
from supervisor.sandbox.layers import FILTERED, MAKING_NAMESPACES
from supervisor.sandbox.wire import Request

_DOING = {
    native.Stage.NONE: "launching the sandbox",
    native.Stage.SOCKET: "making the control channel",
    native.Stage.CLONE: MAKING_NAMESPACES,
    native.Stage.EXEC: "starting the sandbox's init",
    native.Stage.SETGROUPS: "denying setgroups",
    native.Stage.UID_MAP: "mapping user ids",
    native.Stage.GID_MAP: "mapping group ids",
}


@dataclass(frozen=True, slots=True)
class IdMaps:
    """The lines of /proc/PID/uid_map and gid_map (user_namespaces(7)); an ordinary user must deny setgroups."""

    uid_map: bytes
    gid_map: bytes
    deny_setgroups: bool


@dataclass(frozen=True, slots=True)
class Launched:
    """A running init that waits for its plan. The holder reaps ``pid`` (through ``pidfd``) and closes the descriptors."""

    pid: int
    pidfd: int
    channel: int


@functools.cache
def _installed() -> int:
    return os.open(native.INIT, os.O_RDONLY | os.O_CLOEXEC)


@functools.cache
def _sealed() -> int | None:
    try:
        return native.sealed_program(native.INIT)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EPERM, errno.ENOSYS):
            return None  # memfds may not be executed here
        raise LaunchFailed("reading the sandbox's init", on=str(native.INIT), errno=error.errno) from error


class Launch:
    """An init on its way, from ``begin`` to ``settle`` or ``abandon``; the caller may do something else in between.

    Begin it in a thread that lives as long as the sandbox: the parent-death signal follows the thread.
    """

    def __init__(self, cgroup: int, cgroup_namespace: bool) -> None:
        self._where = (cgroup, cgroup_namespace)
        sealed = _sealed()
        self._begun = self._begin(_installed() if sealed is None else sealed)
        self._again = sealed is not None

    def settle(self, maps: IdMaps) -> Launched:
        """Wait until init runs, in new namespaces, and map its ids. Raises LaunchFailed; then nothing is left behind."""
        lines = (maps.uid_map, maps.gid_map, maps.deny_setgroups)
        try:
            return Launched(*self._begun.settle(*lines))
        except native.LaunchError as error:
            refused = error.stage is native.Stage.EXEC and error.errno in (errno.EACCES, errno.EPERM)
            if not (self._again and refused):
                raise _failed(error) from error
        # Executing the sealed program is forbidden here: the installed file, once.
        self._again = False
        self._begun = self._begin(_installed())
        return self.settle(maps)

    def abandon(self) -> None:
        """End it and leave nothing."""
        self._begun.abandon()

    def _begin(self, program: int) -> native.Launch:
        try:
            return native.Launch(program, *self._where)
        except native.LaunchError as error:
            raise _failed(error) from error


def begin(*, cgroup: int = -1, cgroup_namespace: bool = True) -> Launch:
    """Begin to launch an init. ``cgroup`` is a directory descriptor of a v2 cgroup to be born in. Raises LaunchFailed."""
    return Launch(cgroup, cgroup_namespace)


def _failed(error: native.LaunchError) -> LaunchFailed:
    return LaunchFailed(_DOING[error.stage], errno=error.errno)


def reap(pidfd: int, milliseconds: int) -> bool:
    """Block for the end of an init, at most so long, and collect it. False: it has not ended."""
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    poll.poll(milliseconds)
    return os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOHANG) is not None


def send(
    channel: int,
    request: Request,
    id: int = 0,
    *,
    argument: int = 0,
    flags: int = 0,
    payload: bytes = b"",
    fds: Sequence[int] = (),
) -> None:
    """Send one request in one call. Raises BlockingIOError when the channel is full (nothing was sent), BrokenPipeError or
    ConnectionResetError when the init is gone."""
    native.send(channel, request, flags, id, argument, payload, fds)


def user_namespace(uid_map: bytes, gid_map: bytes) -> int:
    """A user namespace with these maps, for ``detached_mount``: the caller keeps and closes the descriptor."""
    try:
        return native.user_namespace(uid_map, gid_map)
    except OSError as error:
        raise _refused("creating a user namespace for an idmapped mount", error) from error


def detached_mount(directory: int, *, userns: int = -1) -> int:
    """A detached mount of ``directory`` for MoveMount, its owners mapped by ``userns`` where given. Root only.

    Raises LaunchFailed: EINVAL where the file system has no idmapped mounts.
    """
    try:
        return native.detached_mount(directory, userns)
    except OSError as error:
        raise _refused("cloning a mount for the sandbox", error) from error


def link_up(netlink: int, allowed: str | None = None) -> str | None:
    """The name of a link that is up, ``allowed`` apart, in the network namespace of this netlink socket. None: there is none.

    Raises LaunchFailed.
    """
    try:
        return native.link_up(netlink, allowed)
    except OSError as error:
        raise LaunchFailed("looking at the sandbox's network", errno=error.errno) from error


def _refused(doing: str, error: OSError) -> LaunchFailed | HostUnfit:
    """A call that is not there, or forbidden, is the host's lack; anything else is told as it is."""
    if error.errno in (errno.ENOSYS, errno.EPERM):
        return HostUnfit(doing, errno=error.errno, remedy=FILTERED)
    return LaunchFailed(doing, errno=error.errno)


def landlock_abi() -> int:
    """The kernel's Landlock ABI; 0 where it is not built in or switched off at boot (landlock_create_ruleset(2))."""
    try:
        return native.landlock_abi()
    except OSError:
        return 0
