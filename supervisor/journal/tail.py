"""Where a journal ends, and how it goes on after a crash.

A crash leaves a prefix of what was written: whole lines, then at most one that is torn. Reopening never truncates: the
torn bytes stay, a line feed ends them, and a ``journal.recovered`` entry linked to the last good one names them by offset,
length and digest. A line that is wrong but complete is no tear: somebody changed it, and the journal is not continued.
"""
from __future__ import annotations

import hashlib
import json
import os
import re
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from native.chain import Chain
from native.record import MAX_LINE, RECORD_VERSION
from native.scan import Scanner
from supervisor.errors import JournalBroken
from supervisor.journal.appendfile import AppendFile
from supervisor.journal.entry import GENESIS, LAST, Event, Recovered, schema, values
from supervisor.journal.redact import clean_text
from supervisor.types import Identity

ALGORITHM = "sha256"
ALGORITHMS = frozenset({"sha256", "sha384"})
SEAL = b',"~h":"'
_START = b'{"_p":"'
ACCOUNTED = 4 * MAX_LINE  # bytes in which a tear and the entry that names it stand
_BLOCK = 1 << 20


def now() -> tuple[int, int]:
    """µs since 1970 (UTC), and µs of the boot clock, which goes on during suspend and never steps."""
    return time.time_ns() // 1000, time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000


def boot_id() -> str:
    """The kernel's random id of this boot: within one, ``mono`` never goes back. JournalBroken where there is no /proc."""
    path = Path("/proc/sys/kernel/random/boot_id")
    try:
        return path.read_text("ascii").strip()
    except OSError as error:
        raise JournalBroken("opening the journal", on=str(path), errno=error.errno, remedy="mount /proc") from error


def constants(identity: Identity, session: str | None) -> dict[str, str | int | None]:
    """What every entry of one writer carries."""
    return {"boot": boot_id(), "sess": session, "uid": identity.uid, "who": clean_text(identity.name)}


@dataclass(frozen=True, slots=True)
class Genesis:
    """What entry 0 says of its journal."""

    jid: str
    algorithm: str
    version: int
    event: str
    session: str | None


def read_genesis(line: bytes) -> Genesis | None:
    """Entry 0 read leniently (it is verified afterwards like any other); None where it is none."""
    try:
        entry = json.loads(line)
        genesis = Genesis(entry["jid"], entry["alg"], entry["v"], entry["ev"], entry["sess"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    texts = (genesis.jid, genesis.algorithm, genesis.event)
    if not all(isinstance(text, str) and text.isascii() for text in texts) or len(genesis.jid) > 43:
        return None
    return genesis if genesis.event in GENESIS else None


def scanner(genesis: Genesis, head: str | None = None, seq: int = 0) -> Scanner:
    """A verifier for this journal, from its start or from a known entry on."""
    return Scanner(schema(), genesis.jid, genesis.algorithm, head, seq, last_event=LAST, noted_event=Recovered.EV)


def is_torn(stretch: bytes) -> bool:
    """Whether what follows the last good line is what a crash leaves, not what an edit leaves.

    A tear is the start of a line; once reopened, a line feed and the start of a recovery entry may follow. No line of
    it is whole, and none that a line feed ends has a seal.
    """
    *ended, last = stretch.split(b"\n")
    if len(stretch) >= ACCOUNTED - MAX_LINE or len(last) > MAX_LINE:
        return False
    if not stretch.strip(b"\0"):
        return True  # blocks that were allocated and never written before a power cut
    if any(not line or SEAL in line for line in ended):
        return False
    return all(line.startswith(_START[: len(line)]) for line in (*ended, last))


def accounts_for(line: bytes, at: int, stretch: bytes, offset: int) -> bool:
    """Whether the entry ``line`` at offset ``at`` is a recovery that names exactly ``stretch``, which begins at ``offset``."""
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return False
    return (isinstance(entry, dict) and entry.get("ev") == Recovered.EV and entry.get("torn_off") == offset
            and entry.get("torn_len") == len(stretch) and entry.get("torn_sha256") == hashlib.sha256(stretch).hexdigest()
            and offset + len(stretch) + 1 == at)


def begin(genesis: Event, identity: Identity, session: str | None) -> tuple[Chain, str]:
    """A new journal's chain, its entry 0 in the batch; and the journal's id."""
    jid = uuid.uuid4().hex
    chain = Chain(schema(), jid, constants(identity, session), ALGORITHM)
    chain.append(genesis.EV, (*values(genesis), ALGORITHM, jid), *now())
    return chain, jid


def resume(file: AppendFile, identity: Identity, session: str | None) -> tuple[Chain, str]:
    """The chain of an existing, locked file, ready to go on; and the journal's id. A torn end is named first, on disk.

    Raises JournalBroken where there is no entry 0 (code ``journal_headless``), where the journal is closed, or where it is
    damaged rather than torn (code ``journal_damaged``).
    """
    size = file.size()
    first = os.pread(file.descriptor, MAX_LINE, 0).partition(b"\n")
    genesis = read_genesis(first[0]) if first[1] else None
    if genesis is None:
        raise _unfit(file, "its first entry is missing or torn", "journal_headless")
    if genesis.version != RECORD_VERSION or genesis.algorithm not in ALGORITHMS:
        raise _unfit(file, "it is of a version that this program does not write", "journal_unsupported")
    scan, good = _last_good(file, genesis, size)
    stretch = os.pread(file.descriptor, size - good, good)
    torn: Recovered | None = None
    if stretch:
        if scan.feed(stretch + b"\n") == len(stretch) + 1:  # a good entry that lacks its line feed only
            good, stretch = size, b""
        elif not is_torn(stretch):
            raise _unfit(file, "it is damaged, not torn: an entry was changed", "journal_damaged")
        torn = Recovered(torn_off=good, torn_len=len(stretch), torn_sha256=hashlib.sha256(stretch).hexdigest())
    if scan.closed:
        raise _unfit(file, "it is closed", "journal_closed")
    chain = Chain(schema(), genesis.jid, constants(identity, session), genesis.algorithm, scan.head, scan.seq)
    if torn is not None:
        chain.append(torn.EV, values(torn), *now())
        file.append(b"\n" + chain.take())
        file.sync()
    return chain, genesis.jid


def _last_good(file: AppendFile, genesis: Genesis, size: int) -> tuple[Scanner, int]:
    """A scanner behind the last good entry, and that entry's end: from the last lines alone where they are whole."""
    base = max(0, size - 2 * MAX_LINE)
    block = os.pread(file.descriptor, size - base, base)
    lines = block.rsplit(b"\n", 2)
    if len(lines) == 3 and not lines[2]:
        link = _link_of(lines[1])
        if link is not None:
            scan = scanner(genesis, *link)
            if scan.feed(lines[1] + b"\n"):
                return scan, size
    scan, good = scanner(genesis), 0
    while block := os.pread(file.descriptor, _BLOCK, good):
        taken = scan.feed(block)
        good += taken
        if scan.fault:
            end = find_account(os.pread(file.descriptor, ACCOUNTED, good), good)
            if end is None:
                break
            good = end
            scan.forgive()
        elif not taken:
            break
    return scan, good


def find_account(block: bytes, offset: int) -> int | None:
    """The offset of the recovery entry that names the stretch at the start of ``block``, which stands at ``offset``."""
    feed = block.find(b"\n")
    while feed >= 0:
        line_end = block.find(b"\n", feed + 1)
        line = block[feed + 1 : line_end if line_end >= 0 else len(block)]
        if line_end >= 0 and accounts_for(line, offset + feed + 1, block[:feed], offset):
            return offset + feed + 1
        feed = line_end
    return None


def _link_of(line: bytes) -> tuple[str, int] | None:
    try:
        entry: dict[str, Any] = json.loads(line)
        head, seq = entry["_p"], entry["seq"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    if isinstance(head, str) and re.fullmatch("[0-9a-f]{64}|[0-9a-f]{96}", head) and type(seq) is int and seq >= 0:
        return head, seq
    return None


def _unfit(file: AppendFile, why: str, code: str) -> JournalBroken:
    return JournalBroken("continuing the journal", on=str(file.path), why=why, code=code,
                         remedy="see `lemni journal verify`; move the file away to begin a new one")
