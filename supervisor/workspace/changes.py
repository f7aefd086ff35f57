"""What a session changed, as one frozen value: the only thing that leaves it (HV-08). Pure.

A change set holds no bytes of files, only their digests; the bytes are in the session's blobs (store.py). It is the same value
that is shown, stored, journalled by its digest, and applied.
"""
from __future__ import annotations

import bisect
import enum
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, replace

import msgspec

from supervisor.errors import StoreError

TEXT_LIMIT = 1 << 20  # bytes: a larger file is shown by size and digest, like a binary one


class Kind(enum.Enum):
    """What can stand at a path of a change set. Everything else (FIFOs, sockets, devices) never enters one."""

    FILE = "file"
    SYMLINK = "symlink"
    DIRECTORY = "directory"


class Operation(enum.Enum):
    """What happened at a path."""

    ADD = "add"
    EDIT = "edit"  # other bytes or another link target, with or without another mode
    MODE = "mode"  # permission bits alone
    TYPE = "type"  # another kind stands there now
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class State:
    """What stands at a path, before or after.

    ``mode`` is the nine permission bits (set-id and sticky bits never travel), 0 for a link. ``sha256`` is of a file's
    bytes, in hexadecimal, and empty when they were not read (then ``ctime_ns`` alone tells a later change). ``text``: small
    enough and free of NUL bytes, so that its lines are shown and its blob is kept.
    """

    kind: Kind
    mode: int = 0
    size: int = 0
    sha256: str = ""
    text: bool = False
    target: bytes = b""
    ctime_ns: int = 0  # of the developer's file when it was compared; 0 for what the session made


@dataclass(frozen=True, slots=True)
class Entry:
    """One changed path, relative to the project's root.

    ``conflict`` and ``refused`` say why in words, or are empty: a conflict stops the whole application, a refused entry is left
    out of it. ``debris`` marks what builds and tests leave behind: listed apart, applied only when asked for.
    """

    path: bytes
    before: State | None
    after: State | None
    conflict: str = ""
    refused: str = ""
    debris: bool = False

    @property
    def operation(self) -> Operation:
        """What happened, from the two states."""
        if self.before is None:
            return Operation.ADD
        if self.after is None:
            return Operation.DELETE
        if self.before.kind is not self.after.kind:
            return Operation.TYPE
        same = same_content(self.before, self.after)
        return Operation.MODE if same else Operation.EDIT

    @property
    def of_directory(self) -> bool:
        """Whether only a directory is made, removed or given another mode here: no file comes, goes or changes."""
        return all(state is None or state.kind is Kind.DIRECTORY for state in (self.before, self.after))


def same_content(one: State, other: State) -> bool:
    """Whether kind and content are equal, as far as was read: content that was not read is never equal."""
    if one.kind is not other.kind:
        return False
    if one.kind is Kind.FILE:
        return one.size == other.size and one.sha256 == other.sha256 != ""
    return one.target == other.target


def count_files(entries: Iterable[Entry]) -> int:
    """How many files and links these are. A directory is no file: it comes with what is in it."""
    return sum(not entry.of_directory for entry in entries)


def changed(before: State | None, after: State | None) -> bool:
    """Whether there is anything to tell: a file that was copied up or rewritten with the same bytes is no change."""
    if before is None or after is None:
        return before is not after
    return before.mode != after.mode or not same_content(before, after)


@dataclass(frozen=True, slots=True)
class ChangeSet:
    """All changes of a session, sorted by path, and what was noticed while they were collected."""

    entries: tuple[Entry, ...]
    notices: tuple[str, ...] = ()

    @classmethod
    def of(cls, entries: Iterable[Entry], notices: Iterable[str] = ()) -> ChangeSet:
        """Sort, and refuse with each refused path what lies beneath it: applying a part of it would lose the rest."""
        ordered = sorted(entries, key=lambda entry: entry.path)
        paths = [entry.path for entry in ordered]
        for above in [entry for entry in ordered if entry.refused]:
            # In the order of bytes, "/" is followed by "0": what lies beneath is one stretch
            start, end = bisect.bisect_left(paths, above.path + b"/"), bisect.bisect_left(paths, above.path + b"0")
            for at in range(start, end):
                if not ordered[at].refused:
                    ordered[at] = replace(ordered[at], refused=above.refused)
        return cls(tuple(ordered), tuple(notices))

    @property
    def kept(self) -> bool:
        """Whether there is anything to keep and to show later: also a notice alone, of what is never taken."""
        return bool(self.entries or self.notices)

    @property
    def proposed(self) -> tuple[Entry, ...]:
        """What an application writes: neither refused nor debris."""
        return tuple(entry for entry in self.entries if not entry.refused and not entry.debris)

    @property
    def debris(self) -> tuple[Entry, ...]:
        """What builds and tests left behind (and is not refused)."""
        return tuple(entry for entry in self.entries if entry.debris and not entry.refused)

    @property
    def refused(self) -> tuple[Entry, ...]:
        """What no application writes."""
        return tuple(entry for entry in self.entries if entry.refused)

    @property
    def conflicts(self) -> tuple[Entry, ...]:
        """What the developer changed meanwhile."""
        return tuple(entry for entry in self.entries if entry.conflict and not entry.refused)

    @property
    def digest(self) -> str:
        """SHA-256 of the stored form, in hexadecimal: the name of exactly these changes in the journal."""
        return hashlib.sha256(self.encode()).hexdigest()

    def encode(self) -> bytes:
        """The stored form: JSON with a fixed order of keys; paths and link targets in base 64, as they may be any bytes."""
        return msgspec.json.encode(self)

    @classmethod
    def decode(cls, data: bytes) -> ChangeSet:
        """Read the stored form strictly; StoreError (``changes_damaged``) where it is not one."""
        try:
            return msgspec.json.decode(data, type=cls)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise StoreError("reading stored changes", why=str(error), code="changes_damaged") from error
