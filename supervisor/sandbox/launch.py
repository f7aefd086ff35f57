"""Launching a sandbox's init and talking to it: descriptors and errors around ``native.launch``.

The init is executed from a sealed copy in memory, made once a process, so that no later change of the installed file
reaches a sandbox; where the kernel forbids that (vm.memfd_noexec=2, an integrity policy) the installed file serves.
"""
from __future__ import annotations

import errno
import functools
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from native import launch as native
from supervisor.errors import HostUnfit, LaunchFailed
from supervisor.sandbox.layers import FILTERED
from supervisor.sandbox.wire import Request

_DOING = {
    native.Stage.NONE: "launching the sandbox",
    native.Stage.SOCKET: "making the control channel",
    native.Stage.CLONE: "creating the namespaces",
    native.Stage.EXEC: "starting the sandbox's init",
    native.Stage.SETGROUPS: "denying setgroups",
    native.Stage.UID_MAP: "mapping user ids",
    native.Stage.GID_MAP: "mapping group ids",
    native.Stage.PLAN: "sending the plan",
}


@dataclass(frozen=True, slots=True)
class IdMaps:
    """The lines of /proc/PID/uid_map and gid_map (user_namespaces(7)); an ordinary user must deny setgroups."""

    uid_map: bytes
    gid_map: bytes
    deny_setgroups: bool


@dataclass(frozen=True, slots=True)
class Launched:
    """A running init. The holder reaps ``pid`` (through ``pidfd``) and closes ``pidfd`` and ``channel``.

    ``first`` is its first record (READY or FAILED), or empty when that did not come within the time given.
    """

    pid: int
    pidfd: int
    channel: int
    first: bytes


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


def launch(
    maps: IdMaps,
    plan: bytes | None,
    fds: Sequence[int] = (),
    *,
    cgroup: int = -1,
    cgroup_namespace: bool = True,
    ready_ms: int = 0,
) -> Launched:
    """Start an init in new namespaces and send it ``plan`` with ``fds`` (which stay the caller's); without a plan it waits.

    ``cgroup`` is a directory descriptor of a v2 cgroup to be born in. Blocks, with the GIL released, for the clone and then
    at most ``ready_ms`` milliseconds. Call it from a thread that lives as long as the sandbox: the parent-death signal
    follows the thread. Raises LaunchFailed; then nothing is left behind.
    """
    rest = (maps.uid_map, maps.gid_map, maps.deny_setgroups, plan, fds, cgroup, cgroup_namespace, ready_ms)
    try:
        return Launched(*_clone(*rest))
    except native.LaunchError as error:
        raise LaunchFailed(_DOING[error.stage], errno=error.errno) from error


def _clone(*rest: Any) -> native.Child:
    """native.launch with the sealed program; with the installed file where executing the sealed one is forbidden."""
    program = _sealed()
    if program is not None:
        try:
            return native.launch(program, *rest)
        except native.LaunchError as error:
            if error.stage is not native.Stage.EXEC or error.errno not in (errno.EACCES, errno.EPERM):
                raise
    return native.launch(_installed(), *rest)


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


def detached_mount(directory: int, *, userns: int = -1, recursive: bool = False) -> int:
    """A detached mount of ``directory`` for MoveMount, its owners mapped by ``userns`` where given. Root only.

    Raises LaunchFailed: EINVAL where the file system has no idmapped mounts.
    """
    try:
        return native.detached_mount(directory, userns, recursive)
    except OSError as error:
        raise _refused("cloning a mount for the sandbox", error) from error


def _refused(doing: str, error: OSError) -> LaunchFailed | HostUnfit:
    """A call that is not there is the host's lack; anything else is told as it is."""
    if error.errno == errno.ENOSYS:
        return HostUnfit(doing, errno=error.errno, remedy=FILTERED)
    return LaunchFailed(doing, errno=error.errno)


def landlock_abi() -> int:
    """The kernel's Landlock ABI; 0 where it is not built in or switched off at boot (landlock_create_ruleset(2))."""
    try:
        return native.landlock_abi()
    except OSError:
        return 0
