"""Directories that git would take for a repository although none is called ``.git``. Pure.

Git looks for a bare repository in each directory that it is run in, and does what its ``config`` names: ``cd fixtures && git
status`` is enough. What makes one is a ``HEAD`` beside ``objects`` and ``refs``, or beside ``commondir``, which says where
these are (gitrepository-layout(5)). None of the parts that git reads there is taken over from a session, whether the
directory is new or was the developer's; other files beside them are.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from supervisor.workspace.changes import Entry

WHY: Final = "git would take its directory for a repository of its own"
_PARTS: Final = frozenset({
    b"commondir", b"config", b"config.worktree", b"head", b"hooks", b"info", b"modules", b"objects", b"packed-refs", b"refs",
    b"worktrees",
})


def planted(entries: Mapping[bytes, Entry], stands: Callable[[bytes], bool]) -> Iterator[bytes]:
    """Paths, among the changed ones, that would be a part of such a repository once all changes are applied.

    ``stands(path)``: whether the developer has something at this path now; asked only for what no entry tells.
    """
    names: dict[bytes, set[bytes]] = {}  # by directory, folded: the developer's may be a directory without upper case
    for path, entry in entries.items():
        if entry.after is not None:
            directory, _, name = path.rpartition(b"/")
            names.setdefault(directory, set()).add(name.lower())

    def has(directory: bytes, name: bytes) -> bool:
        if name.lower() in names.get(directory, ()):
            return True
        path = directory + b"/" + name if directory else name
        own = entries.get(directory)
        return path not in entries and (own is None or own.before is not None) and stands(path)

    known: dict[bytes, bool] = {}
    for path in entries:
        parts = path.split(b"/")
        for depth, part in enumerate(parts):
            if part.lower() not in _PARTS:
                continue
            directory = b"/".join(parts[:depth])
            if directory not in known:
                known[directory] = has(directory, b"HEAD") and (
                    has(directory, b"commondir") or (has(directory, b"objects") and has(directory, b"refs"))
                )
            if known[directory]:
                yield path
                break
