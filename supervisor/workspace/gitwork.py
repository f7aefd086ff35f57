"""What a session did in git's own directories: nothing of it is ever taken, so the person is told where it was done.

A commit, a stash, a tag, a hook or a nested repository lives below ``.git``, which never enters a change set (gitnames.py); it
goes with the working copy. Told is everything that differs below such a name (objects, refs, HEAD, logs, hooks, config, info,
what no git ever wrote), but not what git writes while it only looks: ``git status`` rewrites the index, ``git fetch`` without
a network leaves an empty FETCH_HEAD. Neither are modes but the owner's ``x``, nor FIFOs and sockets, which hold nothing.
"""
from __future__ import annotations

import bisect
import contextlib
import os
import stat
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from native import files
from supervisor.workspace.blobs import PIECE, open_regular
from supervisor.workspace.overlay import attribute
from supervisor.workspace.trees import inside, lstat

_LONGEST_PATH: Final = 4095  # bytes, as a single system call takes
_NAMED: Final = 5  # git directories that the notice names; the rest are counted
_LOOKING: Final = frozenset({b"index", b"index.lock", b"FETCH_HEAD"})
_WITHIN: Final = frozenset({b"modules", b"worktrees"})  # where the directories of submodules and linked worktrees are
_NOT_GITS: Final = frozenset({b"refs", b"logs", b"objects", b"hooks", b"info"})  # a branch may be called "index"


def is_told(path: bytes) -> bool:
    """Whether a change at this path, relative to a git directory that was there before, is worth a notice."""
    directory, _, name = path.rpartition(b"/")
    if name not in _LOOKING and not name.startswith(b"sharedindex."):
        return True
    parts = directory.split(b"/") if directory else []
    return bool(parts) and (parts[0] not in _WITHIN or not _NOT_GITS.isdisjoint(parts))


@dataclass(slots=True)
class GitWork:
    """Git directories that a session changed, as the notice names them; ``count`` of them, the first few by name."""

    count: int = 0
    named: list[bytes] = field(default_factory=list)

    def add(self, directory: bytes) -> None:
        self.count += 1
        bisect.insort(self.named, directory)
        del self.named[_NAMED:]

    @property
    def notice(self) -> str | None:
        """One for all of them, or None."""
        if not self.count:
            return None
        where = ", ".join(repr(os.fsdecode(path))[1:-1] for path in self.named)
        more = f" and {self.count - len(self.named)} more" if self.count > len(self.named) else ""
        return (
            f"the session changed git's own files in {where}{more}: nothing of them is taken; its commits, stashes, hooks and "
            "git configuration stay in the session and go with it"
        )


@dataclass(frozen=True, slots=True)
class Layers:
    """A working copy and what it was made of. ``copy`` and ``lower`` are descriptors of an overlay's upper layer, or of a plain
    copy, and of the developer's tree; ``seeds`` stood in the copy instead of the developer's files (overlay.py).

    ``made``: inode and change time of all that a plain copy began with; None for an overlay.
    """

    copy: int
    lower: int
    seeds: Mapping[bytes, bytes]
    made: Mapping[bytes, tuple[int, int] | None] | None

    def is_changed(self, top: bytes, seen: set[bytes]) -> bool:
        """Whether the session changed what git keeps at this path, which is in the copy; b"" is the whole of it.

        ``seen`` takes the paths that a plain copy still has, up to the first change that is told.
        """
        with _below(self.lower, os.path.dirname(top)) as lower:
            came = not top or lstat(lower, os.path.basename(top)) is not None
        start = len(top) + 1 if top else 0
        with contextlib.closing(self._changes(top, seen)) as changes:
            return any(not came or path == top or is_told(path[start:]) for path in changes)

    def _changes(self, top: bytes, seen: set[bytes]) -> Generator[bytes]:
        stack = [(os.path.dirname(top), not top)]
        while stack:
            directory, whole = stack.pop()
            with inside(self.copy, directory) as here, _below(self.lower, directory) as lower:
                for name in [name for _, name in files.entries(here)] if whole else [os.path.basename(top)]:
                    path = directory + b"/" + name if directory else name
                    if self.made is not None:
                        seen.add(path)
                    status = os.stat(name, dir_fd=here, follow_symlinks=False)
                    if self._differs(path, here, name, status, lower):
                        yield path
                    elif stat.S_ISDIR(status.st_mode):
                        stack.append((path, True))

    def _differs(self, path: bytes, here: int, name: bytes, status: os.stat_result, lower: int | None) -> bool:
        if len(path) > _LONGEST_PATH:
            return True  # nobody could look into it
        if self.made is not None and self.made.get(path) == (status.st_ino, status.st_ctime_ns):
            return False
        was = lstat(lower, name)
        if stat.S_ISDIR(status.st_mode):  # a new one is judged by what is in it
            return was is not None and (not stat.S_ISDIR(was.st_mode) or self._hides(here, name))
        if stat.S_ISREG(status.st_mode):
            if path in self.seeds:
                return not _holds(here, name, self.seeds[path])
            return was is None or lower is None or not _same_file(here, lower, name, status, was)
        if stat.S_ISLNK(status.st_mode):
            return was is None or not stat.S_ISLNK(was.st_mode) or (
                os.readlink(name, dir_fd=here) != os.readlink(name, dir_fd=lower)
            )
        return was is not None  # an overlay's mark of a deletion, or what holds nothing in the place of what did

    def _hides(self, here: int, name: bytes) -> bool:
        """Whether a directory was taken away and made anew; what is missing from a plain copy is found by its names."""
        return self.made is None and attribute(here, name, "opaque") is not None


@contextlib.contextmanager
def _below(lower: int, directory: bytes) -> Iterator[int | None]:
    """The developer's directory of this path, or None where there is none that can be read."""
    try:
        fd = files.open_directory(lower, directory)
    except OSError:
        yield None
        return
    try:
        yield fd
    finally:
        os.close(fd)


def _same_file(here: int, lower: int, name: bytes, status: os.stat_result, was: os.stat_result) -> bool:
    """Whether both are files of the same bytes, and both or neither may be executed. Reads no more than the developer's."""
    if not stat.S_ISREG(was.st_mode) or was.st_size != status.st_size or (was.st_mode ^ status.st_mode) & stat.S_IXUSR:
        return False
    try:
        theirs = os.fdopen(open_regular(lower, name), "rb")
    except OSError:
        return False  # the person cannot read it either: whether it differs is not known
    with theirs, os.fdopen(_open_ours(here, name), "rb") as ours:
        while piece := theirs.read(PIECE):
            if ours.read(len(piece)) != piece:
                return False
    return True


def _holds(here: int, name: bytes, content: bytes) -> bool:
    with os.fdopen(_open_ours(here, name), "rb") as file:
        return file.read(len(content) + 1) == content


def _open_ours(directory: int, name: bytes) -> int:
    try:
        return open_regular(directory, name)
    except PermissionError:
        os.chmod(name, 0o600, dir_fd=directory)  # ours and at rest, see trees.py
        return open_regular(directory, name)
