"""What a crash of the machine must not take back."""
from __future__ import annotations

import os
from pathlib import Path


def sync_directory(directory: Path) -> None:
    """Have the names in a directory on disk (fsync(2), "NOTES"). Raises OSError."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
