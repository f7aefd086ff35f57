"""What a journal's bytes prove, and what they do not: one verdict a file, one exit code for all.

Each line is checked in this order: framing, link, hash, canonical form, version, number, schema; then the clock of each
boot. An unreadable stretch is accepted only if an entry right behind it names it exactly. Then the file is compared with
the ledger beside it. A journal that the ledger does not know as complete may have lost its end without a trace: it is
*unsealed*, which is no accusation and no proof. The stored bytes are what is read, never an index of them.

Blocking; reads only; takes no lock that would hinder a writer.
"""
from __future__ import annotations

import enum
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from supervisor.journal import ledger
from supervisor.journal.entry import JournalClosed, JournalOpened
from supervisor.journal.reading import Reading, read


class ExitCode(enum.IntEnum):
    """What ``lemni journal verify`` exits with."""

    INTACT = 0
    TAMPERED = 1  # altered, cut
    UNSEALED = 2  # not complete, torn, recovered: nothing contradicts it, nothing proves its end
    FAILED = 3  # usage, unreadable, unsupported


class Verdict(enum.Enum):
    """Of one file."""

    OK = "ok"
    UNSEALED = "unsealed"
    TORN = "torn"
    RECOVERED = "recovered"
    TRUNCATED = "truncated"
    TAMPERED = "tampered"
    UNSUPPORTED = "unsupported"
    UNREADABLE = "unreadable"

    @property
    def exit(self) -> ExitCode:
        return _EXITS.get(self, ExitCode.UNSEALED)


_EXITS = {
    Verdict.OK: ExitCode.INTACT,
    Verdict.TAMPERED: ExitCode.TAMPERED,
    Verdict.TRUNCATED: ExitCode.TAMPERED,
    Verdict.UNSUPPORTED: ExitCode.FAILED,
    Verdict.UNREADABLE: ExitCode.FAILED,
}
_GRAVITY = (ExitCode.TAMPERED, ExitCode.FAILED, ExitCode.UNSEALED, ExitCode.INTACT)  # the first one found is the report's


@dataclass(frozen=True, slots=True)
class Finding:
    """One file's verdict. ``entries`` is the number of good entries; ``line`` (from 1) and ``offset`` are of
    the first bad one. ``live``: a process holds the journal open now. ``warnings`` do not change the verdict.
    """

    path: Path
    verdict: Verdict
    entries: int
    reason: str
    offset: int | None = None
    line: int | None = None
    live: bool = False
    warnings: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        return {
            "path": os.fsdecode(self.path), "verdict": self.verdict.value, "entries": self.entries, "reason": self.reason,
            "offset": self.offset, "line": self.line, "live": self.live, "warnings": list(self.warnings),
        }

    def __str__(self) -> str:
        place = "" if self.line is None else f", line {self.line} (offset {self.offset})"
        tail = "".join(f"; warning: {warning}" for warning in self.warnings)
        return f"{self.verdict.value:<11} {self.path}: {self.entries} entries{place}: {self.reason}{tail}"


@dataclass(frozen=True, slots=True)
class Report:
    """All findings of one verification."""

    findings: tuple[Finding, ...]

    @property
    def exit(self) -> ExitCode:
        found = {finding.verdict.exit for finding in self.findings}
        return next((code for code in _GRAVITY if code in found), ExitCode.INTACT)

    def lines(self) -> list[str]:
        """One line of text a file; one that says so where there is none."""
        return [str(finding) for finding in self.findings] or ["no journal"]

    def as_json(self) -> dict[str, Any]:
        return {"exit": int(self.exit), "findings": [finding.as_json() for finding in self.findings]}


@dataclass(frozen=True, slots=True)
class Anchor:
    """What the ledger holds of one journal."""

    journal: str
    session: str | None
    first: str
    last: str | None = None
    entries: int = 0


def verify_all(directory: Path) -> Report:
    """Every journal of a directory with its ledger, and those that the ledger knows and that are gone."""
    try:
        paths = sorted(path for path in directory.iterdir() if path.name.endswith(".jsonl"))
    except FileNotFoundError:
        return Report(())
    except OSError as error:
        return Report((Finding(directory, Verdict.UNREADABLE, 0, error.strerror or str(error)),))
    anchors, findings = _read_ledger(directory / ledger.NAME)
    findings += [_judge(path, anchors) for path in paths if path.name != ledger.NAME]
    there = {path.stem for path in paths}
    findings += [
        Finding(directory / f"{anchor.session}.jsonl", Verdict.TRUNCATED, 0, "the ledger knows this journal, and it is gone")
        for anchor in anchors if anchor.session not in there
    ]
    return Report(tuple(findings))


def verify(paths: Iterable[Path]) -> Report:
    """Named files, each against the ledger in its directory, where there is one."""
    findings: list[Finding] = []
    for path in paths:
        if path.name == ledger.NAME:
            findings += _read_ledger(path)[1]
            continue
        anchors, of_ledger = _read_ledger(path.parent / ledger.NAME)
        findings += [finding for finding in of_ledger if finding.verdict.exit in (ExitCode.TAMPERED, ExitCode.FAILED)]
        findings.append(_judge(path, anchors))
    return Report(tuple(findings))


def _read_ledger(path: Path) -> tuple[list[Anchor], list[Finding]]:
    """The anchors that stand in the ledger's good part, and the verdict on it; nothing where there is no ledger."""
    if not path.exists():
        return [], []
    try:
        reading = read(path, keep=True)
    except OSError as error:
        return [], [Finding(path, Verdict.UNREADABLE, 0, error.strerror or str(error))]
    anchors: dict[str, Anchor] = {}
    for line in reading.lines:
        entry = json.loads(line)  # verified: the schema's fields are there
        if entry["ev"] == JournalOpened.EV:
            anchors[entry["journal"]] = Anchor(entry["journal"], entry["sess"], entry["head"])
        elif entry["ev"] == JournalClosed.EV and (opened := anchors.get(entry["journal"])):
            anchors[entry["journal"]] = Anchor(opened.journal, opened.session, opened.first, entry["head"], entry["entries"])
    verdict, reason = _by_itself(reading)
    if verdict is Verdict.UNSEALED and reading.entries:
        plural = "" if len(anchors) == 1 else "s"
        verdict, reason = Verdict.OK, f"{len(anchors)} journal{plural} anchored"  # the ledger is never closed
    return list(anchors.values()), [_finding(path, reading, verdict, reason)]


def _judge(path: Path, anchors: Iterable[Anchor]) -> Finding:
    try:
        reading = read(path)
    except OSError as error:
        return Finding(path, Verdict.UNREADABLE, 0, error.strerror or str(error))
    jid = reading.genesis.jid if reading.genesis else None
    anchor = next((a for a in anchors if a.journal == jid), None)
    named = anchor if anchor and anchor.session == path.stem else next((a for a in anchors if a.session == path.stem), None)
    return _finding(path, reading, *_against(reading, anchor, named))


def _against(reading: Reading, anchor: Anchor | None, named: Anchor | None) -> tuple[Verdict, str]:
    """The verdict with the ledger's word: ``anchor`` is of this journal's id, ``named`` of this file's name."""
    verdict, reason = _by_itself(reading)
    if verdict.exit in (ExitCode.TAMPERED, ExitCode.FAILED):
        return verdict, reason
    if named is not None and named is not anchor:
        if reading.entries == 0:
            return Verdict.TRUNCATED, "it was emptied: the ledger knows its first entry"
        return Verdict.TAMPERED, "another journal stands in its place: the ledger knows this session's by another id"
    if anchor is None:
        return verdict, reason
    if reading.entries and reading.first != anchor.first:
        return Verdict.TAMPERED, "its first entry is not the one that the ledger knows"
    if anchor.last is None:
        return verdict, reason
    if reading.entries < anchor.entries:
        return Verdict.TRUNCATED, f"the ledger knows {anchor.entries} entries"
    if reading.head != anchor.last or reading.entries != anchor.entries or verdict is Verdict.TORN:
        return Verdict.TAMPERED, "its last entry is not the one that the ledger knows"
    if verdict is Verdict.RECOVERED:
        return verdict, reason
    return Verdict.OK, "complete, as the ledger knows it"


def _by_itself(reading: Reading) -> tuple[Verdict, str]:
    """The verdict without an anchor: at best unsealed."""
    if reading.fault == "version":
        return Verdict.UNSUPPORTED, "a version that this program does not know"
    if reading.fault:
        return Verdict.TAMPERED, _FAULTS[reading.fault]
    if reading.torn:
        return Verdict.TORN, "the end of its last line is missing"
    if reading.recovered:
        return Verdict.RECOVERED, f"{reading.recovered} torn stretch(es), each accounted for"
    if reading.live:
        return Verdict.UNSEALED, "a session is writing it"
    if reading.closed:
        return Verdict.UNSEALED, "closed, but the ledger does not hold its end"
    return Verdict.UNSEALED, "not closed: whether its end is missing cannot be told"


_FAULTS = {
    "framing": "not the form of an entry",
    "link": "not linked to the entry before it",
    "hash": "its hash is another",
    "canonical": "not in canonical form",
    "seq": "its number does not follow",
    "schema": "not an entry that this program writes",
    "clock": "the boot's clock went back",
    "after_close": "it follows the last entry",
    "recovery": "it accounts for bytes that are not there",
}


def _finding(path: Path, reading: Reading, verdict: Verdict, reason: str) -> Finding:
    bad = reading.fault or reading.torn
    return Finding(path, verdict, reading.entries, reason, reading.offset if bad else None,
                   reading.entries + 1 if bad else None, reading.live, tuple(reading.warnings))
