"""Scratch directories apart on disk: asked for where the file system knows it, and silent where it does not."""
from __future__ import annotations

import os
from pathlib import Path

import pytest

from supervisor.workspace.apart import TOP_OF_HIERARCHY, flags_of, keep_apart


def test_the_flag_is_set_once_and_the_others_stay(tmp_path: Path) -> None:
    fd = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            before = flags_of(fd)
        except OSError as error:
            pytest.skip(f"the temporary directory's file system has no inode flags: {error.strerror}")
        keep_apart(tmp_path)
        after = flags_of(fd)
        keep_apart(tmp_path)
        assert flags_of(fd) == after
        assert after & ~TOP_OF_HIERARCHY == before & ~TOP_OF_HIERARCHY
        if "ext" in file_system(tmp_path):
            assert after & TOP_OF_HIERARCHY
    finally:
        os.close(fd)


def test_where_there_is_no_such_flag_nothing_happens(tmp_path: Path) -> None:
    keep_apart(Path("/proc/self"))
    keep_apart(tmp_path / "absent")


def file_system(path: Path) -> str:
    """The type of the mount that holds ``path``."""
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    return max((m for m in mounts if str(path).startswith(m[1])), key=lambda m: len(m[1]))[2]
