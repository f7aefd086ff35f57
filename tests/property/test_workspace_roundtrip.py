"""Any tree, edited in any way through a real overlay: collect, apply on a clone, and both are the same."""
from __future__ import annotations

import os
import shutil
import stat
import subprocess
import tempfile
import unittest.mock
from pathlib import Path

import pytest
from hypothesis import event, given, note, settings
from hypothesis import strategies as st

from supervisor.workspace import collect
from supervisor.workspace.apply import Applied
from supervisor.workspace.patch import Lost, patch
from support.overlays import applied, session, tree

pytestmark = [pytest.mark.kernel, pytest.mark.needs("overlay")]

NAMES = st.sampled_from([b"a", b"b", b"c", b"d e", b" x ", b"\t.", b"\xff\n", b"-x", b'q"\\', "ü".encode()])
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


@pytest.mark.parametrize("algorithm", ["sha1", "sha256"])
@settings(max_examples=100, deadline=None, database=None)
@given(before=st.lists(STEPS, min_size=2, max_size=10), during=st.lists(STEPS, min_size=2, max_size=10), kept=st.booleans())
@pytest.mark.needs("git")
def test_git_apply_makes_of_the_patch_what_lemni_apply_makes(
    algorithm: str, before: list[tuple[str, bytes, object]], during: list[tuple[str, bytes, object]], kept: bool
) -> None:
    """Files of any bytes, links, and the execute bit; there and, where the old bytes were kept, back again."""
    with tempfile.TemporaryDirectory() as directory:
        root, state, clone = Path(directory, "root"), Path(directory, "state"), Path(directory, "clone")
        root.mkdir()
        state.mkdir()
        child = os.fork()
        if child == 0:
            os.umask(0o022)
            os.chdir(root)
            perform(before)
            os._exit(0)
        os.waitpid(child, 0)
        shutil.copytree(root, clone, symlinks=True)
        untouched, stood = _as_git_has_it(clone), _directories(clone)
        with unittest.mock.patch.object(collect, "_OLD_BYTES", 1 << 20 if kept else 0):
            changes, blobs = session(root, state, lambda: perform(during))
        lost: list[Lost] = []
        text = b"".join(patch(changes, blobs, algorithm, lost))
        note(text.decode("latin-1"))
        assert isinstance(applied(root, state, changes, blobs), Applied)
        _git(clone, "init", "-q", f"--object-format={algorithm}")
        if b"diff --git" in text:
            _git(clone, "apply", "-", text=text)
        left_out = {one.path for one in lost if one.whole}
        assert {**_as_git_has_it(clone), **dict.fromkeys(left_out)} == {**_as_git_has_it(root), **dict.fromkeys(left_out)}
        # A directory without a file in it is nothing to git: it makes none, and removes those that it empties
        mine, gits, told = _directories(root), _directories(clone), {one.path for one in lost}
        unsaid = (mine - gits - stood) | (gits - mine)
        assert {path for path in unsaid if not any(one == path or one.startswith(path + b"/") for one in told)} == set()
        if b"diff --git" in text and kept:
            _git(clone, "apply", "--reverse", "-", text=text)
            assert _as_git_has_it(clone) == untouched


def _git(where: Path, *words: str, text: bytes = b"") -> None:
    environment = {"PATH": os.environ["PATH"], "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}
    done = subprocess.run(["git", *words], input=text, cwd=where, env=environment, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode("latin-1")


def _directories(root: Path) -> set[bytes]:
    return {path for path, (kind, _, _) in tree(root).items() if kind == "directory"}


def _as_git_has_it(root: Path) -> dict[bytes, tuple[str, int, bytes]]:
    """Files and links, with no more of their permissions than git knows."""
    found = tree(root).items()
    return {path: (kind, mode & 0o100, content) for path, (kind, mode, content) in found if kind in ("file", "link")}
