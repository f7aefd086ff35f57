"""Watching a working copy's disk: what is counted, and when it is counted at all."""
from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from supervisor.sandbox.disk import DiskWatch, unlinked, used_by
from supervisor.sandbox.groups import Excess
from supervisor.sandbox.spec import Limits


def test_allocated_bytes_and_entries_are_counted(tmp_path: Path) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/file").write_bytes(os.urandom(100_000))
    with open(tmp_path / "a/b/sparse", "wb") as file:
        file.truncate(1 << 40)
    (tmp_path / "link").symlink_to("/")
    used, count = used_by([os.fsencode(tmp_path)])
    assert count == 5
    assert 100_000 <= used < 1_000_000


def test_a_deep_tree_is_walked_without_recursion(tmp_path: Path) -> None:
    here = os.open(tmp_path, os.O_RDONLY)
    for _ in range(300):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    assert used_by([os.fsencode(tmp_path)])[1] == 300


def test_what_is_not_there_counts_nothing() -> None:
    assert used_by([b"/nonexistent"]) == (0, 0)


def test_an_excess_is_named_once_it_is_ours(tmp_path: Path) -> None:
    limits = replace(Limits(), disk=50_000, inodes=3)
    watch = DiskWatch([os.fsencode(tmp_path)], [b"/workspace"], limits)
    assert watch.look([]) is None
    (tmp_path / "file").write_bytes(os.urandom(100_000))
    found = watch.look([])
    assert found is not None
    assert (found.resource, found.limit) == ("disk", 50_000)
    (tmp_path / "file").unlink()
    for number in range(4):
        (tmp_path / str(number)).touch()
    assert watch.look([]) == Excess("inodes", 3, 4)


def test_without_an_overlay_there_is_nothing_to_watch() -> None:
    assert not DiskWatch([], [], Limits()).suspicious()


def test_a_file_without_a_name_counts_while_it_is_held(tmp_path: Path) -> None:
    below = (os.fsencode(tmp_path) + b"/",)
    file = os.open(tmp_path / "gone", os.O_RDWR | os.O_CREAT)
    again = os.dup(file)
    try:
        os.write(file, os.urandom(100_000))
        assert unlinked([os.getpid()], below) == 0  # it has a name: the walk counts it
        os.unlink(tmp_path / "gone")
        assert 100_000 <= unlinked([os.getpid()], below) < 200_000
        assert unlinked([os.getpid()], (b"/elsewhere/",)) == 0
    finally:
        os.close(file)
        os.close(again)
    assert unlinked([os.getpid()], below) == 0
