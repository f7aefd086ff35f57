"""What a sandbox's processes hold open, looked at through /proc: the watchers count what stands in no directory.

Source: proc_pid_fd(5). A process may end, or close, at any moment: what cannot be looked at any more is skipped.
"""
from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence

LOOKED_AT = 4096  # descriptors in one look, at most: 10 ms


def held_open(pids: Sequence[int]) -> Iterator[tuple[os.stat_result, bytes]]:
    """The status of each open file, and the path that the kernel remembers for it (``… (deleted)`` when it has none left)."""
    left = LOOKED_AT
    for pid in pids:
        with contextlib.suppress(OSError):
            for name in os.listdir(b"/proc/%d/fd" % pid)[:left]:
                left -= 1
                with contextlib.suppress(OSError):
                    link = b"/proc/%d/fd/%s" % (pid, name)
                    yield os.stat(link), os.readlink(link)
