"""Search: lines that match a pattern, in regular files beneath a directory. Never a shell, never through a link.

RE2, so that no pattern of a model's takes exponential time. Directories are walked with no link followed, git's own are left
out, files that hold a NUL byte count as binary and are skipped. Results, bytes and time are bounded, and the answer says when
a bound was reached.
"""
from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Final

import re2  # type: ignore[import-untyped]

from native import files
from supervisor.globs import Glob, GlobError, LinearPattern
from supervisor.workspace.beneath import Beneath, CannotServe, OutsideProject, WrongArgument
from supervisor.workspace.gitnames import is_git_name

MATCHES: Final = 200
LINE_BYTES: Final = 500  # shown of one matching line
_FILE_BYTES: Final = 16 << 20  # looked at of one file
_ALL_BYTES: Final = 1 << 30
_SECONDS: Final = 30.0
_SNIFF: Final = 8192  # bytes in which a NUL makes a file binary, as git has it


def search(tree: Beneath, path: bytes, pattern: str, glob: str | None) -> str:
    """The matches as ``path:line: text``, sorted by path, and a last line where something was left out.

    WrongArgument when the pattern or the glob is not valid. OSError when ``path`` itself cannot be opened.
    """
    expression = _compile(pattern)
    wanted = _glob(glob)
    lines: list[str] = []
    read = 0
    end = time.monotonic() + _SECONDS
    for name, content in _contents(tree, path, wanted):
        read += len(content)
        if expression.search(content) is not None:
            lines += _matches(expression, name, content, MATCHES + 1 - len(lines))
        if len(lines) > MATCHES:
            return "\n".join([*lines[:MATCHES], f"[stopped after {MATCHES} matches; narrow the pattern, the path or the glob]"])
        if read > _ALL_BYTES or time.monotonic() > end:
            return "\n".join([*lines, "[stopped: too much to search; narrow the path or the glob]"])
    return "\n".join(lines) or "[no match]"


def _compile(pattern: str) -> LinearPattern:
    options = re2.Options()
    options.log_errors = False
    options.encoding = re2.Options.Encoding.UTF8
    options.never_nl = True
    try:
        re2.compile(pattern, options)  # by itself first, so that an error speaks of what was asked alone
        # Used on bytes: an expression that is given as bytes searches bytes
        compiled: LinearPattern = re2.compile(("(?m)" + pattern).encode("utf-8"), options)
    except UnicodeEncodeError:
        raise WrongArgument("the pattern is not valid Unicode") from None
    except re2.error as error:
        raise WrongArgument(f'the pattern "{pattern}" is not valid RE2: {_reason(error, pattern)}') from None
    return compiled


def _reason(error: Exception, pattern: str) -> str:
    """RE2's own word, which it gives as bytes, without the pattern that it may repeat."""
    said = error.args[0] if error.args else ""
    text = said.decode("utf-8", "backslashreplace") if isinstance(said, bytes) else str(said)
    return text.removesuffix(f": {pattern}")


def _glob(glob: str | None) -> tuple[LinearPattern, bool] | None:
    if not glob:
        return None
    try:
        parsed = Glob.parse(os.fsencode(glob))
    except (GlobError, UnicodeEncodeError) as error:
        raise WrongArgument(f"the glob is not valid: {error}") from None
    return parsed.compile(), parsed.anchored


def _contents(tree: Beneath, path: bytes, wanted: tuple[LinearPattern, bool] | None) -> Iterator[tuple[bytes, bytes]]:
    """Path and content of each text file, in order. A path that names a file gives that one."""
    top = tree.open(path, os.O_PATH)
    try:
        is_directory = os.path.isdir(f"/proc/self/fd/{top}")
    finally:
        os.close(top)
    if not is_directory:
        content = _content(tree, path)
        if content is not None:
            yield path, content
        return
    base = Beneath(tree.open(path, os.O_RDONLY | os.O_DIRECTORY), tree.ids)
    try:
        prefix = b"" if path == b"." else path + b"/"
        stack = [b""]
        while stack:
            directory = stack.pop()
            try:
                here = files.open_directory(base.root, directory, ids=tree.ids)
            except OSError:
                continue  # gone or closed meanwhile
            try:
                listed = files.entries(here)
            finally:
                os.close(here)
            below: list[bytes] = []
            for letter, name in listed:
                inner = directory + b"/" + name if directory else name
                if letter == "d" and not is_git_name(name):
                    below.append(inner)
                elif letter == "f" and _is_wanted(wanted, prefix + inner, name):
                    content = _content(base, inner, follow=False)
                    if content is not None:
                        yield prefix + inner, content
            stack += reversed(below)
    finally:
        os.close(base.root)


def _is_wanted(wanted: tuple[LinearPattern, bool] | None, path: bytes, name: bytes) -> bool:
    return wanted is None or wanted[0].fullmatch(path if wanted[1] else name) is not None


def _content(tree: Beneath, path: bytes, *, follow: bool = True) -> bytes | None:
    """The beginning of a text file; None for a binary one and for what cannot be read."""
    try:
        fd = tree.open_file(path, os.O_RDONLY | (0 if follow else os.O_NOFOLLOW))
    except CannotServe:
        return None
    except (OSError, OutsideProject):
        if follow:
            raise
        return None  # gone, or a link was put in the way, since it was listed
    try:
        content = os.pread(fd, _SNIFF, 0)
        if b"\0" in content:
            return None
        while len(content) < _FILE_BYTES and (piece := os.pread(fd, 1 << 20, len(content))):
            content += piece
        return content
    finally:
        os.close(fd)


def _matches(expression: LinearPattern, name: bytes, content: bytes, most: int) -> list[str]:
    shown = name.decode("utf-8", "backslashreplace").replace("\n", "\\n").replace("\r", "\\r")
    found: list[str] = []
    lines = content.split(b"\n")
    if not lines[-1]:
        lines.pop()  # what follows the last newline is no line
    for number, line in enumerate(lines, 1):
        if expression.search(line) is not None:
            text = line[:LINE_BYTES].rstrip(b"\r").decode("utf-8", "backslashreplace")
            found.append(f"{shown}:{number}: {text}" + (" […]" if len(line) > LINE_BYTES else ""))
            if len(found) >= most:
                break
    return found
