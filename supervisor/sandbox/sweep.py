"""What a killed supervisor leaves, removed at the next start: control groups, by the slots that nobody holds any more.

Processes and mounts need no sweep: init ends with its channel, and the namespaces with init. A group outlives its processes,
and one process that hangs in the kernel may keep it; so whatever is still in it is killed first.
"""
from __future__ import annotations

from pathlib import Path

from supervisor.sandbox import cgroup
from supervisor.sandbox.claims import slots_of
from supervisor.sandbox.slots import slots_directory


def sweep(state: Path) -> int:
    """Remove the groups of dead supervisors; the number of slots that were taken back."""
    count = 0
    for slot in slots_of(slots_directory(state)).abandoned():
        cgroup.sweep(slot.left)
        count += 1
    return count
