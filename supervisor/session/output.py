"""What the model reads of a command's output: both streams apart, the status always, a bounded excerpt (CB-02).

Pure. Ten mebibytes are kept for the person; the model gets the first 24 and the last 8 KiB of each stream, with the numbers
of bytes in between and beyond. Bytes that are no UTF-8 and control characters are shown as escapes, so that what the model
reads is what a reviewer of the transcript reads.
"""
from __future__ import annotations

from supervisor.types import Execution

HEAD = 24 << 10
TAIL = 8 << 10


def describe(ran: Execution, timeout: float) -> str:
    """The result text of a command. ``timeout`` is the bound it ran under, in seconds."""
    parts = [_status(ran, timeout)]
    for name, kept, dropped in (("stdout", ran.stdout, ran.dropped_stdout), ("stderr", ran.stderr, ran.dropped_stderr)):
        if kept or dropped:
            parts.append(f"{name}:\n{excerpt(kept, dropped)}")
    if len(parts) == 1:
        parts.append("no output")
    return "\n".join(parts)


def excerpt(kept: bytes, dropped: int) -> str:
    """One stream: whole when it is small, else its head, its tail and the count of what is not shown."""
    if len(kept) <= HEAD + TAIL:
        text = visible(kept)
        return text if not dropped else f"{text.rstrip()}\n[{len(kept)} bytes kept, {dropped} more were dropped]"
    head, tail = _cut_before(kept, HEAD), _cut_before(kept, len(kept) - TAIL)
    line = f"[{tail - head} bytes are not shown here; {len(kept)} bytes kept, {dropped} more were dropped]"
    return f"{visible(kept[:head]).rstrip()}\n{line}\n{visible(kept[tail:])}"


def visible(data: bytes) -> str:
    """Text without anything that could act on a screen: escapes for control, bidirectional and invisible characters."""
    text = data.decode("utf-8", "backslashreplace").replace("\r\n", "\n")
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char in "\n\t" else _escaped(char) for char in text)


def _escaped(char: str) -> str:
    number = ord(char)
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


def _cut_before(data: bytes, at: int) -> int:
    """A cut at or just before ``at`` that does not divide a UTF-8 sequence (continuation bytes are 10xxxxxx)."""
    for back in range(4):
        if at - back <= 0 or data[at - back] & 0xC0 != 0x80:
            return at - back
    return at


def _status(ran: Execution, timeout: float) -> str:
    seconds = f"{ran.duration_us / 1_000_000:.1f} s"
    if ran.timed_out:
        return f"timed out after {timeout:g} s: the command and everything it started were killed"
    if ran.signal is not None:
        return f"killed by signal {ran.signal} after {seconds} (exit status {ran.status})"
    return f"exit status {ran.code} after {seconds}"
