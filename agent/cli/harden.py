"""What the program does to itself before it opens a session: it holds the model's key and the journal.

Non-dumpable: another process of the same user can neither trace it nor read its memory, environment or descriptors through
/proc, and it leaves no core. The kernel still lets a process see its own /proc entries (proc(5), prctl(2)).
"""
from __future__ import annotations

import prctl  # type: ignore[import-untyped]


def harden() -> None:
    """Raises OSError where the kernel refuses, which none does."""
    prctl.set_dumpable(0)
