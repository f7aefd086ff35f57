"""Applying: all or nothing, whatever fails, wherever it is killed; never through a link, never as root."""
from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from native import files
from supervisor.errors import StoreError, WorkspaceError
from supervisor.workspace import commit, unfinished
from supervisor.workspace.apply import Applied, Conflict, apply_changes, recover
from supervisor.workspace.blobs import Blobs
from supervisor.workspace.changes import ChangeSet, Entry, Kind, State
from support.overlays import applied, tree


class Box:
    """A project, a state directory, and change sets written by hand."""

    def __init__(self, directory: Path) -> None:
        self.root, self.state = directory / "root", directory / "state"
        self.root.mkdir()
        self.blobs = Blobs(self.state / "blobs")
        (self.root / "d").mkdir()
        (self.root / "a").write_bytes(b"old a\n")
        (self.root / "d/b").write_bytes(b"old b\n")
        (self.root / "d/c").write_bytes(b"old c\n")
        (self.root / "l").symlink_to("a")
        (self.root / "f").write_bytes(b"file\n")
        (self.root / "f").chmod(0o640)
        (self.root / "s/t").mkdir(parents=True)
        (self.root / "s/u").mkdir(mode=0o750)
        (self.root / "s/u/v").write_bytes(b"v\n")
        (self.root / "s/t").chmod(0o500)
        (self.root / "s").chmod(0o500)

    def file(self, content: bytes, mode: int = 0o644) -> State:
        path = self.root.parent / "blob"
        path.write_bytes(content)
        fd = os.open(path, os.O_RDONLY)
        found = self.blobs.put(fd)
        os.close(fd)
        return State(Kind.FILE, mode, found.size, found.sha256, found.text)

    def changes(self) -> ChangeSet:
        """Every operation on every kind."""
        return ChangeSet.of([
            Entry(b"a", self.file(b"old a\n"), self.file(b"new a\n", 0o755)),
            Entry(b"d", State(Kind.DIRECTORY, 0o755), None),
            Entry(b"d/b", self.file(b"old b\n"), None),
            Entry(b"d/c", self.file(b"old c\n"), None),
            Entry(b"f", self.file(b"file\n", 0o640), State(Kind.DIRECTORY, 0o755)),
            Entry(b"f/y", None, self.file(b"y\n")),
            Entry(b"l", State(Kind.SYMLINK, target=b"a"), State(Kind.DIRECTORY, 0o500)),
            Entry(b"l/x", None, self.file(b"x\n")),
            Entry(b"n", None, State(Kind.DIRECTORY, 0o700)),
            Entry(b"n/link", None, State(Kind.SYMLINK, target=b"../a")),
            Entry(b"n/empty", None, self.file(b"")),
            Entry(b"s", State(Kind.DIRECTORY, 0o500), State(Kind.DIRECTORY, 0o700)),
            Entry(b"s/t", State(Kind.DIRECTORY, 0o500), State(Kind.DIRECTORY, 0o755)),
            Entry(b"s/t/new", None, self.file(b"new\n")),
            Entry(b"s/u", State(Kind.DIRECTORY, 0o750), None),
            Entry(b"s/u/v", self.file(b"v\n"), None),
        ])


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Box]:
    before = os.umask(0o022)
    yield Box(tmp_path)
    os.umask(before)


AFTER = {
    b"a": ("file", 0o755, b"new a\n"), b"l": ("directory", 0o500, b""), b"l/x": ("file", 0o644, b"x\n"),
    b"n": ("directory", 0o700, b""), b"n/link": ("link", 0, b"../a"), b"n/empty": ("file", 0o644, b""),
    b"f": ("directory", 0o755, b""), b"f/y": ("file", 0o644, b"y\n"), b"s": ("directory", 0o700, b""),
    b"s/t": ("directory", 0o755, b""), b"s/t/new": ("file", 0o644, b"new\n"),
}  # Box.changes()


def test_every_operation(box: Box) -> None:
    assert applied(box.root, box.state, box.changes(), box.blobs) == Applied(16, ())
    assert tree(box.root) == AFTER
    assert not (box.state / "apply.json").exists()


def test_set_id_bits_never_arrive(box: Box) -> None:
    changes = ChangeSet.of([Entry(b"set-id", None, box.file(b"s", 0o6755))])
    applied(box.root, box.state, changes, box.blobs)
    assert stat.S_IMODE((box.root / "set-id").stat().st_mode) == 0o755


def _fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize("change", [
    lambda root: (root / "a").write_bytes(b"other\n"),
    lambda root: (root / "a").chmod(0o600),
    lambda root: (root / "d/b").unlink(),
    lambda root: (root / "d/more").write_bytes(b"the developer's\n"),
    lambda root: (root / "n").mkdir(),
    lambda root: ((root / "d").rename(root / "e"), (root / "d").symlink_to("e")),
    lambda root: ((root / "l").unlink(), (root / "l").symlink_to("d")),
    lambda root: ((root / "a").unlink(), (root / "a").symlink_to("/etc/passwd")),
    lambda root: _fifo(root / "a"),
])
def test_a_change_underneath_is_a_conflict_and_nothing_is_written(box: Box, change: Any) -> None:
    changes = box.changes()
    change(box.root)
    before = tree(box.root)
    assert isinstance(applied(box.root, box.state, changes, box.blobs), Conflict)
    assert tree(box.root) == before


def test_a_parent_that_became_a_link_is_never_followed(box: Box, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    changes = ChangeSet.of([Entry(b"d/new", None, box.file(b"x"))])
    (box.root / "d").rename(box.root / "e")
    (box.root / "d").symlink_to(outside)
    assert isinstance(applied(box.root, box.state, changes, box.blobs), Conflict)
    assert list(outside.iterdir()) == []


def test_a_hard_link_elsewhere_keeps_its_bytes(box: Box, tmp_path: Path) -> None:
    os.link(box.root / "a", tmp_path / "elsewhere")
    assert isinstance(applied(box.root, box.state, box.changes(), box.blobs), Applied)
    assert (tmp_path / "elsewhere").read_bytes() == b"old a\n"


@pytest.mark.parametrize("also", [[], [(b"b", b"old a\n", 0o600)], [(b"b", b"new b\n", 0o644)]])
def test_a_hard_link_keeps_its_permissions_when_another_names_change(box: Box, also: list[tuple[bytes, bytes, int]]) -> None:
    os.link(box.root / "a", box.root / "b")
    (box.root / "a").chmod(0o644)
    old = box.file(b"old a\n")
    changed = [Entry(name, old, box.file(content, mode)) for name, content, mode in also]
    changes = ChangeSet.of([Entry(b"a", old, box.file(b"old a\n", 0o755)), *changed])
    assert isinstance(applied(box.root, box.state, changes, box.blobs), Applied)
    found = tree(box.root)
    assert found[b"a"] == ("file", 0o755, b"old a\n")
    assert found[b"b"] == ("file", *next(((mode, content) for _, content, mode in also), (0o644, b"old a\n")))


def test_a_hard_link_whose_content_changed_meanwhile_is_a_conflict(box: Box) -> None:
    os.link(box.root / "a", box.root / "b")
    changes = ChangeSet.of([Entry(b"a", box.file(b"old a\n"), box.file(b"old a\n", 0o755))])
    (box.root / "b").write_bytes(b"else\n")
    assert isinstance(applied(box.root, box.state, changes, box.blobs), Conflict)
    assert (box.root / "a").read_bytes() == b"else\n"


def test_refused_and_debris_are_left_out_with_what_is_in_them(box: Box) -> None:
    changes = ChangeSet.of([
        Entry(b"k", None, State(Kind.DIRECTORY, 0o755), refused="no"),
        Entry(b"k/x", None, box.file(b"x")),
        Entry(b"t", None, State(Kind.DIRECTORY, 0o755), debris=True),
        Entry(b"t/x", None, box.file(b"x")),
    ])
    done = applied(box.root, box.state, changes, box.blobs)
    assert isinstance(done, Applied)
    assert (done.files, {reason.path for reason in done.left_out}) == (0, {b"k", b"k/x", b"t/x"})
    assert applied(box.root, box.state, changes, box.blobs, debris=True).files == 2  # type: ignore[union-attr]


@pytest.mark.parametrize("path", [b".git/hooks/x", b"d/.GIT/config", b"../x", b"d/../../x", b"/etc/x", b"git~1/x"])
def test_a_forged_change_set_writes_nothing(box: Box, path: bytes) -> None:
    with pytest.raises(WorkspaceError):
        applied(box.root, box.state, ChangeSet((Entry(path, None, box.file(b"x")),)), box.blobs)


def test_a_damaged_blob_is_found_before_the_first_step(box: Box) -> None:
    changes = box.changes()
    before = tree(box.root)
    digest = hashlib.sha256(b"x\n").hexdigest()
    (box.state / "blobs" / digest).write_bytes(b"y\n")
    with pytest.raises(StoreError):
        applied(box.root, box.state, changes, box.blobs)
    assert tree(box.root) == before
    assert not (box.state / "apply.json").exists()


def _steps(box: Box) -> int:
    return len(commit.plan(list(box.changes().entries)))


@pytest.mark.parametrize("at", range(1, 26))
def test_a_failing_step_undoes_all(box: Box, monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    changes, before = box.changes(), tree(box.root)
    taken = 0
    real = commit._take

    def failing(root: int, staging: int, step: commit.Step) -> None:
        nonlocal taken
        taken += 1
        if taken == at:
            raise OSError(28, "no space")
        real(root, staging, step)

    monkeypatch.setattr(commit, "_take", failing)
    if at > _steps(box):
        assert isinstance(applied(box.root, box.state, changes, box.blobs), Applied)
        return
    with pytest.raises(WorkspaceError, match="ENOSPC"):
        applied(box.root, box.state, changes, box.blobs)
    assert tree(box.root) == before
    assert not (box.state / "apply.json").exists()


def _killed(act: Any, at: int) -> bool:
    """Let a child act, and end it, as by SIGKILL, before its n-th change on disk. Whether it came that far."""
    child = os.fork()
    if child == 0:
        calls = 0

        def counting(real: Any) -> Any:
            def call(*args: Any, **kwargs: Any) -> Any:
                nonlocal calls
                calls += 1
                if calls == at:
                    os._exit(9)
                return real(*args, **kwargs)

            return call

        for name in ("renameat2", "unlinkat"):
            setattr(files, name, counting(getattr(files, name)))
        for name in ("mkdir", "chmod", "chown", "rename", "unlink"):
            setattr(os, name, counting(getattr(os, name)))
        with contextlib.suppress(BaseException):
            act()
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9


APPLYING = 50  # more changes on disk than an application of Box.changes() makes, with the cleaning up after it


@pytest.mark.parametrize("at", range(1, APPLYING))
def test_killed_at_any_moment_is_recovered(box: Box, at: int) -> None:
    """All of the change is in the project or nothing of it, and nothing else, once the next start has looked."""
    changes, before = box.changes(), tree(box.root)
    killed = _killed(lambda: applied(box.root, box.state, changes, box.blobs), at)
    assert killed or at > 30
    recover(os.fsencode(box.root), box.state)
    assert tree(box.root) in (before, AFTER)
    assert tree(box.root) == AFTER or killed
    assert not recover(os.fsencode(box.root), box.state)
    assert list(box.state.iterdir()) == [box.state / "blobs"]


@pytest.mark.parametrize("at", [8, 12, 16, 20, 24])
def test_a_recovery_that_is_killed_at_any_moment_is_recovered(box: Box, at: int) -> None:
    """Each start is killed a step later than the one before, until one comes to its end."""
    changes, before = box.changes(), tree(box.root)
    assert _killed(lambda: applied(box.root, box.state, changes, box.blobs), at)
    starts = 1
    while _killed(lambda: recover(os.fsencode(box.root), box.state), starts):
        starts += 1
    assert starts > 2
    assert tree(box.root) == before
    assert not recover(os.fsencode(box.root), box.state)
    assert list(box.state.iterdir()) == [box.state / "blobs"]
    assert isinstance(applied(box.root, box.state, changes, box.blobs), Applied)
    assert tree(box.root) == AFTER


def test_the_next_application_recovers_the_one_of_another_session(box: Box) -> None:
    changes, root = box.changes(), os.fsencode(box.root)
    assert _killed(lambda: apply_changes(root, changes, box.blobs, box.state / "one.json"), 20)
    assert list(box.root.glob(".lemni-apply-*"))
    assert isinstance(apply_changes(root, changes, box.blobs, box.state / "two.json"), Applied)
    assert tree(box.root) == AFTER


def test_an_application_that_runs_is_no_crash(box: Box) -> None:
    changes, before = box.changes(), tree(box.root)
    assert _killed(lambda: applied(box.root, box.state, changes, box.blobs), 20)
    with unfinished.held(box.state):
        assert not recover(os.fsencode(box.root), box.state)
        with pytest.raises(WorkspaceError, match="another `lemni apply`"):
            applied(box.root, box.state, changes, box.blobs)
    assert recover(os.fsencode(box.root), box.state)
    assert tree(box.root) == before


def test_a_record_in_the_project_is_not_believed(box: Box, tmp_path: Path) -> None:
    staging = box.root / ".lemni-apply-0000000000000000"
    staging.mkdir()
    (staging / "o0").write_text("hook")
    (staging / "apply.json").write_text('{"root":"","staging":"","steps":[["take","LmdpdC94",0]]}')
    assert not recover(os.fsencode(box.root), box.state)
    assert isinstance(apply_changes(os.fsencode(box.root), ChangeSet(()), box.blobs, box.state / "apply.json"), Applied)


@pytest.mark.needs("root")
def test_as_root_everything_belongs_to_the_developer(box: Box) -> None:
    for path in [box.root, *box.root.rglob("*")]:
        os.chown(path, 1000, 1000, follow_symlinks=False)
    os.chown(box.root / "a", 1234, 1234)
    assert isinstance(applied(box.root, box.state, box.changes(), box.blobs), Applied)
    owners = {path.name: path.lstat().st_uid for path in box.root.rglob("*")}
    assert owners == {"a": 1234, "l": 1000, "x": 1000, "n": 1000, "link": 1000, "empty": 1000,
                      "f": 1000, "y": 1000, "s": 1000, "t": 1000, "new": 1000}
