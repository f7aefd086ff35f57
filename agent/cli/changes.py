"""A stored change set on the screen: its paths, its diff, and what stands apart from it."""
from __future__ import annotations

import sys
from typing import Any

from agent.cli.terminal import BOLD, CYAN, GREEN, RED, YELLOW, err, out, paint
from agent.cli.visible import deceptive, visible
from supervisor.workspace.changes import ChangeSet, Entry
from supervisor.workspace.diff import render as render_diff
from supervisor.workspace.store import SessionRecord, Store


def render(store: Store, record: SessionRecord, changes: ChangeSet) -> bytes:
    """The unified diff of the stored changes, as ``git apply`` takes it."""
    return render_diff(changes, store.blobs(record.id).read)


def show(store: Store, record: SessionRecord, changes: ChangeSet) -> None:
    """Every path first (a diff of 800 files hides one path well, B43), then the diff, whose end names what is left out."""
    if not changes.entries:
        err(f"session {record.id} changed nothing")
        return
    for entry in changes.proposed:
        out(_headline(entry))
    if changes.proposed:
        out()
    diff = render(store, record, changes)
    for line in visible(diff).splitlines():
        out(_coloured(line))
    for notice in changes.notices:
        err(paint("! ", YELLOW) + visible(notice, lines=False))
    if deceptive(diff):
        err(paint("! the diff holds characters that a terminal does not show; they are written <U+…>", YELLOW))


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
