"""What the bytes of one journal say by themselves: how far they are good, and what is wrong with the first that are not.

Reads only, and takes no lock that would hinder a writer. ``verify`` makes verdicts of this.
"""
from __future__ import annotations

import fcntl
import json
import os
from dataclasses import dataclass, field
from pathlib import Path

from native.record import MAX_LINE
from supervisor.journal.entry import Recovered
from supervisor.journal.tail import (
    ACCOUNTED,
    ALGORITHMS,
    SEAL,
    Genesis,
    accounts_for,
    find_account,
    is_torn,
    read_genesis,
    scanner,
)

_BLOCK = 4 << 20


@dataclass(slots=True)
class Reading:
    """What the bytes of one file say by themselves."""

    genesis: Genesis | None = None
    first: str = ""  # hash of entry 0
    head: str = ""
    entries: int = 0
    closed: bool = False
    live: bool = False
    recovered: int = 0  # tears that an entry accounts for
    torn: bool = False
    fault: str = ""
    offset: int = 0  # of the first byte that is not good
    warnings: list[str] = field(default_factory=list)
    lines: list[bytes] = field(default_factory=list)  # of the ledger only


def read(path: Path, keep: bool = False) -> Reading:
    """Read a file from its first byte to its last. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a fifo in its place must not hang us
    try:
        reading = Reading(live=_is_live(descriptor))
        _scan(descriptor, reading, keep)
    finally:
        os.close(descriptor)
    if reading.live and reading.torn:
        reading.torn = False  # a line that is being written
    return reading


def _is_live(descriptor: int) -> bool:
    """Whether a writer holds the lock. Ours is shared, taken for an instant, and never waited for."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    return False


def _scan(descriptor: int, reading: Reading, keep: bool) -> None:
    first = os.pread(descriptor, MAX_LINE, 0)
    if not first:
        return
    line, feed, _ = first.partition(b"\n")
    if not feed:
        reading.torn, reading.fault = is_torn(first), "" if is_torn(first) else "framing"
        return
    genesis = reading.genesis = read_genesis(line)
    if genesis is None:
        reading.fault = "framing"
        return
    if genesis.algorithm not in ALGORITHMS:
        reading.fault = "version"
        return
    scan = scanner(genesis)
    accounted: set[int] = set()
    while True:
        block = os.pread(descriptor, _BLOCK, reading.offset)
        noted, taken = scan.noted, scan.feed(block)
        if taken and not reading.first:
            reading.first = line.rpartition(SEAL)[2].removesuffix(b'"}').decode("ascii")
        if keep:
            reading.lines += block[:taken].split(b"\n")[:-1]  # at line feeds alone: U+2028 is no line end here
        good = reading.offset
        reading.offset += taken
        reading.head, reading.entries, reading.closed = scan.head, scan.entries, scan.closed
        if scan.noted > noted and not _all_accounted(block[:taken], good, accounted):
            reading.fault = "recovery"
            return
        if scan.fault:
            at = find_account(os.pread(descriptor, ACCOUNTED, reading.offset), reading.offset)
            if at is None:
                _judge_end(descriptor, reading, scan.fault)
                break
            accounted.add(at)
            reading.offset = at
            scan.forgive()
        elif not taken:
            if block:
                _judge_end(descriptor, reading, "framing")
            break
    reading.recovered = scan.noted
    if scan.wall_steps:
        reading.warnings.append(f"the wall clock went back {scan.wall_steps} time(s)")


def _judge_end(descriptor: int, reading: Reading, fault: str) -> None:
    """What stands behind the last good entry: a tear at the very end of the file, or somebody's work."""
    stretch = os.pread(descriptor, ACCOUNTED, reading.offset)
    if reading.closed:
        reading.fault = "after_close"
    elif is_torn(stretch):
        reading.torn = True
    else:
        reading.fault = fault


def _all_accounted(block: bytes, offset: int, accounted: set[int]) -> bool:
    """Whether each recovery entry of good lines names bytes that are there, right before it."""
    marker = b'"ev":"%s"' % Recovered.EV.encode("ascii")
    at = block.find(marker)
    while at >= 0:
        start = block.rfind(b"\n", 0, at) + 1
        line = block[start : block.find(b"\n", at)]
        entry = json.loads(line)
        skipped = entry["ev"] != Recovered.EV or offset + start in accounted
        # Without anything skipped it can only account for an entry that was whole but for its line feed.
        if not skipped and not accounts_for(line, offset + start, b"", offset + start - 1):
            return False
        at = block.find(marker, at + 1)
    return True
