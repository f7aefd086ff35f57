"""Any tree, edited in any way through a real overlay: collect, apply on a clone, and both are the same."""
from __future__ import annotations

import os
import shutil
import stat
import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import event, given, note, settings
from hypothesis import strategies as st

from supervisor.workspace.apply import Applied
from supervisor.workspace.diff import render
from support.overlays import applied, session, tree

pytestmark = [pytest.mark.kernel, pytest.mark.needs("overlay")]

NAMES = st.sampled_from([b"a", b"b", b"c", b"d e", b"\xff\n", b"-x", b'q"\\', "ü".encode()])
FEW = st.sampled_from([b"a", b"b", b"c"])  # so that steps meet at the same places
DEEP, ANY = st.lists(FEW, min_size=2, max_size=3), st.lists(NAMES, min_size=1, max_size=3)
PATHS = st.one_of(FEW, DEEP.map(b"/".join), ANY.map(b"/".join))
LINES = st.lists(st.sampled_from([b"one\n", b"two\n", b"\n", b"x\r\n", b"long line of text\n"]), max_size=12).map(b"".join)
CONTENTS = st.one_of(LINES, st.tuples(LINES, st.sampled_from([b"", b"end", b"\x00\x01"])).map(b"".join))
TEXTS = st.tuples(LINES, st.sampled_from([b"", b"end"])).map(b"".join)
STEPS = st.one_of(
    st.tuples(st.just("write"), PATHS, CONTENTS),
    st.tuples(st.just("write"), PATHS, CONTENTS),
    st.tuples(st.just("write"), PATHS, CONTENTS),
    st.tuples(st.just("remove"), PATHS, st.none()),
    st.tuples(st.just("append"), PATHS, LINES),
    st.tuples(st.just("mkdir"), PATHS, st.none()),
    st.tuples(st.just("remove"), PATHS, st.none()),
    st.tuples(st.just("chmod"), PATHS, st.sampled_from([0o644, 0o755, 0o700, 0o600, 0o500, 0o4755])),
    st.tuples(st.just("link"), PATHS, NAMES),
    st.tuples(st.just("hardlink"), PATHS, PATHS),
    st.tuples(st.just("rename"), PATHS, PATHS),
    st.tuples(st.just("touch"), PATHS, st.none()),
)


def perform(steps: list[tuple[str, bytes, object]]) -> None:
    """Do what can be done, in the current directory; what cannot (a missing parent, a taken name) is skipped."""
    for word, path, argument in steps:
        try:
            _perform(word, path, argument)
        except OSError:
            continue


def _perform(word: str, path: bytes, argument: object) -> None:
    if word == "write":
        os.makedirs(os.path.dirname(path) or b".", exist_ok=True)
        if os.path.islink(path):
            return
        with open(path, "wb") as file:
            file.write(argument)  # type: ignore[arg-type]
    elif word == "append" and not os.path.islink(path):
        with open(path, "ab") as file:
            file.write(argument)  # type: ignore[arg-type]
    elif word == "mkdir":
        os.makedirs(path)
    elif word == "remove":
        shutil.rmtree(path) if os.path.isdir(path) and not os.path.islink(path) else os.unlink(path)
    elif word == "chmod" and not os.path.islink(path):
        mode = int(argument)  # type: ignore[call-overload]
        os.chmod(path, mode if not os.path.isdir(path) else mode & 0o777 | 0o700)
    elif word == "link":
        os.symlink(argument, path)  # type: ignore[arg-type]
    elif word == "hardlink":
        os.link(argument, path)  # type: ignore[arg-type]
    elif word == "rename":
        os.rename(argument, path)  # type: ignore[arg-type]
    elif word == "touch":
        os.utime(path, follow_symlinks=False)


def plain(found: dict[bytes, tuple[str, int, bytes]]) -> dict[bytes, tuple[str, int, bytes]]:
    return {path: (kind, mode & 0o777, content) for path, (kind, mode, content) in found.items()}


@pytest.mark.parametrize("want_copy", [False, True], ids=["overlay", "copy"])
@settings(max_examples=150, deadline=None, database=None)
@given(before=st.lists(STEPS, min_size=4, max_size=14), during=st.lists(STEPS, min_size=2, max_size=12))
def test_applied_tree_equals_the_copy(
    want_copy: bool, before: list[tuple[str, bytes, object]], during: list[tuple[str, bytes, object]]
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        root, state, kept = Path(directory, "root"), Path(directory, "state"), Path(directory, "kept")
        root.mkdir()
        state.mkdir()
        child = os.fork()  # its own working directory
        if child == 0:
            os.umask(0o022)
            os.chdir(root)
            perform(before)
            os._exit(0)
        os.waitpid(child, 0)
        untouched = tree(root)

        def act() -> None:
            perform(during)
            # What the copy looks like at the end, seen from inside
            subprocess.run(["cp", "-a", ".", str(kept)], check=True)

        changes, blobs = session(root, state, act, want_copy=want_copy)
        note(repr(changes))
        for entry in changes.entries:
            event(f"{entry.operation.value} {entry.after.kind.value if entry.after else ''}")
        assert tree(root) == untouched
        shown = plain(tree(kept))
        done = applied(root, state, changes, blobs, debris=True)
        refused = {entry.path for entry in changes.refused}
        assert isinstance(done, Applied), done
        result = plain(tree(root))
        if not refused:
            differing = {path: (shown.get(path), result.get(path)) for path in {*shown, *result}
                         if shown.get(path) != result.get(path)}
            assert differing == {}
        # Setuid bits that the developer had stay where nothing changed, and never come from the session
        for path, (kind, mode, _) in tree(root).items():
            if kind == "file" and mode & stat.S_ISUID:
                assert untouched[path][1] & stat.S_ISUID
        again, _ = session(root, Path(directory, "again"), lambda: None)
        assert again.entries == ()
        assert not list(root.glob(".lemni*"))


@settings(max_examples=100, deadline=None, database=None)
@given(before=st.lists(st.tuples(PATHS, TEXTS), max_size=6), after=st.lists(st.tuples(PATHS, TEXTS), max_size=6))
@pytest.mark.needs("git")
def test_git_apply_accepts_the_text_and_makes_the_same_tree(
    before: list[tuple[bytes, bytes]], after: list[tuple[bytes, bytes]]
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        root, state, clone = Path(directory, "root"), Path(directory, "state"), Path(directory, "clone")
        root.mkdir()
        state.mkdir()
        child = os.fork()
        if child == 0:
            os.chdir(root)
            perform([("write", path, content) for path, content in before])
            os._exit(0)
        os.waitpid(child, 0)
        shutil.copytree(root, clone, symlinks=True)
        changes, blobs = session(root, state, lambda: perform([("remove", p, None) for p, _ in before[:2]]
                                                             + [("write", p, c) for p, c in after]))
        text = render(changes, blobs.read)
        note(text.decode("latin-1"))
        applied(root, state, changes, blobs, debris=True)
        if b"diff --git" in text:
            done = subprocess.run(["git", "apply", "-v", "-"], input=text, cwd=clone, capture_output=True, check=False)
            assert done.returncode == 0, done.stderr.decode("latin-1")
            # git makes no directories of its own and removes those that it empties
            assert _files(clone) == _files(root)


def _files(root: Path) -> dict[bytes, bytes]:
    return {path: content for path, (kind, _, content) in tree(root).items() if kind == "file"}
