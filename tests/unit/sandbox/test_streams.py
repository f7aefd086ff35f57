"""What belongs to a command's output and what does not, with real shells on real pipes."""
from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from functools import partial

import pytest
import trio

from supervisor.sandbox.streams import LAST, QUIET, Streams

Taken = tuple[bytes, bytes, int, int]


def start(script: str, out: int, err: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(["bash", "-c", script], stdin=subprocess.PIPE, stdout=out, stderr=err)


async def run(script: str, keep: int = 1 << 20, on_output: Callable[[int, bytes], None] | None = None,
              relay: bool = False) -> Taken:
    """Run a script as a sandbox would: its end is reported apart from its output."""
    with Streams(keep, on_output, relay) as streams:
        out, err = streams.child_ends
        child = start(script, out, err)
        streams.close_child_ends()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(streams.drain)
            await trio.to_thread.run_sync(child.communicate)
            streams.command_ended()
        return streams.take()


async def test_both_streams_are_kept_apart() -> None:
    assert await run("echo out; echo err >&2; exit 3") == (b"out\n", b"err\n", 0, 0)


async def test_the_limit_holds_for_each_stream() -> None:
    out, err, dropped_out, dropped_err = await run("head -c 3000000 /dev/zero; head -c 1001 /dev/zero >&2", keep=1000)
    assert (len(out), len(err), dropped_out, dropped_err) == (1000, 1000, 2_999_000, 1)


async def test_what_a_process_substitution_still_writes_is_complete() -> None:
    for _ in range(5):
        assert (await run("exec > >(cat; echo b); echo a"))[0] == b"a\nb\n"


async def test_a_leftover_that_holds_the_pipe_does_not_hold_the_command() -> None:
    began = trio.current_time()
    out, *_ = await run("(sleep 30 & echo $! >&2); echo done")
    assert out == b"done\n"
    assert trio.current_time() - began < 5


async def test_a_leftover_that_never_is_quiet_is_cut_off() -> None:
    began = trio.current_time()
    out, err, dropped, _ = await run("yes & echo $! >&2", keep=1000)
    os.kill(int(err), 9)
    assert len(out) == 1000
    assert dropped > 0
    assert trio.current_time() - began < LAST + 5


async def test_a_silent_leftover_costs_a_moment_only(autojump_clock: trio.testing.MockClock) -> None:
    """On a clock of our own: exactly the quiet time."""
    with Streams(100) as streams:
        os.write(streams.child_ends[0], b"said")
        began = trio.current_time()
        streams.command_ended()
        await streams.drain()
        assert trio.current_time() - began == pytest.approx(QUIET)
        assert not streams.at_end
        assert streams.take() == (b"said", b"", 0, 0)


async def test_end_of_file_needs_no_moment(autojump_clock: trio.testing.MockClock) -> None:
    with Streams(100) as streams:
        os.write(streams.child_ends[1], b"said")
        streams.close_child_ends()
        streams.command_ended()
        streams.command_ended()
        began = trio.current_time()
        await streams.drain()
        assert trio.current_time() == began
        assert streams.at_end
        assert streams.take() == (b"", b"said", 0, 0)


async def test_chunks_are_what_is_kept_as_it_comes() -> None:
    seen: list[tuple[int, bytes]] = []
    out, err, dropped, _ = await run(
        "echo one; echo two >&2; head -c 100000 /dev/zero", keep=50, on_output=lambda s, c: seen.append((s, c)))
    assert b"".join(c for s, c in seen if s == 1) == out
    assert b"".join(c for s, c in seen if s == 2) == err == b"two\n"
    assert (len(out), dropped) == (50, 100_004 - 50)


@pytest.mark.parametrize("stream", [1, 2])
async def test_a_relayed_stream_whose_reader_is_gone_is_closed_to_its_writer_too(stream: int) -> None:
    seen = bytearray()

    def enough(number: int, chunk: bytes) -> None:
        if number == stream:
            raise BrokenPipeError
        seen.extend(chunk)

    other = 3 - stream
    with trio.fail_after(20):
        await run(f"yes >&{stream}; echo $? >&{other}", on_output=enough, relay=True)
    assert seen == b"141\n"  # SIGPIPE, as outside


async def test_relayed_output_is_complete_and_not_kept() -> None:
    seen: dict[int, int] = {1: 0, 2: 0}

    def count(stream: int, chunk: bytes) -> None:
        seen[stream] += len(chunk)

    assert await run("head -c 30000000 /dev/zero; head -c 12345 /dev/zero >&2", 50, count, relay=True) == (b"", b"", 0, 0)
    assert seen == {1: 30_000_000, 2: 12_345}


async def test_a_leftover_can_go_on_writing_after_the_command() -> None:
    """Without a reader it would die of SIGPIPE: the exit code tells that it did not."""
    with Streams(100) as streams:
        writer = start("read; head -c 300000 /dev/zero; exit 7", *streams.child_ends)
        streams.close_child_ends()
        streams.command_ended()
        await streams.drain()
        assert streams.take() == (b"", b"", 0, 0)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(streams.discard_rest)
            await trio.to_thread.run_sync(partial(writer.communicate, b"\n"))
    assert writer.returncode == 7


async def test_cancelled_in_the_middle_the_kept_bytes_are_still_there() -> None:
    with Streams(100) as streams:
        os.write(streams.child_ends[0], b"so far")
        with trio.move_on_after(0.01):
            await streams.drain()
        assert streams.take() == (b"so far", b"", 0, 0)


def test_every_descriptor_is_closed() -> None:
    before = sorted(os.listdir("/proc/self/fd"))
    with Streams(10) as streams:
        assert len(set(streams.child_ends)) == 2
    streams.close()
    assert sorted(os.listdir("/proc/self/fd")) == before
