"""The two output streams of one command: drained while it runs, cut at a bound, finished soon after it ended.

A command's end and the end of its output are two things. What it left behind may still be writing what belongs to it
(``exec > >(tee log); echo a``), or may hold the pipe for ever without a word (``(sleep 300 &); echo done``). So after
the end everything that is there is read, then the streams have until they are quiet for a moment, and an absolute end.
What leftovers say later goes nowhere, but somebody must read it: a server left running in the sandbox would otherwise
die of SIGPIPE at its next log line. That is ``discard_rest``.

The pipes are made here; reading is ``native.capture``: bounded memory, no GIL, no block.
"""
from __future__ import annotations

import math
import os
from collections.abc import Callable
from types import TracebackType
from typing import Self

import trio

from native.capture import Capture, widen

STDOUT, STDERR = 1, 2
QUIET = 0.1  # seconds without a byte after which an ended command has said all
CHUNK, RELAYED = 1 << 17, 1 << 20  # bytes of one relayed chunk, and between two turns of the event loop
LAST = 1.0  # seconds after the end at which even a chattering leftover is cut off

OnOutput = Callable[[int, bytes], None]


class Streams:
    """Both streams of one command. In order: make, send ``child_ends``, ``close_child_ends``, ``drain``, ``take``, ``close``.

    ``keep`` is the number of bytes kept of each stream (CB-03). ``on_output(stream, chunk)`` sees kept bytes as they
    come (stream 1 or 2), never what is dropped; with ``relay`` it sees every byte and nothing is kept or counted, and may
    raise BrokenPipeError: nobody reads this stream any more, so its writers get SIGPIPE. It must not block, nor raise else.
    ``command_ended`` is called from beside ``drain``; everything else by one task.
    """

    def __init__(self, keep: int, on_output: OnOutput | None = None, relay: bool = False) -> None:
        self._captures = {STDOUT: Capture(0 if relay else keep), STDERR: Capture(0 if relay else keep)}
        self._relay = relay and on_output is not None
        self._at_end: set[int] = set()
        self._on_output = on_output
        self._scope = trio.CancelScope()
        self._last = math.inf  # the absolute end, on trio's clock, once the command has ended
        self._read_ends: dict[int, int] = {}
        self._write_ends: list[int] = []
        try:
            for stream in (STDOUT, STDERR):
                self._read_ends[stream], write_end = os.pipe2(os.O_CLOEXEC)
                self._write_ends.append(write_end)
        except OSError:
            self.close()
            raise

    @property
    def child_ends(self) -> tuple[int, int]:
        """The descriptors to give to the command as its stdout and stderr (close-on-exec here)."""
        stdout, stderr = self._write_ends
        return stdout, stderr

    def close_child_ends(self) -> None:
        """Close our copies once they were sent: without it the streams never reach their end."""
        while self._write_ends:
            os.close(self._write_ends.pop())

    @property
    def at_end(self) -> bool:
        """Both streams reached end of file: nothing is left behind that could still write."""
        return len(self._at_end) == len(self._captures)

    async def drain(self) -> None:
        """Read both streams until end of file on both, or until the command ended and its streams went quiet."""
        with self._scope:
            async with trio.open_nursery() as nursery:
                for stream in self._captures:
                    nursery.start_soon(self._pump, stream)
        for stream in self._captures.keys() - self._at_end:
            self._pull(stream)  # on a busy machine the deadline can come before the pump's turn

    def pull_now(self) -> bool:
        """Take what is there without waiting; True at end of file of both. Spares a brief command the tasks of ``drain``."""
        for stream in self._captures.keys() - self._at_end:
            self._pull(stream)
        return self.at_end

    def command_ended(self) -> None:
        """The command itself has ended: what is there, what comes within a moment, and no more. May be called twice."""
        if self._last == math.inf:
            self._last = trio.current_time() + LAST
            self._scope.deadline = trio.current_time() + QUIET

    def take(self) -> tuple[bytes, bytes, int, int]:
        """Kept stdout and stderr, dropped bytes of stdout and stderr; once, after ``drain`` (also a cancelled one)."""
        out, err = self._captures[STDOUT], self._captures[STDERR]
        return out.take(), err.take(), out.dropped, err.dropped

    async def discard_rest(self) -> None:
        """Read and forget what leftovers still write, until end of file or cancellation; then close. After ``take``."""
        try:
            async with trio.open_nursery() as nursery:
                for stream in self._captures.keys() - self._at_end:
                    nursery.start_soon(self._forget, self._read_ends[stream])
        finally:
            self.close()

    def close(self) -> None:
        """Close every descriptor that is still open here. May be called twice."""
        self.close_child_ends()
        while self._read_ends:
            os.close(self._read_ends.popitem()[1])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    async def _pump(self, stream: int) -> None:
        if stream in self._read_ends:
            widen(self._read_ends[stream])  # four times the speed of a flood; best effort, and not for a brief command
        while stream not in self._at_end:
            await trio.lowlevel.wait_readable(self._read_ends[stream])
            if self._pull(stream) and self._last != math.inf:
                self._scope.deadline = min(self._last, trio.current_time() + QUIET)

    def _pull(self, stream: int) -> int:
        """Take what is there now, within a bound; return the number of bytes."""
        capture, before = self._captures[stream], self._captures[stream].kept
        if self._relay:
            taken, at_end = self._pass_on(stream)
        else:
            taken, at_end = capture.pull(self._read_ends[stream]), capture.eof
        if at_end:
            self._at_end.add(stream)
        if self._on_output is not None and capture.kept > before:
            self._on_output(stream, capture.since(before))
        return taken

    def _pass_on(self, stream: int) -> tuple[int, bool]:
        """Hand one pipe's fill to ``on_output``, chunk by chunk."""
        assert self._on_output is not None
        descriptor, taken = self._read_ends[stream], 0
        os.set_blocking(descriptor, False)
        while taken < RELAYED:
            try:
                chunk = os.read(descriptor, CHUNK)
            except BlockingIOError:
                return taken, False
            if not chunk:
                return taken, True
            taken += len(chunk)
            try:
                self._on_output(stream, chunk)
            except BrokenPipeError:
                os.close(self._read_ends.pop(stream))
                return taken, True
        return taken, False

    @staticmethod
    async def _forget(descriptor: int) -> None:
        nothing = Capture(0)
        while not nothing.eof:
            await trio.lowlevel.wait_readable(descriptor)
            nothing.pull(descriptor)
