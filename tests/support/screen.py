"""A terminal for a program under test: what it writes there, byte for byte."""
from __future__ import annotations

import os
import pty
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path


def on_screen(argv: Sequence[str], *, cwd: Path, env: Mapping[str, str], only_stdout: bool = False) -> tuple[int, bytes]:
    """Run to the end with standard output, and error unless ``only_stdout``, on a terminal; its exit code and the screen.

    Line ends come as the terminal makes them (CR LF).
    """
    leader, follower = pty.openpty()
    try:
        with subprocess.Popen(
            argv, cwd=cwd, env=dict(env), stdin=subprocess.DEVNULL, stdout=follower,
            stderr=subprocess.DEVNULL if only_stdout else follower,
        ) as process:
            os.close(follower)
            shown = b""
            while chunk := _read(leader):
                shown += chunk
            return process.wait(timeout=60), shown
    finally:
        os.close(leader)


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65536)
    except OSError:  # EIO: nobody holds the other end any more
        return b""
