"""Changes as a patch that ``git apply`` takes whole: binary files as well, streamed, and with a list of what git cannot say.

A binary or large file is git's "literal" form: zlib, then base 85, 52 bytes a line, under a line that names both contents by
git's own digest of them, without which git applies nothing; then the same the other way round, for ``git apply --reverse``,
where the old bytes were kept. See gitformat-pack(5) for the name of an object, and "GIT binary patch" in git-diff(1). Pure.

Lines are as diff.py has them. What no patch of git's can say (empty directories, permission bits beyond the execute bit, a
content that could not be read) is left out of the patch and told: what is not all of it must not look as if it were.
"""
from __future__ import annotations

import base64
import hashlib
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Protocol

from supervisor.workspace.changes import ChangeSet, Entry, Kind, State
from supervisor.workspace.diff import PLAIN, Reader, header, permissions, stream

MOST: Final = 1023 << 20  # bytes of a patch that git apply reads (apply.c, MAX_APPLY_SIZE)
_LINE: Final = 52  # bytes of compressed content in one line
_LINES: Final = 512  # coded at once: the standard library needs many times their size meanwhile


class Contents(Protocol):
    """The kept bytes behind a change set (blobs.py). Each raises StoreError where what it needs is damaged."""

    @property
    def read(self) -> Reader: ...

    def holds(self, sha256: str) -> bool:
        """Whether these bytes were kept."""

    def pieces(self, sha256: str) -> Iterator[bytes]:
        """The bytes, a piece at a time."""

    def name_in_git(self, sha256: str, algorithm: str) -> str:
        """The name of a content that was not kept as git has it, or "" where it is not known."""


@dataclass(frozen=True, slots=True)
class Lost:
    """What a patch does not say: where, and what, in words."""

    path: bytes
    what: str
    whole: bool = False  # nothing of the path is in the patch


def patch(found: ChangeSet, contents: Contents, algorithm: str, lost: list[Lost]) -> Iterator[bytes]:
    """The patch of what is proposed, in pieces; what is not in it is added to ``lost``.

    ``algorithm`` is the digest that names objects in the repository that it is meant for: ``sha1`` or ``sha256``.
    """
    unsaid = sorted(_unsaid(found.proposed), key=lambda one: one.path)
    refused = {one.path for one in unsaid if one.whole}  # git would refuse the patch for it
    said = ChangeSet(tuple(entry for entry in found.entries if entry.path not in refused))
    yield from stream(said, contents.read, _Binary(contents, algorithm, lost).hunks)
    lost += unsaid


@dataclass(frozen=True, slots=True)
class _Binary:
    contents: Contents
    algorithm: str
    lost: list[Lost]

    def hunks(self, path: bytes, before: State | None, after: State | None) -> Iterator[bytes]:
        """The patch of one binary or large file."""
        old, new = self._name(before), self._name(after)
        if not old or not new:
            self.lost.append(Lost(path, "its content: what stood there could not be read or was not kept", whole=True))
            return
        mode, head = header(path, before, after)
        yield head + b"index " + old.encode() + b".." + new.encode() + mode + b"\nGIT binary patch\n"
        yield from self._literal(after)
        if before is None or self.contents.holds(before.sha256):
            yield from self._literal(before)

    def _name(self, state: State | None) -> str:
        """Git's name of a content; all zeros for none, "" where it is not known."""
        if state is None:
            return "0" * 2 * hashlib.new(self.algorithm, usedforsecurity=False).digest_size
        if not state.sha256:
            return ""
        if self.contents.holds(state.sha256):
            return object_names(state.size, self.contents.pieces(state.sha256), self.algorithm)[0]
        return self.contents.name_in_git(state.sha256, self.algorithm)

    def _literal(self, state: State | None) -> Iterator[bytes]:
        if state is None:
            return literal(0, ())
        return literal(state.size, self.contents.pieces(state.sha256))


def object_names(size: int, pieces: Iterable[bytes], *algorithms: str) -> list[str]:
    """What git calls a content of this size, by each of these algorithms."""
    hashers = [hashlib.new(algorithm, b"blob %d\0" % size, usedforsecurity=False) for algorithm in algorithms]
    for piece in pieces:
        for hasher in hashers:
            hasher.update(piece)
    return [hasher.hexdigest() for hasher in hashers]


def literal(size: int, pieces: Iterable[bytes]) -> Iterator[bytes]:
    """One side of a binary patch, as git writes it: ``size`` bytes in compressed lines, and an empty one."""
    yield b"literal %d\n" % size
    deflate = zlib.compressobj(zlib.Z_BEST_SPEED)  # as git has it
    kept = b""
    for piece in pieces:
        kept += deflate.compress(piece)
        whole = len(kept) // _LINE * _LINE
        yield from _lines(kept[:whole])
        kept = kept[whole:]
    yield from _lines(kept + deflate.flush())
    yield b"\n"


def _lines(data: bytes) -> Iterator[bytes]:
    """Each line begins with the number of its bytes: A to Z for 1 to 26, a to z for 27 to 52."""
    for at in range(0, len(data), _LINE * _LINES):
        yield _coded(data[at : at + _LINE * _LINES])


def _coded(data: bytes) -> bytes:
    coded = base64.b85encode(data, pad=True)
    out = []
    for at in range(0, len(data), _LINE):
        count = min(_LINE, len(data) - at)
        letter = b"%c" % (count + (64 if count <= 26 else 70))
        out.append(letter + coded[at // 4 * 5 : (at + count + 3) // 4 * 5] + b"\n")
    return b"".join(out)


def _unsaid(entries: tuple[Entry, ...]) -> Iterator[Lost]:
    """Directories and permission bits that a patch has no words for."""
    come = _above(entry.path for entry in entries if entry.after is not None and entry.after.kind is not Kind.DIRECTORY)
    gone = _above(entry.path for entry in entries if entry.before is not None and entry.before.kind is not Kind.DIRECTORY
                  and (entry.after is None or entry.after.kind is not entry.before.kind))
    stays: set[bytes] = set()  # directories that git does not remove, since it does not empty them
    for entry in reversed(entries):
        before, after = entry.before, entry.after
        was = before is not None and before.kind is Kind.DIRECTORY
        if after is not None and after.kind is Kind.DIRECTORY:
            if not was and entry.path not in come:
                yield Lost(entry.path, "a new directory without a file in it")
            elif before is not None and was and before.mode != after.mode:
                yield Lost(entry.path, f"permissions {before.mode:04o} become {after.mode:04o}")
            elif not was and after.mode not in PLAIN:
                yield Lost(entry.path, f"permissions {after.mode:04o}")
        elif was and after is None and (entry.path not in gone or entry.path in stays):
            stays.add(entry.path.rpartition(b"/")[0])
            yield Lost(entry.path, "the deletion of a directory without a file in it")
        elif was and after is not None and entry.path in stays:
            yield Lost(entry.path, "a file in the place of a directory that git does not remove", whole=True)
        if said := permissions(before, after):
            yield Lost(entry.path, said)


def _above(paths: Iterable[bytes]) -> set[bytes]:
    """Every directory that one of these lies in."""
    found: set[bytes] = set()
    for path in paths:
        while (path := path.rpartition(b"/")[0]) and path not in found:
            found.add(path)
    return found
