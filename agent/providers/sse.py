"""Server-sent events, as a pure parser: bytes in at any boundaries, events out (WHATWG HTML, "Server-sent events").

Follows the standard's grammar: a byte order mark once, lines ended by CR, LF or CRLF, comments (servers send them to keep a
connection alive), fields ``event`` and ``data``, several ``data`` lines joined by LF. ``id`` and ``retry`` serve
reconnection, which a model stream does not do. One deliberate difference: a line that is not UTF-8 is an error rather than
replaced, because a replacement inside the arguments of a call would change them silently.
"""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

MAX_EVENT = 16 * 1024 * 1024
"""Bytes of one event: four times the largest text that a tool accepts, for servers that send a whole call at once."""

_MARK = b"\xef\xbb\xbf"


class StreamError(ValueError):
    """The bytes are not an event stream that can be read. The message says why."""


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """One dispatched event. ``kind`` is ``"message"`` where the server names none."""

    kind: str
    data: str


class EventParser:
    """``feed`` bytes as they come; ``finish`` once at the end of the stream. Work is linear in the bytes."""

    def __init__(self, max_event: int = MAX_EVENT) -> None:
        self._max_event = max_event
        self._line = bytearray()  # the line that is not ended yet
        self._after_cr = False  # the last byte seen was CR: an LF that follows belongs to it
        self._first = True
        self._kind = ""
        self._data: list[str] = []
        self._size = 0

    def feed(self, chunk: bytes) -> Iterator[ServerEvent]:
        """The events that these bytes complete. Consume the iterator wholly before the next call."""
        at = 0
        while at < len(chunk):
            if self._after_cr:
                self._after_cr = False
                if chunk[at] == 0x0A:
                    at += 1
                    continue
            end = _line_end(chunk, at)
            if end < 0:
                self._hold(chunk[at:])
                return
            self._hold(chunk[at:end])
            self._after_cr = chunk[end] == 0x0D
            at = end + 1
            event = self._take_line()
            if event is not None:
                yield event

    def finish(self) -> ServerEvent | None:
        """What was held back for want of a blank line. The standard drops it; some servers end so, and a caller can tell
        whether it is whole."""
        if self._line:
            self._take_line()
        return self._dispatch()

    def _hold(self, part: bytes) -> None:
        self._line += part
        if self._size + len(self._line) > self._max_event:
            raise StreamError(f"an event is longer than {self._max_event} bytes")

    def _take_line(self) -> ServerEvent | None:
        line = bytes(self._line)
        self._line.clear()
        if self._first:
            self._first = False
            line = line.removeprefix(_MARK)
        if not line:
            return self._dispatch()
        if line.startswith(b":"):
            return None
        self._size += len(line)
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        try:
            if name == b"data":
                self._data.append(value.decode())
            elif name == b"event":
                self._kind = value.decode()
        except UnicodeDecodeError as error:
            raise StreamError(f"a line is not UTF-8 (byte {error.start + 1} of a {name.decode()} field)") from None
        return None

    def _dispatch(self) -> ServerEvent | None:
        event = ServerEvent(self._kind or "message", "\n".join(self._data)) if self._data else None
        self._kind = ""
        self._data = []
        self._size = 0
        return event


def _line_end(chunk: bytes, at: int) -> int:
    """Position of the first CR or LF at or after ``at``, or -1."""
    lf = chunk.find(b"\n", at)
    cr = chunk.find(b"\r", at, lf if lf >= 0 else len(chunk))
    return cr if cr >= 0 else lf
