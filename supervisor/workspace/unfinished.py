"""The records of applications that are not at their end: what a kill leaves to do, in lemni's own state.

A record lies beside those of the same project, never in it: a file in the project could be forged by a session, and would make
the undoing move things. It is there before the first step. Its name says what is to do: ``….json`` to undo the steps,
``….done`` (all is in, or all is undone) only to remove the staging directory. It goes last. Whoever applies or undoes holds the
lock of the directory of records, which ends with its process: a record whose lock is free is of somebody who was killed.
"""
from __future__ import annotations

import base64
import contextlib
import fcntl
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from supervisor.durable import sync_directory
from supervisor.workspace.blobs import make_private
from supervisor.workspace.trees import remove_tree

_UNDO: Final = ".json"
_SETTLED: Final = ".done"
_PARTIAL: Final = ".new"

Steps = Sequence[tuple[str, bytes, int]]  # word, path, number: see commit.py


class Busy(Exception):
    """Somebody applies or undoes changes in this project now."""


@dataclass(frozen=True, slots=True)
class Unfinished:
    """What a record says. Paths are bytes; ``staging`` is a name in the root."""

    root: bytes
    staging: bytes
    steps: Steps


class _Stored(msgspec.Struct, frozen=True):
    """Its form on disk: bytes are in base 64."""

    root: str
    staging: str
    steps: list[tuple[str, str, int]]


@contextlib.contextmanager
def held(records: Path) -> Iterator[None]:
    """Hold the directory of records, which is made where it is missing. ``Busy`` where another process does."""
    make_private(records)
    fd = os.open(records, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Busy from None
        for partial in records.glob("*" + _UNDO + _PARTIAL):
            partial.unlink(missing_ok=True)  # of somebody who was killed before the record was complete
        yield
    finally:
        os.close(fd)


def any_left(records: Path) -> bool:
    """Whether a directory holds a record, or the beginning of one."""
    return any(name.endswith((_UNDO, _SETTLED, _PARTIAL)) for name in _names(records))


def pending(records: Path) -> list[Path]:
    """The records in a directory, in a fixed order; none where there is no directory."""
    return [records / name for name in _names(records) if name.endswith((_UNDO, _SETTLED))]


def _names(records: Path) -> list[str]:
    try:
        return sorted(os.listdir(records))
    except FileNotFoundError:
        return []


def begin(journal: Path, root: bytes, staging: bytes, steps: Steps) -> Path:
    """Write or replace the record at ``journal`` (``….json``), and have it on disk. Returns its path."""
    listed = [(word, _text(path), number) for word, path, number in steps]
    make_private(journal.parent)
    partial = journal.with_name(journal.name + _PARTIAL)
    fd = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with open(fd, "wb") as file:
        file.write(msgspec.json.encode(_Stored(_text(root), _text(staging), listed)))
        file.flush()
        os.fsync(fd)
    partial.rename(journal)
    sync_directory(journal.parent)
    return journal


def read(record: Path) -> Unfinished | None:
    """What a record says; None where it is gone, or none of ours."""
    try:
        stored = msgspec.json.decode(record.read_bytes(), type=_Stored)
        return Unfinished(
            base64.b64decode(stored.root), base64.b64decode(stored.staging),
            [(word, base64.b64decode(path), number) for word, path, number in stored.steps],
        )
    except (FileNotFoundError, ValueError):  # msgspec's errors and base64's are ValueErrors
        return None


def is_settled(record: Path) -> bool:
    """Whether only the staging directory is left to remove."""
    return record.name.endswith(_SETTLED)


def settle(record: Path, staging: bytes) -> Path:
    """Say that no step is to be undone any more. A rename: it needs no room on a full disk, and happens or does not."""
    if is_settled(record):
        return record
    settled = record.with_name(record.name + staging.decode("ascii") + _SETTLED)
    record.rename(settled)
    with contextlib.suppress(OSError):
        # before a file of the staging directory goes: undoing without it would move the wrong ones
        sync_directory(record.parent)
    return settled


def discard(root: int, staging: bytes, record: Path) -> None:
    """Remove the staging directory, then its settled record. What cannot be removed now is tried again at the next start."""
    with contextlib.suppress(OSError):
        remove_tree(root, staging)
        record.unlink(missing_ok=True)


def _text(raw: bytes) -> str:
    return base64.b64encode(raw).decode()
