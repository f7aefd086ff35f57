"""A command that writes without end: how fast it is drained, and that memory stays flat while the kept bytes are exact."""
from __future__ import annotations

import subprocess
import time
from pathlib import Path

import trio

from benchmarks.measure import Row, Samples, compare
from supervisor.sandbox.streams import Streams

KEEP = 10 << 20  # CB-03
FLOOD = 4 << 30


def rows(quick: bool) -> list[Row]:
    total, rounds = (FLOOD // 4, 1) if quick else (FLOOD, 3)
    size = f"{total >> 30} GiB"
    writers = {  # how large the pieces are that the command writes decides, not who reads
        "1 MiB": ["dd", "if=/dev/zero", "bs=1M", f"count={total >> 20}", "status=none"],
        "8 KiB": ["head", "-c", str(total), "/dev/zero"],
    }
    result, growth = [], []
    for piece, writer in writers.items():
        ours, peer = [], []
        for _ in range(rounds):
            began, before = time.perf_counter(), _resident_now()
            trio.run(_drain, writer, total)
            ours.append((time.perf_counter() - began) * 1e6)
            growth.append(_resident_peak() - before)
            peer.append(_through_cat(writer))
        name, target = f"flood: {size} through stdout, {piece} writes", 1.0 if piece == "1 MiB" else None
        result.append(compare(name, Samples(tuple(ours)), Samples(tuple(peer)), "| cat >/dev/null", target))
    name = f"flood: memory gained over {size}, {KEEP >> 20} MiB kept"
    result.append(Row(name, max(growth), max(growth), "MiB", target=16))
    return result


def _through_cat(writer: list[str]) -> float:
    began = time.perf_counter()
    with subprocess.Popen(writer, stdout=subprocess.PIPE) as source:
        subprocess.run(["cat"], stdin=source.stdout, stdout=subprocess.DEVNULL, check=True)
    return (time.perf_counter() - began) * 1e6


async def _drain(argv: list[str], total: int) -> None:
    with Streams(KEEP) as streams:
        out, err = streams.child_ends
        process = await trio.lowlevel.open_process(argv, stdout=out, stderr=err)
        streams.close_child_ends()
        await streams.drain()
        await process.wait()
        kept, _, dropped, _ = streams.take()
    if len(kept) != KEEP or kept.count(0) != KEEP or dropped != total - KEEP:
        raise AssertionError(f"kept {len(kept)}, dropped {dropped}")


def _resident_now() -> float:
    """MiB; and the kernel's high-water mark starts anew (proc(5), clear_refs)."""
    Path("/proc/self/clear_refs").write_text("5")
    return _status("VmRSS")


def _resident_peak() -> float:
    return _status("VmHWM")


def _status(key: str) -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(key):
            return int(line.split()[1]) / 1024
    raise KeyError(key)
