"""A working copy edited through a real overlay, in namespaces of a child's own, and trees compared afterwards."""
from __future__ import annotations

import ctypes
import os
import stat
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import trio

from supervisor.workspace.apply import Applied, Conflict, apply_changes
from supervisor.workspace.blobs import Blobs
from supervisor.workspace.changes import ChangeSet
from supervisor.workspace.exclusions import Exclusions
from supervisor.workspace.gitnames import is_git_name
from supervisor.workspace.open import Workspace, open_workspace
from supervisor.workspace.overlay import OverlayLayers
from supervisor.workspace.project import find_project

_NEWNS, _NEWUSER, _REC, _PRIVATE = 0x20000, 0x10000000, 0x4000, 1 << 18


def inside(workspace: Workspace, act: Callable[[], object]) -> None:
    """Call ``act`` in a child that stands in the working copy, all copies mounted where a sandbox has them.

    A plain copy is entered as it is. The child has its own user and mount namespaces; an exception in it fails the test.
    """
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.umask(0o022)
            first = workspace.copies[0]
            if isinstance(first, OverlayLayers):
                _mount_all([copy for copy in workspace.copies if isinstance(copy, OverlayLayers)])
            else:
                os.chdir(first.path)
            act()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    assert status == 0, "the session's part failed, see its traceback"


def _mount_all(layers: list[OverlayLayers]) -> None:
    libc = ctypes.CDLL(None, use_errno=True)

    def check(result: int) -> None:
        if result != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

    uid, gid = os.geteuid(), os.getegid()
    check(libc.unshare(_NEWUSER | _NEWNS))
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
    Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")
    check(libc.mount(b"none", b"/", None, ctypes.c_ulong(_REC | _PRIVATE), None))
    check(libc.mount(b"tmpfs", b"/mnt", b"tmpfs", ctypes.c_ulong(0), b"mode=755"))
    held = []
    for number, layer in enumerate(layers):
        target = b"/mnt" + layer.target
        os.mkdir(target)
        fds = [os.open(path, os.O_PATH | os.O_DIRECTORY) for path in (layer.lower, layer.upper, layer.work)]
        held += fds
        names = tuple(b"/proc/self/fd/%d" % fd for fd in fds)
        options = b"userxattr,volatile,lowerdir=%s,upperdir=%s,workdir=%s" % names
        check(libc.mount(b"overlay", target, b"overlay", ctypes.c_ulong(0), options))
        assert number >= 0
    os.chdir(b"/mnt" + layers[0].target)
    for fd in held:
        os.close(fd)


def session(
    root: Path, state: Path, act: Callable[[], object], *, meanwhile: Callable[[], object] = lambda: None,
    policy: tuple[str, ...] = (), want_copy: bool = False,
) -> tuple[ChangeSet, Blobs]:
    """Open a working copy over ``root``, let ``act`` work in it (and ``meanwhile`` outside), and collect."""
    blobs = Blobs(state / "blobs")

    async def run() -> ChangeSet:
        async with open_workspace(
            find_project(os.fsencode(root)), Exclusions.parse(policy), state / "scratch", os.geteuid(), os.getegid(),
            want_copy=want_copy, hidden=(os.fsencode(state),),
        ) as workspace:
            inside(workspace, act)
            meanwhile()
            return workspace.collect(blobs)

    return trio.run(run), blobs


def applied(root: Path, state: Path, changes: ChangeSet, blobs: Blobs, **options: Any) -> Applied | Conflict:
    return apply_changes(os.fsencode(root), changes, blobs, state / "apply.json", **options)


def tree(root: Path | str | bytes) -> dict[bytes, tuple[str, int, bytes]]:
    """Everything beneath a directory but git's own: path → (kind, permission bits, content or target)."""
    found: dict[bytes, tuple[str, int, bytes]] = {}
    top = os.fsencode(root)
    stack = [b""]
    while stack:
        directory = stack.pop()
        for name in os.listdir(os.path.join(top, directory)):
            path = os.path.join(directory, name)
            full = os.path.join(top, path)
            status = os.lstat(full)
            if is_git_name(name):
                continue
            mode = stat.S_IMODE(status.st_mode)
            if stat.S_ISDIR(status.st_mode):
                found[path] = ("directory", mode, b"")
                stack.append(path)
            elif stat.S_ISLNK(status.st_mode):
                found[path] = ("link", 0, os.readlink(full))
            elif stat.S_ISREG(status.st_mode):
                with open(full, "rb") as file:
                    found[path] = ("file", mode, file.read())
            else:
                found[path] = ("other", mode, b"")
    return found
