"""Files of a project that a session cannot read, looked for so that the person hears of them.

A look at each inode, which the walk for the exclusions avoids: done before the session opens where there are few files, and
beside it where there are many.
"""
from __future__ import annotations

import os
from collections.abc import Callable, Iterator

from native import files
from supervisor.workspace.gitnames import is_git_name

FEW = 10_000  # files that are looked at before opening: some ten milliseconds
SHOWN = 1000  # paths kept; beyond them only counted


def find_unreadable(
    root: bytes, hidden: frozenset[bytes], ids: tuple[int, int] | None, going_on: Callable[[], bool] = lambda: True
) -> tuple[list[bytes], int]:
    """Paths of regular files beneath ``root`` that cannot be read, sorted, the first ``SHOWN``; and how many there are.

    ``hidden`` paths are not of interest, nor is what lies beneath them. ``ids``: of the project's owner, when root's sandbox
    reads as that one; None: the caller reads. Ends early when ``going_on`` says no. Raises OSError when ``root`` cannot be
    opened.
    """
    found: list[bytes] = []
    count = 0
    fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for path in _closed_beneath(fd, hidden, ids, going_on):
            count += 1
            if count <= SHOWN:
                found.append(path)
    finally:
        os.close(fd)
    return sorted(found), count


def _closed_beneath(
    root: int, hidden: frozenset[bytes], ids: tuple[int, int] | None, going_on: Callable[[], bool]
) -> Iterator[bytes]:
    stack = [b""]
    while stack and going_on():
        directory = stack.pop()
        try:
            fd = files.open_directory(root, directory)
        except OSError:
            continue  # closed, which the exclusions' walk tells, or gone
        try:
            prefix = directory + b"/" if directory else b""
            for batch in files.names(fd):
                paths = (prefix + name for name in files.unreadable(fd, batch, ids))
                yield from (path for path in paths if path not in hidden)
                for record in batch[1:-1].split(b"\0") if b"\0d" in batch else ():
                    path = prefix + record[1:]
                    if record[:1] == b"d" and not is_git_name(record[1:]) and path not in hidden:
                        stack.append(path)
        finally:
            os.close(fd)
