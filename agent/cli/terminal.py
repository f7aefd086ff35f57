"""Where the command line meets the screen: streams that never raise a stack of tracebacks, colour, and one status line.

Standard output raises OutputGone, and nothing else, whoever writes to it and when it is flushed: ours, click's, json's.
Answers and data go to standard output; steps, notices and problems to standard error. Nothing else writes to either.
"""
from __future__ import annotations

import io
import os
import select
import sys
from typing import IO, Any

DIM, BOLD, RED, GREEN, YELLOW, CYAN = "2", "1", "31", "32", "33", "36"


def prepare() -> None:
    """Make the standard streams safe to write whatever the caller did to them (closed descriptors, an odd encoding).

    Where one was closed no writer may hit a file that reuses its number. Standard output then takes nothing, and says so.
    """
    if sys.stdout is None:
        sys.stdout = _telling(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC), "utf-8")
    elif isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout is sys.__stdout__:  # else somebody gave another here
        sys.stdout = _telling(sys.stdout.fileno(), sys.stdout.encoding)
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - for good
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


class OutputGone(Exception):
    """Standard output takes no more, for ``errno``: EPIPE where its reader is gone, ENOSPC where its disk is full.

    Not an OSError on purpose: click ends the process on a broken pipe, before anything could say where a session ended.
    """

    def __init__(self, errno: int | None) -> None:
        super().__init__(errno)
        self.errno = errno


class _Output(io.FileIO):
    """A descriptor that says OutputGone once, and from then on swallows what is written to it."""

    def write(self, data: Any) -> int:
        try:
            while (done := super().write(data)) is None:  # somebody made it non-blocking, and its reader is slow
                select.select([], [self], [])
            return done
        except OSError as error:
            _swallow(self.fileno())
            raise OutputGone(error.errno) from None


def _telling(fd: int, encoding: str) -> io.TextIOWrapper:
    """A text stream on a descriptor, which stays open, that tells."""
    buffer = io.BufferedWriter(_Output(fd, "w", closefd=False))
    return io.TextIOWrapper(buffer, encoding=encoding, line_buffering=os.isatty(fd))


def out(text: str = "", end: str = "\n") -> None:
    """Write to standard output; OutputGone when it takes no more, and from then on nothing is written to it."""
    try:
        print(text, end=end, flush=True)
    except OSError as error:  # a stream that is not ours
        silence(sys.stdout)
        raise OutputGone(error.errno) from None


def err(text: str = "", end: str = "\n") -> None:
    """Write to standard error; that it takes no more is no reason to end a session."""
    try:
        print(text, end=end, file=sys.stderr, flush=True)
    except OSError:
        silence(sys.stderr)


def silence(stream: IO[str]) -> None:
    """Let a stream whose reader is gone swallow the rest, so that flushing at exit does not complain."""
    _swallow(stream.fileno())


def _swallow(fd: int) -> None:
    null = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
    os.dup2(null, fd)
    os.close(null)


def is_terminal(stream: IO[Any]) -> bool:
    return stream.isatty()


def one_screen() -> bool:
    """Whether both streams end on the same terminal, so that what one showed the person has seen."""
    if not (sys.stdout.isatty() and sys.stderr.isatty()):
        return False
    return os.fstat(sys.stdout.fileno()).st_rdev == os.fstat(sys.stderr.fileno()).st_rdev


def coloured(stream: IO[Any]) -> bool:
    """Colour only on a terminal that has it, and never against NO_COLOR (https://no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM", "dumb") != "dumb"


def paint(text: str, *codes: str, stream: IO[Any] | None = None) -> str:
    """The text in these SGR codes where ``stream`` (standard error) shows colour. Escape untrusted text before."""
    if not text or not coloured(sys.stderr if stream is None else stream):
        return text
    return f"\x1b[{';'.join(codes)}m{text}\x1b[0m"


class Status:
    """One line at the bottom of the screen that is rewritten in place; on anything but a terminal it does not exist."""

    def __init__(self) -> None:
        self._on = sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb"
        self._shown = False

    def show(self, text: str) -> None:
        """Replace the line; the text is cut to the screen's width and must already be visible."""
        if self._on:
            width = _columns()
            err("\r\x1b[K" + paint(text if len(text) < width else text[: width - 2] + "…", DIM), end="")
            self._shown = True

    def clear(self) -> None:
        if self._shown:
            err("\r\x1b[K", end="")
            self._shown = False


def _columns() -> int:
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or 80
    except OSError:
        return 80
