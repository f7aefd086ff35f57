"""Exact kept bytes at every boundary, exact counts beyond, flat memory, on real pipes and a real terminal."""
from __future__ import annotations

import os
import pty
import resource
import subprocess
import threading
from collections.abc import Iterator
from io import FileIO

import pytest

from native.capture import Capture, widen


@pytest.fixture
def pipe() -> Iterator[tuple[int, FileIO]]:
    source, end = os.pipe2(os.O_CLOEXEC)
    with os.fdopen(source, "rb", 0), os.fdopen(end, "wb", 0) as writer:
        yield source, writer


def drained(capture: Capture, source: int) -> None:
    """Pull until end of file; the pipe has no writer left."""
    while not capture.eof:
        capture.pull(source)


@pytest.mark.parametrize("limit", [0, 1, 4095, 4096, 4097, 8192, 10_000])
@pytest.mark.parametrize("offset", [-1, 0, 1])
def test_kept_bytes_are_exact_at_the_boundary(pipe: tuple[int, FileIO], limit: int, offset: int) -> None:
    source, end = pipe
    sent = os.urandom(max(0, limit + offset))
    end.write(sent)
    end.close()
    capture = Capture(limit)
    drained(capture, source)
    assert capture.take() == sent[:limit]
    assert capture.dropped == max(0, len(sent) - limit)


def test_bytes_that_come_one_by_one(pipe: tuple[int, FileIO]) -> None:
    source, end = pipe
    capture = Capture(3)
    for byte in b"abcde":
        end.write(bytes([byte]))
        assert capture.pull(source) == 1
    assert (capture.kept, capture.dropped, capture.eof) == (3, 2, False)
    assert capture.since(1) == b"bc"
    assert capture.take() == b"abc"


def test_a_silent_pipe_does_not_block_and_is_not_at_its_end(pipe: tuple[int, FileIO]) -> None:
    capture = Capture(10)
    assert capture.pull(pipe[0]) == 0
    assert not capture.eof
    assert capture.take() == b""


def test_take_hands_out_once_and_later_bytes_are_dropped(pipe: tuple[int, FileIO]) -> None:
    source, end = pipe
    capture = Capture(100)
    end.write(b"one")
    capture.pull(source)
    assert capture.take() == b"one"
    end.write(b"two")
    capture.pull(source)
    assert (capture.take(), capture.dropped) == (b"", 3)


def test_the_other_side_of_a_terminal_going_is_end_of_file() -> None:
    ours, theirs = pty.openpty()
    os.write(theirs, b"x" * 100)
    os.close(theirs)
    capture = Capture(10)
    drained(capture, ours)  # splice cannot read a terminal: the fallback does
    os.close(ours)
    assert (capture.take(), capture.dropped) == (b"x" * 10, 90)


def test_errors_are_errors() -> None:
    with pytest.raises(OSError, match="Bad file descriptor"):
        Capture(1).pull(-1)
    standard_input = os.fstat(0)
    with pytest.raises(ValueError, match="limit"):
        Capture(-1)
    assert os.fstat(0) == standard_input  # what was never opened is not closed
    with pytest.raises(ValueError, match="offset"):
        Capture(1).since(1)


def test_widen_says_the_size_that_the_pipe_has(pipe: tuple[int, FileIO]) -> None:
    assert widen(pipe[1].fileno()) in {65536, 1 << 20}  # the second unless this user's share of pipe pages is used up
    with open(os.devnull) as f, pytest.raises(OSError, match="Bad file descriptor"):
        widen(f.fileno())


def test_a_gibibyte_leaves_memory_flat(pipe: tuple[int, FileIO]) -> None:
    source, end = pipe
    widen(end.fileno())
    total, limit = 1 << 30, 1 << 20
    writer = subprocess.Popen(["head", "-c", str(total), "/dev/zero"], stdout=end)
    end.close()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    capture = Capture(limit)
    os.set_blocking(source, False)
    while not capture.eof:
        capture.pull(source)
    assert writer.wait() == 0
    assert capture.take() == bytes(limit)
    assert capture.dropped == total - limit
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 16 * 1024  # KiB


def test_one_pull_at_a_time_and_the_gil_is_free(pipe: tuple[int, FileIO]) -> None:
    """While a pull reads a flood, another thread of Python goes on: it is what feeds the pipe."""
    source, end = pipe
    total = 4 << 20

    def feed() -> None:
        os.write(end.fileno(), bytes(total))  # more than the pipe holds: blocks until the other side reads
        end.close()

    feeder = threading.Thread(target=feed)
    feeder.start()
    capture = Capture(total)
    drained(capture, source)
    feeder.join()
    assert len(capture.take()) == total


def test_no_descriptor_stays_behind(pipe: tuple[int, FileIO]) -> None:
    source, end = pipe
    before = len(os.listdir("/proc/self/fd"))
    capture = Capture(0)
    end.write(b"x")
    capture.pull(source)
    del capture
    assert len(os.listdir("/proc/self/fd")) == before
