"""A terminal for a program under test: what it writes there, byte for byte."""
from __future__ import annotations

import os
import pty
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path


def on_screen(
    argv: Sequence[str], *, cwd: Path, env: Mapping[str, str], only_stdout: bool = False,
    press: tuple[bytes, bytes] | None = None,
) -> tuple[int, bytes]:
    """Run to the end with standard output, and error unless ``only_stdout``, on a terminal; its exit code and the screen.

    Line ends come as the terminal makes them (CR LF). ``press``: once the first of the two is on the screen, the second is
    typed; the terminal is the program's own then, so that its keys become signals.
    """
    leader, follower = pty.openpty()
    own = ["setsid", "--ctty", "--wait", "--"] if press else []
    try:
        with subprocess.Popen(
            [*own, *argv], cwd=cwd, env=dict(env), stdin=follower if press else subprocess.DEVNULL, stdout=follower,
            stderr=subprocess.DEVNULL if only_stdout else follower,
        ) as process:
            os.close(follower)
            shown = b""
            while chunk := _read(leader):
                shown += chunk
                if press and press[0] in shown:
                    os.write(leader, press[1])
                    press = None
            return process.wait(timeout=60), shown
    finally:
        os.close(leader)


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65536)
    except OSError:  # EIO: nobody holds the other end any more
        return b""
