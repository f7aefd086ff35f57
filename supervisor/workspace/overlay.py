"""A working copy as overlay: the scratch that lies above the developer's tree, and what is seeded in it before the session.

The project is the read-only lower layer; ``upper`` and ``work`` are the session's. Seeds are made here, outside, as the ids
that the sandbox has on the host: whiteouts hide what a session must not see, files replace what must read differently inside
(where git keeps its directory). The sandbox mounts the layers; collect.py later tells the session's work from the seeds.
"""
from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from native import files


@dataclass(frozen=True, slots=True)
class OverlayLayers:
    """An overlay to mount: host paths, and the path inside. ``owner_*`` own ``lower``'s root on disk."""

    lower: bytes
    upper: bytes
    work: bytes
    target: bytes
    owner_uid: int
    owner_gid: int


@dataclass(frozen=True, slots=True)
class Seeds:
    """What is put into an upper layer: paths relative to the layer's root."""

    hidden: tuple[bytes, ...] = ()
    contents: tuple[tuple[bytes, bytes], ...] = ()


def make_layers(
    lower: bytes, directory: bytes, name: bytes, target: bytes, ids: tuple[int, int], seeds: Seeds
) -> OverlayLayers:
    """Make ``directory/name`` with its ``upper`` and ``work``, owned by ``ids``, and seed the upper layer.

    The copy's root is the upper layer's root, so it takes the lower one's mode. OSError when a step fails.
    """
    status = os.stat(lower)
    base = os.path.join(directory, name)
    upper, work = os.path.join(base, b"upper"), os.path.join(base, b"work")
    os.mkdir(base, 0o700)
    for path in (upper, work):
        os.mkdir(path, 0o700)
        if os.geteuid() == 0:
            os.chown(path, *ids)
    with _directory(lower) as below, _directory(upper) as above:
        _Seeder(below, above, ids if os.geteuid() == 0 else None).plant(seeds)
        os.fchmod(above, stat.S_IMODE(status.st_mode))
    return OverlayLayers(lower, upper, work, target, status.st_uid, status.st_gid)


def attribute(directory: int, name: bytes | None, what: str) -> bytes | None:
    """An extended attribute of overlayfs, of a directory or of what has a name in it; ``user.`` as unprivileged mounts write
    it, ``trusted.`` as privileged ones do."""
    path = b"/proc/self/fd/%d" % directory + (b"/" + name if name is not None else b"")
    for space in ("user", "trusted"):
        with contextlib.suppress(OSError):
            return os.getxattr(path, f"{space}.overlay.{what}", follow_symlinks=name is None)
    return None


@contextlib.contextmanager
def _directory(path: bytes) -> Iterator[int]:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


class _Seeder:
    """Makes seeds with the directories above them; those copy the mode of the lower layer's, as the overlay would."""

    def __init__(self, lower: int, upper: int, ids: files.Ids) -> None:
        self.lower, self.upper, self.ids = lower, upper, ids
        self.made: dict[bytes, int] = {}  # directory → its final mode

    def plant(self, seeds: Seeds) -> None:
        try:
            for path in _outermost(seeds.hidden):
                with self._parent(path) as parent:
                    files.whiteout(parent, os.path.basename(path), ids=self.ids)
            for path, content in seeds.contents:
                with self._parent(path) as parent:
                    self._write(parent, path, content)
        finally:
            # Last and deepest first: a directory that its owner may not write must not stop its own seeds
            for path in sorted(self.made, reverse=True):
                fd = files.open_directory(self.upper, path)
                os.fchmod(fd, self.made[path])
                os.close(fd)

    @contextlib.contextmanager
    def _parent(self, path: bytes) -> Iterator[int]:
        parts = path.split(b"/")[:-1]
        here = os.dup(self.upper)
        try:
            for depth, part in enumerate(parts):
                directory = b"/".join(parts[: depth + 1])
                if directory not in self.made:
                    below = files.open_directory(self.lower, directory, flags=os.O_PATH)
                    self.made[directory] = stat.S_IMODE(os.fstat(below).st_mode)
                    os.close(below)
                    files.mkdirat(here, part, 0o700, ids=self.ids)
                further = files.open_directory(here, part)
                os.close(here)
                here = further
            yield here
        finally:
            os.close(here)

    def _write(self, parent: int, path: bytes, content: bytes) -> None:
        try:
            mode = stat.S_IMODE(os.stat(path, dir_fd=self.lower, follow_symlinks=False).st_mode) & 0o777
        except FileNotFoundError:
            mode = 0o644
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        fd = files.openat2(parent, os.path.basename(path), flags, mode=0o600, ids=self.ids)
        with open(fd, "wb") as file:
            file.write(content)
            os.fchmod(fd, mode)


def _outermost(paths: Iterable[bytes]) -> list[bytes]:
    """Without what lies beneath another of them: a whiteout hides a whole directory."""
    kept: list[bytes] = []
    for path in sorted(paths, key=lambda path: path + b"/"):
        if not kept or not (path + b"/").startswith(kept[-1] + b"/"):
            kept.append(path)
    return kept
