"""Files that cannot be read are found, wherever they lie, and those that are hidden or of git are none of them."""
from __future__ import annotations

import os
from pathlib import Path

from supervisor.workspace.open import _unreadable
from supervisor.workspace.readable import SHOWN, Closed, find_unreadable


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
    assert found == Closed((b"closed", b"deep/er/closed", b"writable"), 3, whole=True)


def test_as_the_caller_reads(tmp_path: Path) -> None:
    tree(tmp_path)
    expected = () if os.geteuid() == 0 else (b"closed", b"deep/er/closed", b"writable")
    assert find_unreadable(os.fsencode(tmp_path), frozenset({b"secrets"}), None) == Closed(expected, len(expected), whole=True)


def test_somebody_elses_files_are_read_by_group_or_as_any_other(tmp_path: Path) -> None:
    for name, mode in (("owner", 0o400), ("group", 0o040), ("other", 0o004), ("all", 0o444)):
        (tmp_path / name).write_text("x")
        (tmp_path / name).chmod(mode)
    uid, gid = mine()
    root = os.fsencode(tmp_path)
    assert find_unreadable(root, frozenset(), (uid, gid)).paths == (b"group", b"other")
    assert find_unreadable(root, frozenset(), (uid + 1, gid)).paths == (b"other", b"owner")
    assert find_unreadable(root, frozenset(), (uid + 1, gid + 1)).paths == (b"group", b"owner")


def test_names_of_any_bytes_and_more_than_are_shown(tmp_path: Path) -> None:
    root = os.fsencode(tmp_path)
    for number in range(SHOWN + 5):
        os.close(os.open(root + b"/\xff\n%d" % number, os.O_CREAT | os.O_WRONLY, 0))
    found = find_unreadable(root, frozenset(), mine())
    assert (len(found.paths), found.count, found.whole) == (SHOWN, SHOWN + 5, True)
    assert all(path.startswith(b"\xff\n") for path in found.paths)


def test_a_directory_that_the_owner_may_not_enter_is_named_and_not_entered(tmp_path: Path) -> None:
    for name, mode in (("shut", 0o600), ("blind", 0o300), ("open", 0o500)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text("x")
        (tmp_path / name / "file").chmod(0)
        (tmp_path / name).chmod(mode)
    found = find_unreadable(os.fsencode(tmp_path), frozenset(), mine())
    assert found.paths == (b"blind", b"open/file", b"shut")
    for name in ("shut", "blind"):
        (tmp_path / name).chmod(0o700)


def test_it_stops_when_it_is_told_to_and_after_so_many(tmp_path: Path) -> None:
    tree(tmp_path)
    root = os.fsencode(tmp_path)
    assert find_unreadable(root, frozenset(), mine(), going_on=lambda: False) == Closed((), 0, whole=False)
    assert not find_unreadable(root, frozenset(), mine(), most=3).whole
    assert find_unreadable(root, frozenset(), mine(), most=1000).whole


def test_what_was_not_looked_at_to_the_end_says_so() -> None:
    assert _unreadable(Closed((), 0, whole=True)) is None
    assert _unreadable(Closed((b"a",), 1, whole=True)) == "the session cannot read: a"
    partial = "the session cannot read: a; not every file was looked at before the session ended"
    assert _unreadable(Closed((b"a",), 1, whole=False)) == partial
    none = "whether the session can read everything is not known: not every file was looked at before the session ended"
    assert _unreadable(Closed((), 0, whole=False)) == none


def test_one_large_directory_is_left_between_two_batches(tmp_path: Path) -> None:
    for number in range(20_000):
        os.link(tmp_path / "0", tmp_path / f"{number}") if number else (tmp_path / "0").write_text("")
    asked = 0

    def going_on() -> bool:
        nonlocal asked
        asked += 1
        return asked < 2

    assert not find_unreadable(os.fsencode(tmp_path), frozenset(), mine(), going_on=going_on).whole
    assert asked == 2
