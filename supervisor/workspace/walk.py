"""The names-only walk that finds what the exclusions hide.

It opens directories and reads their names; it never looks at an inode, opens no file, follows no link and knows no recursion
limit. Names are matched in the kernel's batches by one regular expression, so that a file costs a few nanoseconds of Python.
"""
from __future__ import annotations

import os
from dataclasses import dataclass

from native import files
from supervisor.workspace.exclusions import Exclusions
from supervisor.workspace.gitnames import is_git_name


@dataclass(frozen=True, slots=True)
class Found:
    """What a walk found, as paths relative to the project's root, sorted.

    ``unreadable``: directories that could not be opened. What lies beneath them was not searched; a sandbox, which runs
    with the same rights or fewer, cannot open them either. ``directories`` counts those that were read, ``files`` the
    regular files in them. ``gits``: each ``.git`` below the root's own, a directory or a file.
    """

    masked: tuple[bytes, ...]
    unreadable: tuple[bytes, ...]
    directories: int
    files: int
    gits: tuple[bytes, ...] = ()


def find_excluded(root: int, exclusions: Exclusions) -> Found:
    """Walk the project beneath this directory descriptor. Raises OSError only when the root itself cannot be read."""
    masked: list[bytes] = []
    unreadable: list[bytes] = []
    gits: list[bytes] = []
    directories = regular = 0
    stack = [b""] if exclusions else []
    while stack:
        directory = stack.pop()
        try:
            fd = files.open_directory(root, directory)
        except (FileNotFoundError, NotADirectoryError):
            continue  # the developer moved it meanwhile
        except OSError:
            if not directory:
                raise
            unreadable.append(directory)
            continue
        try:
            directories += 1
            prefix = directory + b"/" if directory else b""
            by_path = exclusions.anchored_below(directory)
            for batch in files.names(fd):
                regular += batch.count(b"\0f")
                if prefix and (b"\0d.git\0" in batch or b"\0f.git\0" in batch):
                    gits.append(prefix + b".git")
                if by_path:
                    _match_paths(batch, prefix, exclusions, masked)
                hidden, below = exclusions.split(batch)
                masked += [prefix + name for name in hidden if not is_git_name(name)]
                stack += [prefix + name for name in below if not is_git_name(name)]
        finally:
            os.close(fd)
        if by_path:
            found = set(masked)
            stack = [path for path in stack if path not in found and exclusions.worth_walking(path)]
    return Found(tuple(sorted(set(masked))), tuple(sorted(unreadable)), directories, regular, tuple(sorted(gits)))


def _match_paths(batch: bytes, prefix: bytes, exclusions: Exclusions, masked: list[bytes]) -> None:
    """The slower way, where an anchored pattern could match in this directory: one path after the other."""
    for record in batch[1:-1].split(b"\0"):
        path = prefix + record[1:]
        # A link may lead to a directory: it counts as one, see exclusions.py
        if record and exclusions.matches_path(path, record[:1] in b"dl") and not is_git_name(record[1:]):
            masked.append(path)
