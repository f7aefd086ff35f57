"""The file tools: Read, List, Search, Write and Edit, carried out beneath the working copy's directory descriptor.

The descriptor is the working copy *as the sandbox sees it* (its overlay): what a tool writes is what a command reads, and is
lost with the sandbox unless the diff is accepted. Everything returns a value: done, outside the project (a refusal,
FP-07…09), or failed with words for the model. Bounds are fixed here, so that neither a huge file nor a FIFO nor a flood of
matches can hold or fill the supervisor.
"""
from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from native import files
from supervisor.types import EditCall, ListCall, ReadCall, SearchCall, WriteCall
from supervisor.workspace.beneath import Beneath, CannotServe, OutsideProject, WrongArgument, relative
from supervisor.workspace.edit import EditRefused, edit_bytes
from supervisor.workspace.search import search

READ_BYTES: Final = 64 << 10
LIST_ENTRIES: Final = 2000
EDIT_BYTES: Final = 16 << 20
_SCAN_BYTES: Final = 256 << 20  # read at most to reach a line: beyond, Bash has better tools
_PIECE: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Done:
    """The tool did it. ``text`` is for the model. ``path`` is relative; ``sha256`` and ``length`` are of what was written."""

    text: str
    path: bytes = b""
    sha256: str = ""
    length: int = 0


@dataclass(frozen=True, slots=True)
class Outside:
    """The path leads outside the project: refused, and nothing outside was opened (FP-02)."""

    path: str
    text: str


@dataclass(frozen=True, slots=True)
class Failed:
    """The tool could not; ``text`` says why."""

    text: str


FileResult = Done | Outside | Failed


class FileView:
    """The file tools over one open working copy. Calls block on the disk: run them in a thread.

    ``uid`` and ``gid``: the sandbox's command ids on the host, given when the supervisor is root and only then.
    The caller owns the descriptor.
    """

    def __init__(self, workdir_fd: int, uid: int | None = None, gid: int | None = None) -> None:
        self._tree = Beneath(workdir_fd, None if uid is None or gid is None else (uid, gid))

    def read(self, call: ReadCall) -> FileResult:
        """Lines ``offset`` to ``offset + limit`` of a file, at most 64 KiB; bytes that are no UTF-8 are shown as ``\\xNN``."""
        return self._guarded(call.path, lambda path: self._read(path, call.offset, call.limit))

    def list(self, call: ListCall) -> FileResult:
        """The names in one directory: directories end in ``/``, links show their target."""
        return self._guarded(call.path, self._list)

    def search(self, call: SearchCall) -> FileResult:
        """``path:line: text`` of each line that matches the RE2 pattern, at most 200."""
        return self._guarded(call.path, lambda path: Done(search(self._tree, path, call.pattern, call.glob), path))

    def write(self, call: WriteCall) -> FileResult:
        """Create or replace a file; missing directories are made."""
        return self._guarded(call.path, lambda path: self._write(path, call.content))

    def edit(self, call: EditCall) -> FileResult:
        """Replace text in a file, byte by byte exactly."""
        return self._guarded(call.path, lambda path: self._edit(path, call))

    def _guarded(self, shown: str, act: Callable[[bytes], Done]) -> FileResult:
        """Turn what can go wrong into values."""
        name = shown.encode("utf-8", "backslashreplace").decode()
        try:
            return act(relative(shown))
        except OutsideProject:
            return Outside(shown, f"{name}: outside the project")
        except WrongArgument as error:
            return Failed(str(error))  # the path is not at fault, and not named
        except (CannotServe, EditRefused) as error:
            return Failed(f"{name}: {error}")
        except OSError as error:
            return Failed(f"{name}: {_words(error)}")

    def _read(self, path: bytes, offset: int, limit: int) -> Done:
        if offset < 1 or limit < 1:
            raise WrongArgument("offset and limit count from 1")
        fd = self._tree.open_file(path, os.O_RDONLY)
        try:
            text, note = _window(fd, offset, limit)
        finally:
            os.close(fd)
        return Done(text.decode("utf-8", "backslashreplace") + note, path)

    def _list(self, path: bytes) -> Done:
        fd = self._tree.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            found = files.entries(fd)
            lines = [_entry(fd, letter, name) for letter, name in found[:LIST_ENTRIES]]
        finally:
            os.close(fd)
        if len(found) > LIST_ENTRIES:
            lines.append(f"[{len(found) - LIST_ENTRIES} more entries are not shown]")
        return Done("\n".join(lines) or "[empty directory]", path)

    def _write(self, path: bytes, content: str) -> Done:
        try:
            data = content.encode("utf-8")
        except UnicodeEncodeError:
            raise WrongArgument("the content is not valid Unicode") from None
        flags = os.O_WRONLY | os.O_CREAT  # no O_TRUNC: nothing is cut off before it is known to be a regular file
        try:
            fd = self._tree.open_file(path, flags, 0o666)
        except FileNotFoundError:
            self._tree.make_parents(path)
            fd = self._tree.open_file(path, flags, 0o666)
        try:
            _replace(fd, data)
        finally:
            os.close(fd)
        return Done(f"wrote {len(data)} byte{'' if len(data) == 1 else 's'}", path, hashlib.sha256(data).hexdigest(), len(data))

    def _edit(self, path: bytes, call: EditCall) -> Done:
        fd = self._tree.open_file(path, os.O_RDWR)  # read and written through one descriptor: no swap in between
        try:
            if os.fstat(fd).st_size > EDIT_BYTES:
                raise CannotServe("it is larger than 16 MiB, which Edit does not handle")
            content = _read_all(fd, EDIT_BYTES)
            changed, count = edit_bytes(content, call.old, call.new, call.all)
            _replace(fd, changed)
        finally:
            os.close(fd)
        text = "1 replacement" if count == 1 else f"{count} replacements"
        return Done(text, path, hashlib.sha256(changed).hexdigest(), len(changed))


def _words(error: OSError) -> str:
    known = {
        errno.ENOENT: "there is no such file or directory",
        errno.EISDIR: "it is a directory",
        errno.ENOTDIR: "it is not a directory, or a component of the path is not one",
        errno.ENXIO: "it is not a regular file",
        errno.ELOOP: "there are too many symbolic links",
        errno.EACCES: "permission denied",
        errno.EAGAIN: "it is being changed or locked by a command; try again",
    }
    name = errno.errorcode.get(error.errno or 0, "?")
    return f"{known.get(error.errno or 0, os.strerror(error.errno or 0))} ({name})"


def _window(fd: int, offset: int, limit: int) -> tuple[bytes, str]:
    """The wanted lines, at most READ_BYTES of them, and a note on what is not there. Holds one piece of the file at a time."""
    with open(fd, "rb", closefd=False, buffering=_PIECE) as file:
        number, scanned, part = 1, 0, False
        while number < offset:
            piece = file.readline(_PIECE)
            scanned += len(piece)
            if not piece:
                lines = number - 1 + part
                return b"", f"[the file has {lines} lines]" if lines else "[empty file]"
            if scanned > _SCAN_BYTES:
                raise CannotServe("the line lies beyond 256 MiB; use a command instead")
            part = not piece.endswith(b"\n")
            number += not part
        kept = b""
        while number < offset + limit:
            piece = file.readline(READ_BYTES - len(kept) + 1)
            if len(kept) + len(piece) > READ_BYTES:
                if kept:
                    return kept, f"[cut at 64 KiB; continue with offset={number}]"
                return piece[:READ_BYTES], f"\n[line {number} is longer than 64 KiB and was cut]"
            if not piece:
                return kept, "" if kept else "[empty file]" if offset == 1 else f"[the file has {number - 1} lines]"
            kept += piece
            number += piece.endswith(b"\n")
        return kept, f"[more lines follow; continue with offset={number}]" if file.read(1) else ""


def _entry(directory: int, letter: str, name: bytes) -> str:
    """One line of a listing, with nothing in it that breaks the line."""
    shown = _one_line(name)
    if letter == "d":
        return shown + "/"
    if letter == "l":
        try:
            return f"{shown} -> {_one_line(os.readlink(name, dir_fd=directory))}"
        except OSError:
            return f"{shown} -> ?"
    return shown if letter == "f" else f"{shown} [not a regular file]"


def _one_line(name: bytes) -> str:
    text = name.decode("utf-8", "backslashreplace")
    return text if text.isprintable() else text.encode("unicode_escape").decode("ascii")


def _read_all(fd: int, limit: int) -> bytes:
    content = bytearray()
    while piece := os.pread(fd, _PIECE, len(content)):
        content += piece
        if len(content) > limit:
            raise CannotServe("it is larger than 16 MiB, which Edit does not handle")
    return bytes(content)


def _replace(fd: int, data: bytes) -> None:
    """Make this the whole content of an open file."""
    view, at = memoryview(data), 0
    while view:
        done = os.pwrite(fd, view, at)
        at, view = at + done, view[done:]
    os.ftruncate(fd, len(data))
