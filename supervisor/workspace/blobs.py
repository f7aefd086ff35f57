"""File contents kept by digest: a session's own snapshot, made once, that later showing and applying read.

A large old content that nobody will show or apply is kept by name alone: ``SHA256.git`` says what git calls it, for a patch.
A blob is a file named by the SHA-256 of its bytes, mode 0600, in a directory of mode 0700. Reading checks the digest, so that a
damaged blob is found before a byte of it is shown or applied.
"""
from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from supervisor.errors import StoreError
from supervisor.workspace.changes import TEXT_LIMIT
from supervisor.workspace.patch import object_names

PIECE: Final = 1 << 20  # bytes read at once
_HOLE_SLACK: Final = 256 << 10  # bytes that a file may claim beyond twice its data before it counts as sparse
_NAMES: Final = ".git"
_ALGORITHMS: Final = ("sha1", "sha256")  # git's, in the order of such a file
_EXTENTS: Final = 100_000  # data extents looked at, at most


@dataclass(frozen=True, slots=True)
class Digest:
    """A file's content: digest in hexadecimal, length in bytes, and whether its lines can be shown."""

    sha256: str
    size: int
    text: bool


def make_private(directory: Path) -> None:
    """Make a directory and those missing above it, each 0700 (``parents=True`` would leave those above to the umask)."""
    for path in [*reversed(directory.parents), directory]:
        if not path.is_dir():
            path.mkdir(mode=0o700, exist_ok=True)


def open_regular(directory: int, name: bytes) -> int:
    """Open a regular file for reading, following no link, waiting for nothing. OSError otherwise.

    O_NONBLOCK: a FIFO or a lease held by somebody must not block us; the kind is checked on the descriptor, not on the name.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    fd = os.open(name, flags, dir_fd=directory)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(f"not a regular file: {os.fsdecode(name)}")
    return fd


def is_hollow(fd: int, status: os.stat_result) -> bool:
    """Whether a file is much larger than its data: a tebibyte of holes is not worth reading, and reading it would never end."""
    if status.st_blocks * 512 * 2 + _HOLE_SLACK >= status.st_size:
        return False
    data = at = 0
    with contextlib.suppress(OSError):  # ENXIO: no data from here on
        for _ in range(_EXTENTS):
            start = os.lseek(fd, at, os.SEEK_DATA)
            at = os.lseek(fd, start, os.SEEK_HOLE)
            data += at - start
    return data * 2 + _HOLE_SLACK < status.st_size


def digest(fd: int) -> Digest:
    """Read a file from its beginning to its end."""
    return _read(fd, None)


def _pieces(fd: int) -> Iterator[bytes]:
    at = 0
    while piece := os.pread(fd, PIECE, at):
        at += len(piece)
        yield piece


def _hashed(pieces: Iterator[bytes], hasher: hashlib._Hash) -> Iterator[bytes]:
    for piece in pieces:
        hasher.update(piece)
        yield piece


def _read(fd: int, copy_to: int | None) -> Digest:
    hasher = hashlib.sha256()
    size, text = 0, True
    for piece in _hashed(_pieces(fd), hasher):
        size += len(piece)
        text = text and size <= TEXT_LIMIT and b"\0" not in piece
        if copy_to is not None:
            _write_all(copy_to, piece)
    return Digest(hasher.hexdigest(), size, text)


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


class Blobs:
    """The blobs of one session. The directory is made when the first blob is."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._abandoned = False

    def abandon(self) -> None:
        """Nobody wants them any more: whoever fills or reads them meets ECANCELED at the next one. From any thread."""
        self._abandoned = True

    def _still_wanted(self) -> None:
        if self._abandoned:
            raise OSError(errno.ECANCELED, os.strerror(errno.ECANCELED))

    def put(self, fd: int) -> Digest:
        """Keep a copy of what this descriptor reads. The digest is of the bytes that were kept."""
        self._still_wanted()
        make_private(self.directory)
        partial = self.directory / f".new-{os.getpid()}-{os.urandom(6).hex()}"
        out = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            found = _read(fd, out)
            partial.rename(self.directory / found.sha256)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise
        finally:
            os.close(out)
        return found

    def put_names(self, fd: int, found: Digest) -> None:
        """Keep only what git calls the bytes that were just read. Nothing where they are others by now."""
        self._still_wanted()
        make_private(self.directory)
        hasher = hashlib.sha256()
        names = object_names(found.size, _hashed(_pieces(fd), hasher), *_ALGORITHMS)
        if hasher.hexdigest() != found.sha256:
            return
        path = self.directory / (found.sha256 + _NAMES)
        partial = self.directory / f".new-{os.getpid()}-{os.urandom(6).hex()}"
        out = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            _write_all(out, " ".join(names).encode())
            partial.rename(path)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise
        finally:
            os.close(out)

    def sync(self) -> None:
        """Have everything on disk before a record names it. One call for all: a thousand fsyncs would take seconds."""
        os.sync()

    def discard(self) -> None:
        """Remove them all: nobody will ask for what was rejected."""
        shutil.rmtree(self.directory, ignore_errors=True)  # our own files, one level deep

    def open(self, sha256: str) -> int:
        """A descriptor that reads the blob; its bytes are *not* checked: whoever copies them hashes what it copies."""
        if len(sha256) != 64 or not set(sha256) <= set("0123456789abcdef"):
            raise StoreError("opening a stored file", on=sha256, why="that is no digest", code="changes_damaged")
        try:
            return os.open(self.directory / sha256, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            raise StoreError("opening a stored file", on=sha256, errno=error.errno, code="changes_damaged") from error

    def read(self, sha256: str) -> bytes:
        """The bytes of a blob, checked. StoreError (``changes_damaged``) when it is missing or altered."""
        self._still_wanted()
        fd = self.open(sha256)
        with open(fd, "rb") as file:
            content = file.read()
        if hashlib.sha256(content).hexdigest() != sha256:
            raise StoreError("reading a stored file", on=sha256, why="its bytes have another digest", code="changes_damaged")
        return content

    def holds(self, sha256: str) -> bool:
        """Whether there is a blob of this digest."""
        return (self.directory / sha256).is_file()

    def pieces(self, sha256: str) -> Iterator[bytes]:
        """The bytes of a blob, a piece at a time; StoreError (``changes_damaged``) after the last where they are altered."""
        hasher = hashlib.sha256()
        fd = self.open(sha256)
        try:
            yield from _hashed(_pieces(fd), hasher)
        finally:
            os.close(fd)
        if hasher.hexdigest() != sha256:
            raise StoreError("reading a stored file", on=sha256, why="its bytes have another digest", code="changes_damaged")

    def name_in_git(self, sha256: str, algorithm: str) -> str:
        """What git calls a content that was kept by name alone; "" where it was not."""
        try:
            names = (self.directory / (sha256 + _NAMES)).read_text("ascii").split()
        except FileNotFoundError:
            return ""
        except (OSError, UnicodeDecodeError) as error:
            raise StoreError("reading a stored file", on=sha256, why=str(error), code="changes_damaged") from error
        return dict(zip(_ALGORITHMS, names, strict=False)).get(algorithm, "")

    def copy(self, sha256: str, target: int) -> None:
        """Write a blob's bytes to a descriptor, checked while they are copied."""
        fd = self.open(sha256)
        try:
            if _read(fd, target).sha256 != sha256:
                raise StoreError(
                    "copying a stored file", on=sha256, why="its bytes have another digest", code="changes_damaged"
                )
        finally:
            os.close(fd)
