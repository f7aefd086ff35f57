"""A stored change set on the screen: its paths, its diff, and what stands apart from it."""
from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from agent.cli.numbers import counted, size
from agent.cli.terminal import BOLD, CYAN, GREEN, RED, YELLOW, err, out, paint
from agent.cli.visible import deceptive, visible
from supervisor.workspace.changes import ChangeSet, Entry, count_files
from supervisor.workspace.diff import render as render_diff
from supervisor.workspace.patch import MOST, Lost, patch
from supervisor.workspace.store import Decision, SessionRecord, Store


def render(store: Store, record: SessionRecord, changes: ChangeSet) -> bytes:
    """The diff of the stored changes, for reading."""
    return render_diff(changes, store.blobs(record.id).read)


def write_patch(store: Store, record: SessionRecord, changes: ChangeSet, algorithm: str) -> int:
    """Write the patch of the stored changes to standard output as ``git apply`` takes it; the exit code.

    1 where something is not in it, or it is too large for git: both are said.
    """
    lost: list[Lost] = []
    written = 0
    for piece in patch(changes, store.blobs(record.id), algorithm, lost):
        written += sys.stdout.buffer.write(piece)
    sys.stdout.flush()
    for one in lost:
        err(paint("not in the patch: ", RED) + f"{visible(one.path, lines=False)}: {one.what}")
    if written > MOST:
        err(paint(f"git apply takes no patch of more than {size(MOST)}", RED) + f"; this one has {size(written)}")
    if lost or written > MOST:
        err(f"lemni apply {record.id} takes all of it")
    return 1 if lost or written > MOST else 0


def show(store: Store, record: SessionRecord, changes: ChangeSet) -> None:
    """Every path first (a diff of 800 files hides one path well, B43), then the diff, whose end names what is left out."""
    if not changes.entries:
        nothing(record)
        _notices(changes)
        return
    for entry in changes.proposed:
        out(_headline(entry))
    if changes.proposed:
        out()
    diff = render(store, record, changes)
    for line in visible(diff).splitlines():
        out(_coloured(line))
    _notices(changes)
    if deceptive(diff):
        err(paint("! the diff holds characters that a terminal does not show; they are written <U+…>", YELLOW))


def _notices(changes: ChangeSet) -> None:
    for notice in changes.notices:
        err(paint("! ", YELLOW) + visible(notice, lines=False))


def nothing(record: SessionRecord) -> None:
    """Say that a session changed nothing that could be applied."""
    err(f"session {record.id} changed nothing")


def listed(record: SessionRecord, changes: ChangeSet) -> dict[str, Any]:
    """The change set as JSON knows it."""
    return {
        "session": record.id,
        "decision": record.decision.value,
        "added": record.added,
        "removed": record.removed,
        "digest": changes.digest,
        "entries": [
            {
                "path": entry.path, "operation": entry.operation.value, "conflict": entry.conflict or None,
                "refused": entry.refused or None, "debris": entry.debris,
            }
            for entry in changes.entries
        ],
        "notices": list(changes.notices),
    }


def amount(entries: Sequence[Entry]) -> str:
    """``2 files``, ``1 file and 3 directories``, ``1 directory``."""
    files = count_files(entries)
    directories = len(entries) - files
    parts = [counted(files, "file")] if files or not directories else []
    if directories:
        parts.append(f"{directories} {'directory' if directories == 1 else 'directories'}")
    return " and ".join(parts)


def kept(record: SessionRecord) -> str:
    """A session's changes in a list of sessions, from its record alone."""
    if not record.collected:
        return "changes not collected" if record.ended_us else "running or killed, changes not collected"
    if record.files:
        return f"{counted(record.files, 'file')}, +{record.added} −{record.removed}"
    if record.decision is not Decision.NONE:
        return "directories only"
    return "nothing proposed" if record.changes else "no changes"


def _headline(entry: Entry) -> str:
    note = ""
    if entry.conflict:
        note = paint(f"  conflict: {visible(entry.conflict, lines=False)}", RED, stream=sys.stdout)
    return f"{entry.operation.value:<6} {visible(entry.path, lines=False)}{note}"


def _coloured(line: str) -> str:
    if line.startswith(("diff ", "--- ", "+++ ")):
        return paint(line, BOLD, stream=sys.stdout)
    colour = {"+": GREEN, "-": RED, "@": CYAN}.get(line[:1])
    return paint(line, colour, stream=sys.stdout) if colour else line
