"""Trees on disk that somebody else filled: taken away and looked at without trusting a name, a mode or a depth.

Nothing here recurses, follows a link or builds a path longer than one name: a session can leave directories a hundred
thousand deep.
"""
from __future__ import annotations

import contextlib
import math
import os
import stat
import time
from collections.abc import Iterator

from native import files

_OWNER_ALL = 0o700


def open_inside(parent: int, name: bytes) -> int:
    """Open a subdirectory of a tree that is ours and at rest, giving ourselves the permission where the tree's owner took it.

    (``chmod 000`` inside a session must not stop the supervisor, which runs as the same user.) Never through a link.
    """
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        return os.open(name, flags, dir_fd=parent)
    except PermissionError:
        # Safe against a link only because nothing else writes here any more: fchmodat follows links.
        if stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
            os.chmod(name, _OWNER_ALL, dir_fd=parent)
        return os.open(name, flags, dir_fd=parent)


@contextlib.contextmanager
def inside(root: int, path: bytes) -> Iterator[int]:
    """A directory of such a tree by its relative path, readable whatever mode was given to it or to one above it."""
    try:
        here = files.open_directory(root, path)
    except PermissionError:
        here = os.dup(root)
        for part in path.split(b"/"):
            below = open_inside(here, part)
            os.close(here)
            here = below
    try:
        if os.fstat(here).st_mode & 0o500 != 0o500:
            os.fchmod(here, _OWNER_ALL)
        yield here
    finally:
        os.close(here)


def lstat(directory: int | None, name: bytes) -> os.stat_result | None:
    """What has this name in a directory; None where there is nothing, or no directory."""
    if directory is None:
        return None
    try:
        return os.stat(name, dir_fd=directory, follow_symlinks=False)
    except (FileNotFoundError, NotADirectoryError):
        return None


def remove_tree(parent: int, name: bytes, *, seconds: float = math.inf) -> None:
    """``rm -rf`` of one entry of a directory, in constant memory per level and with one descriptor. Absent is fine.

    Goes down by name and up by ``..``, which is safe in a tree that nobody moves any more. OSError when something stays;
    TimeoutError after ``seconds``, with the rest left for another time (the kernel takes minutes for a very deep chain).
    """
    try:
        status = os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return
    if not stat.S_ISDIR(status.st_mode):
        files.unlinkat(parent, name)
        return
    here = open_inside(parent, name)
    above: list[tuple[bytes, list[bytes]]] = []  # name of the directory to remove on the way up, siblings still to visit
    current, pending = name, _empty(here)
    end = time.monotonic() + seconds
    try:
        while True:
            if time.monotonic() > end:
                raise TimeoutError(f"removing {os.fsdecode(name)} takes too long")
            if pending:
                child = pending.pop()
                below = open_inside(here, child)
                os.close(here)
                here = below
                above.append((current, pending))
                current, pending = child, _empty(here)
            elif above:
                up = os.open(b"..", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=here)
                os.close(here)
                here = up
                files.unlinkat(here, current, is_directory=True)
                current, pending = above.pop()
            else:
                break
    finally:
        os.close(here)
    files.unlinkat(parent, name, is_directory=True)


def _empty(directory: int) -> list[bytes]:
    """Unlink everything that is no directory, and name the directories."""
    if os.fstat(directory).st_mode & _OWNER_ALL != _OWNER_ALL:
        with contextlib.suppress(PermissionError):
            os.fchmod(directory, _OWNER_ALL)
    below: list[bytes] = []
    for letter, name in files.entries(directory):
        if letter == "d":
            below.append(name)
        else:
            files.unlinkat(directory, name)
    return below
