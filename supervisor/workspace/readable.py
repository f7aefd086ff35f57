"""Files of a project that a session cannot read, looked for so that the person hears of them.

A look at each inode, which the walk for the exclusions avoids: done before the session opens where there are few files, and
beside it where there are many.
"""
from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from native import files
from supervisor.workspace.gitnames import is_git_name

FEW = 10_000  # files that are looked at before opening: some ten milliseconds
SHOWN = 1000  # paths kept; beyond them only counted


@dataclass(frozen=True, slots=True)
class Closed:
    """Paths that cannot be read, sorted, the first ``SHOWN``; and how many there are. ``whole``: everything was looked at."""

    paths: tuple[bytes, ...]
    count: int
    whole: bool


def find_unreadable(
    root: bytes,
    hidden: frozenset[bytes],
    ids: tuple[int, int] | None,
    *,
    most: float = math.inf,
    going_on: Callable[[], bool] = lambda: True,
) -> Closed:
    """Look for what cannot be read beneath ``root``: files and, with ``ids``, directories.

    ``hidden`` paths are not of interest, nor is what lies beneath them. ``ids``: of the project's owner, when root's sandbox
    reads as that one; None: the caller reads, and directories are the exclusions' walk to tell. Ends after ``most`` names, or
    when ``going_on`` says no. Raises OSError when ``root`` cannot be opened.
    """
    found: list[bytes] = []
    count = seen = 0
    stack = [b""]
    fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        while stack:
            directory = stack.pop()
            for opened, batch in _batches(fd, directory):
                seen += batch.count(b"\0") - 1
                if seen > most or not going_on():
                    return Closed(tuple(sorted(found)), count, whole=False)
                prefix = directory + b"/" if directory else b""
                closed = {prefix + name for name in files.unreadable(opened, batch, ids)} - hidden
                count += len(closed)
                found += sorted(closed)[: SHOWN - len(found)]
                stack += [path for path in _below(batch, prefix) if path not in hidden and path not in closed]
    finally:
        os.close(fd)
    return Closed(tuple(sorted(found)), count, whole=True)


def _batches(root: int, directory: bytes) -> Iterator[tuple[int, bytes]]:
    """The open directory and each batch of its names."""
    try:
        fd = files.open_directory(root, directory)
    except OSError:
        return  # closed, which the walk for the exclusions tells, or gone
    try:
        for batch in files.names(fd):
            yield fd, batch
    finally:
        os.close(fd)


def _below(batch: bytes, prefix: bytes) -> Iterator[bytes]:
    for record in batch[1:-1].split(b"\0") if b"\0d" in batch else ():
        if record[:1] == b"d" and not is_git_name(record[1:]):
            yield prefix + record[1:]
