"""Where sessions keep their state: one private directory of the person, never inside a sandbox (O-26)."""
from __future__ import annotations

import os
import stat
from pathlib import Path

from supervisor.errors import StoreError
from supervisor.settings.load import home_directory


def state_directory() -> Path:
    """``$XDG_STATE_HOME/lemniscate``, else ``~/.local/state/lemniscate``; made with mode 0700 where it is not there.

    StoreError ``state_untrusted``: it is not ours, or others can write in it.
    """
    given = os.environ.get("XDG_STATE_HOME", "")
    base = Path(given) if given.startswith("/") else home_directory() / ".local" / "state"
    return private_directory(base / "lemniscate")


def private_directory(path: Path) -> Path:
    """Make ``path`` (0700) where it is missing, and see that it is ours alone."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = path.stat()
    except OSError as failed:
        raise StoreError("open the state directory", on=str(path), errno=failed.errno, code="state_unusable") from None
    if status.st_uid != os.geteuid():
        why = f"it belongs to uid {status.st_uid}, not to uid {os.geteuid()}"
        remedy = "check HOME and XDG_STATE_HOME"
        raise StoreError("open the state directory", on=str(path), why=why, code="state_untrusted", remedy=remedy)
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        why = f"others can write in it (mode {stat.S_IMODE(status.st_mode):o})"
        raise StoreError("open the state directory", on=str(path), why=why, code="state_untrusted", remedy=f"chmod 700 {path}")
    return path
