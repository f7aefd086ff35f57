"""Opening what a model names beneath the working copy, and nothing outside it (FP-01…09).

No path is checked and then used: the kernel resolves it beneath a directory descriptor (openat2 with RESOLVE_BENEATH), links
included, and answers EXDEV at the step that would leave it. There is no window for a swap, and nothing outside is ever opened
or looked at. A root supervisor does all of it under the file-system ids of the sandbox's commands (see native/files.c).
"""
from __future__ import annotations

import errno
import os
import stat
from dataclasses import dataclass
from typing import Final

from native import files
from supervisor.workspace.gitdirs import WORKDIR

_ATTEMPTS: Final = 8  # of an open that answers EAGAIN: something is renamed at the same time, or a lease is held


class OutsideProject(Exception):
    """The path leads out of the working copy. Becomes a refusal value in files.py."""


class CannotServe(Exception):
    """The file is not one that can be read or written; the text is for the model."""


class WrongArgument(Exception):
    """An argument beside the path has no meaning, whatever the path names; the text, for the model, says which."""


def relative(path: str) -> bytes:
    """A path as the model wrote it, relative to the working copy. ``/workspace/…`` is inside; other absolute paths are not.

    ``..`` is left to the kernel, which knows what it leads to. OutsideProject, or CannotServe for what is no path.
    """
    if "\0" in path or not path:
        raise CannotServe("a path must not be empty or hold a NUL character")
    try:
        raw = os.fsencode(path)
    except UnicodeEncodeError:
        raise CannotServe("the path is not valid text") from None
    if raw.startswith(b"/"):
        clean = os.path.normpath(raw) if b".." not in raw.split(b"/") else raw.rstrip(b"/")
        clean = b"/" + clean.lstrip(b"/")
        if clean != WORKDIR and not clean.startswith(WORKDIR + b"/"):
            raise OutsideProject
        raw = clean[len(WORKDIR) + 1 :]
    return raw.rstrip(b"/") or b"."


@dataclass(frozen=True, slots=True)
class Beneath:
    """The working copy: its directory descriptor, and as whom files are reached (None: as the caller)."""

    root: int
    ids: files.Ids = None

    def open(self, path: bytes, flags: int, mode: int = 0) -> int:
        """Open beneath the root. OutsideProject where the path leads out; OSError otherwise."""
        if not flags & os.O_PATH:  # openat2(2) refuses with O_PATH what has no sense with it
            flags |= os.O_NONBLOCK | os.O_NOCTTY
        for attempt in range(_ATTEMPTS):
            try:
                return files.openat2(self.root, path, flags, mode=mode, ids=self.ids)
            except OSError as error:
                if error.errno == errno.EXDEV:
                    raise OutsideProject from None
                if error.errno != errno.EAGAIN or attempt == _ATTEMPTS - 1:
                    raise
        raise AssertionError("unreachable")

    def open_file(self, path: bytes, flags: int, mode: int = 0) -> int:
        """The same, and only a regular file: a FIFO, a device or a terminal must not be waited for."""
        fd = self.open(path, flags, mode)
        kind = os.fstat(fd).st_mode
        if stat.S_ISREG(kind):
            return fd
        os.close(fd)
        raise CannotServe("it is a directory" if stat.S_ISDIR(kind) else "it is not a regular file")

    def make_parents(self, path: bytes) -> None:
        """Make the directories above a path that are missing, each beneath the root."""
        parts = os.path.dirname(path).split(b"/")
        for depth in range(1, len(parts) + 1):
            above, name = b"/".join(parts[: depth - 1]) or b".", parts[depth - 1]
            if name in (b"", b".", b".."):
                continue
            directory = self.open(above, os.O_PATH | os.O_DIRECTORY)
            try:
                files.mkdirat(directory, name, 0o777, ids=self.ids)  # never through a link: a taken name is EEXIST
            except FileExistsError:
                pass
            finally:
                os.close(directory)
