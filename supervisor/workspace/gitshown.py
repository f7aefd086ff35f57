"""Git's configurations below a directory, found and read for what a session is shown of them (``gitconfig``).

A git directory may be somebody else's: it came in an archive, or lies where others write. So everything is opened beneath one
descriptor with no link followed (openat2), and only regular files are read: a link that leads out shows nothing of its target,
and no FIFO holds the opening. What is found is bounded, too: beyond that, configurations are shown as they are, which is told.
"""
from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Final

from native import files
from supervisor.workspace.blobs import open_regular
from supervisor.workspace.gitconfig import neutral

CONFIG_NAMES: Final = (b"config", b"config.worktree")
_DIRECTORIES: Final = 1000  # of git's, whose configurations are looked at
_BYTES: Final = 4 << 20  # of one of them
_ROOM: Final = 64 << 20  # bytes of all that read otherwise


class Shown:
    """What reads otherwise below one directory: ``contents`` by its relative path.

    ``hides``: an identity or a credential is left out; ``whole``: every configuration was looked at.
    """

    def __init__(self, tree: int) -> None:
        """``tree`` is a descriptor of the directory, the caller's."""
        self.contents: dict[bytes, bytes] = {}
        self.hides, self.whole = False, True
        self._tree = tree
        self._left, self._room = _DIRECTORIES, _ROOM

    def look(self, git: bytes = b"") -> None:
        """Look at the git directory at this relative path, and at those of its submodules and linked worktrees."""
        for directory in self._directories(git):
            if self._left == 0 or self._room < 0:
                self.whole = False
                return
            self._left -= 1
            for name in CONFIG_NAMES:
                self._one(os.path.join(directory, name))

    def read(self, path: bytes) -> bytes:
        """A configuration as it is shown; nothing where there is none, or none that a session could read."""
        return self.contents.get(path) or read(self._tree, path) or b""

    def _one(self, path: bytes) -> None:
        text = read(self._tree, path)
        if text is None:
            self.whole = False
        elif (left := neutral(text)) != text:
            self.contents[path] = left
            self.hides = True
            self._room -= len(left)

    def _directories(self, git: bytes) -> Iterator[bytes]:
        stack = [git]
        while stack:
            here = stack.pop()
            yield here
            with contextlib.suppress(OSError), _opened(self._tree, os.path.join(here, b"worktrees")) as fd:
                stack += [os.path.join(here, b"worktrees", name) for kind, name in files.entries(fd) if kind == "d"]
            with contextlib.suppress(OSError), _opened(self._tree, here) as fd:
                for directory, names, regular, _ in os.fwalk(b"modules", dir_fd=fd):  # their names may have slashes
                    if b"config" in regular and b"HEAD" in regular:
                        stack.append(os.path.join(here, directory))
                        names.clear()  # what lies below it is its own


def read(tree: int, path: bytes) -> bytes | None:
    """A small regular file beneath ``tree``; nothing where there is none that can be read, None where it is too large."""
    with contextlib.suppress(OSError), _opened(tree, os.path.dirname(path)) as above:
        with os.fdopen(open_regular(above, os.path.basename(path)), "rb") as file:
            text = file.read(_BYTES + 1)
        return text if len(text) <= _BYTES else None
    return b""


@contextlib.contextmanager
def _opened(tree: int, directory: bytes) -> Iterator[int]:
    fd = files.open_directory(tree, directory)
    try:
        yield fd
    finally:
        os.close(fd)
