"""The processes that the test's process has started and not yet reaped."""
from __future__ import annotations

import threading
from pathlib import Path

from supervisor.sandbox.template import TEMPLATES


def children() -> set[int]:
    """Their pids, zombies too; those of this thread. Holders of templates are ended before: they stay from test to test."""
    TEMPLATES.close()
    return set(map(int, Path(f"/proc/self/task/{threading.get_native_id()}/children").read_text().split()))
