"""What the journal costs: an entry beside json and hashlib, one on disk beside a bare fdatasync, verification beside Python."""
from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from time import perf_counter_ns
from typing import Any

import trio

from benchmarks.measure import Row, Samples, compare, interleave
from native.chain import Chain
from native.scan import Scanner
from supervisor.journal.entry import Executed, Frame, Started, schema, values
from supervisor.journal.writer import Journal
from supervisor.types import Identity

BATCH = 64
SCANNED = 20_000
DURABLE = 20
JOURNAL = "0" * 32
CONSTANTS: dict[str, str | int | None] = {"boot": "26278e33-82a9-4cd4-b279-901af7ee5402", "sess": "01hv3z4q5r6s7t8v9w0x1y2z3a",
                                          "uid": 1000, "who": "person"}
EVENT = Executed(call="c12", code=0, signal=None, duration_us=120_000, cpu_us=90_000, max_rss=4 << 20, kept_out=1200,
                 dropped_out=0, kept_err=0, dropped_err=0, timed_out=False, killed=False)
AT = "2026-01-31T12:00:00.000000Z"


def rows(quick: bool) -> list[Row]:
    rounds = 10 if quick else 40
    domain = b"lemniscate.journal/1".ljust(64, b"\0")
    chain = Chain(schema(), JOURNAL, CONSTANTS)
    plain = {name: getattr(EVENT, name) for name in Executed.__slots__}

    def compiled() -> None:
        for n in range(BATCH):
            chain.append(EVENT.EV, values(EVENT), 1_700_000_000_000_000, n)
        chain.take()

    def standard_library() -> None:
        head, lines = "0" * 64, []
        for n in range(BATCH):
            entry: dict[str, Any] = {**plain, **CONSTANTS, "_p": head, "agent": "main", "at": AT, "ev": EVENT.EV, "mono": n,
                                     "seq": n, "sub": None, "v": 1}
            body = json.dumps(entry, sort_keys=True, separators=(",", ":"), ensure_ascii=False)[:-1].encode()
            head = hashlib.sha256(domain + body).hexdigest()
            lines.append(body + b',"~h":"' + head.encode() + b'"}\n')
        b"".join(lines)

    journal = Chain(schema(), JOURNAL, CONSTANTS)
    for n in range(SCANNED):
        journal.append(EVENT.EV, values(EVENT), 1_700_000_000_000_000 + n, n)
    data = journal.take()

    def scan() -> None:
        if Scanner(schema(), JOURNAL).feed(data) != len(data):
            raise AssertionError("the benchmark's own journal does not verify")

    def scan_in_python() -> None:
        head = "0" * 64
        padded = (b"lemniscate.journal/1\0" + JOURNAL.encode()).ljust(64, b"\0")
        for n, line in enumerate(data.split(b"\n")[:-1]):
            body, _, seal = line.rpartition(b',"~h":"')
            entry = json.loads(line)
            head = hashlib.sha256(padded + body).hexdigest()
            if seal != head.encode() + b'"}' or entry["seq"] != n:
                raise AssertionError("the plain verifier disagrees")
            json.dumps(entry, sort_keys=True, separators=(",", ":"), ensure_ascii=False)

    written = interleave({"compiled": compiled, "plain": standard_library}, rounds * 5)
    scanned = interleave({"compiled": scan, "plain": scan_in_python}, max(3, rounds // 4), warm=1)
    peer = "json + hashlib"
    return [
        compare(f"journal: {BATCH} entries serialised and chained", written["compiled"], written["plain"], peer, 0.5),
        compare(f"journal: {SCANNED} entries verified strictly", scanned["compiled"], scanned["plain"], peer, 0.2),
        trio.run(_durable, rounds),
    ]


async def _durable(rounds: int) -> Row:
    """Entries that are on disk before an act, one after the other, beside the bare system calls on the same disk."""
    with tempfile.TemporaryDirectory(prefix="lemni-bench-", dir="/var/tmp") as name, ExitStack() as files:
        frame = Frame(kind="session", names=None, method="nss", surface="bench", mode="agent", project="/", policy=None,
                      profile="default", kernel="", layers_on=(), layers_off=(), version="0")
        bare = files.enter_context(open(Path(name) / "bare", "ab", buffering=0))  # noqa: ASYNC230

        def system_calls() -> None:
            bare.write(b"x" * 400 + b"\n")
            os.fdatasync(bare.fileno())

        async with Journal.open(Path(name), "bench", Identity("person", os.getuid(), "nss"), frame) as journal:
            samples = await _in_turn(lambda: journal.write(Started(call="c1"), sync=True), system_calls, rounds * DURABLE // 4)
    return compare("journal: an entry on disk", samples["ours"], samples["bare"], "write + fdatasync", 2)


async def _in_turn(ours: Callable[[], Any], bare: Callable[[], None], rounds: int) -> dict[str, Samples]:
    """``interleave`` for a side that is awaited."""
    taken: dict[str, list[float]] = {"ours": [], "bare": []}
    for _ in range(rounds):
        began = perf_counter_ns()
        await ours()
        between = perf_counter_ns()
        bare()
        taken["ours"].append((between - began) / 1000)
        taken["bare"].append((perf_counter_ns() - between) / 1000)
    return {side: Samples(tuple(values)) for side, values in taken.items()}
