"""The typed door to ``launch.c``: clone an init, send it requests, make mounts that only a supervisor can make.

Thin on purpose: types, errno to OSError, ownership of descriptors. The meaning is in ``supervisor.sandbox.launch``, the
only importer. Each call is one C call with the GIL released.
"""
from __future__ import annotations

import enum
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from native._launch import ffi, lib

_LINK_NAME = 16  # LEMNI_LINK_NAME of launch.h
INIT = Path(__file__).parent / "lemni-init"


class Stage(enum.IntEnum):
    """How far a launch came that failed."""

    NONE = 0
    SOCKET = 1
    CLONE = 2
    EXEC = 3
    SETGROUPS = 4
    UID_MAP = 5
    GID_MAP = 6


class LaunchError(OSError):
    """A launch failed at ``stage``; nothing of it is left."""

    def __init__(self, errno: int, stage: Stage) -> None:
        super().__init__(errno, f"{stage.name.lower()}: {os.strerror(errno)}")
        self.stage = stage


class Child(NamedTuple):
    """A launched init. The caller owns all three: reaps ``pid``, closes ``pidfd`` and ``channel``."""

    pid: int
    pidfd: int
    channel: int


def _checked(result: int) -> int:
    if result < 0:
        raise OSError(-result, os.strerror(-result))
    return int(result)


def sealed_program(path: Path) -> int:
    """A sealed, executable copy of a program in memory. Raises OSError."""
    return _checked(lib.lemni_sealed_program(os.fsencode(path)))


class Launch:
    """A launch that was begun. ``settle`` or ``abandon`` must follow, whatever happens: the child runs on memory of ours."""

    def __init__(self, init_fd: int, cgroup_fd: int, cgroup_namespace: bool) -> None:
        """Clone. The child is on its way to the program behind ``init_fd`` when this returns. Raises LaunchError."""
        self._out = ffi.new("struct lemni_launched *")
        self._checked(lib.lemni_begin(init_fd, cgroup_fd, cgroup_namespace, self._out))

    def settle(self, uid_map: bytes, gid_map: bytes, deny_setgroups: bool) -> Child:
        """Wait until the child runs that program, and map its ids. Raises LaunchError; then nothing of it is left."""
        self._checked(lib.lemni_settle(uid_map, len(uid_map), gid_map, len(gid_map), deny_setgroups, self._out))
        return Child(self._out.pid, self._out.pidfd, self._out.channel)

    def abandon(self) -> None:
        """End the child and leave nothing of it."""
        lib.lemni_abandon(self._out)

    def _checked(self, result: int) -> None:
        if result < 0:
            raise LaunchError(-result, Stage(self._out.stage))


def send(channel: int, kind: int, flags: int, id: int, argument: int, payload: bytes, fds: Sequence[int]) -> None:
    """One request as one message; a large payload goes by sealed memfd. Raises OSError; BlockingIOError: nothing was sent."""
    _checked(lib.lemni_send(channel, kind, flags, id, argument, payload, len(payload), list(fds), len(fds)))


def user_namespace(uid_map: bytes, gid_map: bytes) -> int:
    """A descriptor of a new user namespace with these maps. Raises OSError."""
    return _checked(lib.lemni_user_namespace(uid_map, len(uid_map), gid_map, len(gid_map)))


def detached_mount(directory: int, userns: int) -> int:
    """A detached mount of a directory, idmapped where ``userns`` is not -1. Raises OSError."""
    return _checked(lib.lemni_detached_mount(directory, userns))


def link_up(netlink: int, allowed: str | None) -> str | None:
    """The name of a link that is up, ``allowed`` apart, in the namespace of this netlink socket, or None. Raises OSError."""
    name = ffi.new("char[]", _LINK_NAME)
    up = _checked(lib.lemni_link_up(netlink, ffi.NULL if allowed is None else allowed.encode(), name))
    return ffi.string(name).decode("utf-8", "backslashreplace") if up else None


def landlock_abi() -> int:
    """The kernel's Landlock ABI, 1 or more. Raises OSError where there is none (ENOSYS, EOPNOTSUPP)."""
    return _checked(lib.lemni_landlock_abi())
