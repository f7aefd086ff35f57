"""What streams onto the screen: the assistant's words and a command's output, visible and bounded, however they are cut.

Both come in pieces that end anywhere: in a character, in a mark, in a line. What a person sees must not depend on where.
"""
from __future__ import annotations

import codecs
import re
from collections import deque

from agent.cli.numbers import counted
from agent.cli.terminal import DIM, RED, err, paint
from agent.cli.visible import visible

HEAD_LINES, TAIL_LINES = 24, 4  # of one command's output or one edit; a whole screen is 24 lines at least
LINE_BYTES = 1000  # of one line of output; a flood without line ends is a flood all the same
_HALF_A_MARK = re.compile(r"<(U|0)?\Z")  # the start of what ``visible`` would mark, at the end of a fragment


class Words:
    """The assistant's words, as they come; a mark that is cut between two fragments is still a mark."""

    def __init__(self) -> None:
        self._held = ""
        self._open = False
        self.any = False

    def write(self, fragment: str) -> None:
        text = self._held + fragment
        cut = _HALF_A_MARK.search(text)
        self._held = text[cut.start():] if cut else ""
        text = text[: cut.start()] if cut else text
        if text:
            self.any = True
            err(visible(text), end="")
            self._open = not text.endswith("\n")

    def end(self) -> None:
        """Put the cursor at the start of a line."""
        if self._held:
            err(visible(self._held), end="")
            self._held, self._open = "", True
        if self._open:
            err()
            self._open = False


class Output:
    """One command's output: the first lines as they come, the last ones at its end, both streams apart by their edge.

    What lies between is only counted, at the speed of a search for line ends: a flood costs no more than it is looked at.
    """

    def __init__(self) -> None:
        self._open = {1: _Line(), 2: _Line()}
        self._shown = 0
        self._hidden = 0
        self._tail: deque[str] = deque(maxlen=TAIL_LINES)

    def write(self, stream: int, data: bytes) -> None:
        line, at = self._open[stream], 0
        while (end := data.find(b"\n", at)) >= 0:
            if self._shown >= HEAD_LINES and (over := data.count(b"\n", at) - TAIL_LINES) > 0:
                self._hidden += over
                line.clear()
                at = _after_skipped(data, at)
                end = data.find(b"\n", at)
            line.add(data[at:end])
            self._end_line(stream)
            at = end + 1
        line.add(data[at:])

    def end(self) -> None:
        for stream, line in self._open.items():
            if line:
                self._end_line(stream)
        if (left := self._hidden - len(self._tail)) > 0:
            err("  " + paint(f"│ … {counted(left, 'more line')}", DIM))
        for shown in self._tail:
            err(shown)

    def _end_line(self, stream: int) -> None:
        edge = paint("│ ", DIM) if stream == 1 else paint("┃ ", RED)
        shown = "  " + edge + self._open[stream].shown()
        self._open[stream].clear()
        if self._shown < HEAD_LINES:
            self._shown += 1
            err(shown)
        else:
            self._hidden += 1
            self._tail.append(shown)


class _Line:
    """A line that is still being written: its first bytes, and the number of the others."""

    def __init__(self) -> None:
        self._kept = b""
        self._more = 0

    def __bool__(self) -> bool:
        return bool(self._kept)

    def add(self, data: bytes) -> None:
        fits = data[: LINE_BYTES - len(self._kept)]
        self._kept += fits
        self._more += len(data) - len(fits)

    def clear(self) -> None:
        self._kept, self._more = b"", 0

    def shown(self) -> str:
        """Visible; a character that the bound cuts in two counts to what is not shown."""
        decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
        text = visible(decoder.decode(self._kept, final=not self._more), lines=False)
        left = self._more + len(decoder.getstate()[0])
        return text + (paint(f" … {left} more bytes", DIM) if left else "")


def _after_skipped(data: bytes, at: int) -> int:
    """Where, of the lines that end in ``data`` from ``at`` on, the last few begin."""
    cut = len(data)
    for _ in range(TAIL_LINES + 1):
        cut = data.rfind(b"\n", at, cut)
    return cut + 1
