"""Files that cannot be read are found, wherever they lie, and those that are hidden or of git are none of them."""
from __future__ import annotations

import os
from pathlib import Path

from supervisor.workspace.readable import SHOWN, find_unreadable


def tree(root: Path) -> None:
    for name, mode in (
        ("open", 0o644), ("closed", 0o000), ("deep/er/closed", 0o200), ("deep/er/open", 0o600), (".git/closed", 0o000),
        ("secrets/closed", 0o000), ("writable", 0o222),
    ):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
        path.chmod(mode)
    (root / "link").symlink_to("closed")
    (root / "nowhere").symlink_to("/absent")
    os.mkfifo(root / "pipe", 0o000)


def mine() -> tuple[int, int]:
    return os.geteuid(), os.getegid()


def test_by_the_modes_as_the_owner_reads(tmp_path: Path) -> None:
    tree(tmp_path)
    found = find_unreadable(os.fsencode(tmp_path), frozenset({b"secrets"}), mine())
    assert found == ([b"closed", b"deep/er/closed", b"writable"], 3)


def test_as_the_caller_reads(tmp_path: Path) -> None:
    tree(tmp_path)
    expected = [] if os.geteuid() == 0 else [b"closed", b"deep/er/closed", b"writable"]
    assert find_unreadable(os.fsencode(tmp_path), frozenset({b"secrets"}), None) == (expected, len(expected))


def test_somebody_elses_files_are_read_by_group_or_as_any_other(tmp_path: Path) -> None:
    for name, mode in (("owner", 0o400), ("group", 0o040), ("other", 0o004), ("all", 0o444)):
        (tmp_path / name).write_text("x")
        (tmp_path / name).chmod(mode)
    uid, gid = mine()
    root = os.fsencode(tmp_path)
    assert find_unreadable(root, frozenset(), (uid, gid))[0] == [b"group", b"other"]
    assert find_unreadable(root, frozenset(), (uid + 1, gid))[0] == [b"other", b"owner"]
    assert find_unreadable(root, frozenset(), (uid + 1, gid + 1))[0] == [b"group", b"owner"]


def test_names_of_any_bytes_and_more_than_are_shown(tmp_path: Path) -> None:
    root = os.fsencode(tmp_path)
    for number in range(SHOWN + 5):
        os.close(os.open(root + b"/\xff\n%d" % number, os.O_CREAT | os.O_WRONLY, 0))
    found, count = find_unreadable(root, frozenset(), mine())
    assert (len(found), count) == (SHOWN, SHOWN + 5)
    assert all(path.startswith(b"\xff\n") for path in found)


def test_it_stops_when_it_is_told_to(tmp_path: Path) -> None:
    tree(tmp_path)
    assert find_unreadable(os.fsencode(tmp_path), frozenset(), mine(), lambda: False) == ([], 0)
