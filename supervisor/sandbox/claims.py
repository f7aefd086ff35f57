"""Before a sandbox is opened: its slot, and the ids that the slot and the project's owner give.

A claim is taken first because the working copy's scratch has to belong to the sandbox's host id. It is given back when the
sandbox left nothing, so that its ids are never two sandboxes' at a time.
"""
from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from supervisor.errors import HostUnfit, LaunchFailed
from supervisor.sandbox import cgroup, facts, ids, launch
from supervisor.sandbox.ids import IdPlan
from supervisor.sandbox.machine import HostFacts
from supervisor.sandbox.slots import Slot, Slots, slots_directory

_USERNS_KEPT = 64  # descriptors of id maps; nothing lives in these namespaces


@dataclass(slots=True)
class Claim:
    """The slot and the ids of one sandbox. ``clean`` is set once the sandbox of this claim left nothing behind."""

    slot: Slot
    ids: IdPlan
    must_copy: bool  # the commands' id can be given the project's files by a copy only
    clean: bool = True


@functools.cache
def slots_of(directory: Path) -> Slots:
    """This process's slots in a directory."""
    return Slots(directory)


@contextmanager
def claim(host: HostFacts, state: Path, root: bytes, owner_uid: int, owner_gid: int) -> Iterator[Claim]:
    """A claim for a sandbox over the project at ``root``, which these ids own on disk. Raises ``HostUnfit``, OSError."""
    facts.require_layers(host)  # before the working copy, which would meet what is missing without words for it
    slots = slots_of(slots_directory(state))
    slot = slots.take()
    try:
        cgroup.sweep(slot.left)
        slots.record(slot, cgroup.directories(host.cgroups, slot.name))
        if host.privileged:
            plan = ids.privileged(slot.number, owner_uid, owner_gid, idmap_offered(root))
            if plan.idmapped:  # made now, kept for the opening
                mapping(owner_uid, owner_gid, plan.command_host_uid, plan.command_host_gid)
        else:
            plan = ids.ordinary(host.uid, host.gid)
        must_copy = host.privileged and not plan.idmapped and plan.command_host_uid != owner_uid
        taken = Claim(slot, plan, must_copy)
    except BaseException:
        slots.give(slot)
        raise
    try:
        yield taken
    finally:
        # A slot whose sandbox left something (a group that would not go) is not used again: the sweep takes it.
        if taken.clean:
            slots.give(slot)


def idmap_offered(path: bytes) -> bool:
    """Whether the file system of ``path`` offers idmapped mounts; tried once for each file system."""
    return _idmap_offered(os.stat(path).st_dev, path)


def mapping(owner_uid: int, owner_gid: int, host_uid: int, host_gid: int) -> int:
    """A user namespace that stands for "on disk → host": kept here, borrowed by the caller. Raises ``LaunchFailed``."""
    return _mapping(owner_uid, owner_gid, host_uid, host_gid).fileno()


class _Namespace:
    """A descriptor that closes with its last reference, so that the cache may drop it."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def fileno(self) -> int:
        return self._fd

    def __del__(self) -> None:
        os.close(self._fd)


@functools.lru_cache(_USERNS_KEPT)
def _mapping(owner_uid: int, owner_gid: int, host_uid: int, host_gid: int) -> _Namespace:
    return _Namespace(
        launch.user_namespace(b"%d %d 1\n" % (owner_uid, host_uid), b"%d %d 1\n" % (owner_gid, host_gid))
    )


_OFFERED: dict[int, bool] = {}


def _idmap_offered(device: int, path: bytes) -> bool:
    if device not in _OFFERED:
        directory = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.close(launch.detached_mount(directory, userns=mapping(0, 0, ids.FIRST_HOST_ID, ids.FIRST_HOST_ID)))
            _OFFERED[device] = True
        except (LaunchFailed, HostUnfit):
            _OFFERED[device] = False
        finally:
            os.close(directory)
    return _OFFERED[device]
