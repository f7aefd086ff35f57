"""A patch is all of the changes in git's own form, or says what is missing; and a huge file is never in memory whole."""
from __future__ import annotations

import base64
import os
import subprocess
import tracemalloc
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.errors import StoreError
from supervisor.workspace.blobs import Blobs, digest
from supervisor.workspace.changes import ChangeSet, Entry, Kind, State
from supervisor.workspace.diff import render
from supervisor.workspace.patch import Lost, literal, object_names, patch
from supervisor.workspace.project import find_project, object_format

pytestmark = pytest.mark.needs("git")


def git(where: Path, *words: str, text: bytes = b"") -> bytes:
    environment = {"PATH": os.environ["PATH"], "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}
    return subprocess.run(
        ["git", "-c", "user.name=x", "-c", "user.email=x@example.invalid", *words], input=text, cwd=where, env=environment,
        capture_output=True, check=True,
    ).stdout


def kept(blobs: Blobs, directory: Path, content: bytes, mode: int = 0o644, *, by_name: bool = False) -> State:
    path = directory / "content"
    path.write_bytes(content)
    with path.open("rb") as file:
        found = digest(file.fileno())
        if by_name:
            blobs.put_names(file.fileno(), found)
        else:
            blobs.put(file.fileno())
    return State(Kind.FILE, mode, found.size, found.sha256, found.text)


@pytest.fixture
def blobs(tmp_path: Path) -> Blobs:
    return Blobs(tmp_path / "blobs")


def unpacked(text: bytes) -> list[bytes]:
    """The lines of a patch, with the compressed ones of a binary file as what they hold."""
    out: list[bytes] = []
    coded = b""
    for line in text.splitlines():
        if out and out[-1].startswith(b"literal ") and line:
            count = line[0] - (64 if line[0] < 97 else 70)
            coded += base64.b85decode(line[1:])[:count]
            continue
        if coded:
            out.append(zlib.decompress(coded))
            coded = b""
        out.append(line)
    return out


CONTENTS = [b"", b"\0", b"\0" * 51, os.urandom(52), os.urandom(53), b"\0" + b"text\n" * 1000, os.urandom(300_000)]


@pytest.mark.parametrize("algorithm", ["sha1", "sha256"])
def test_a_patch_is_the_one_that_git_writes(blobs: Blobs, tmp_path: Path, algorithm: str) -> None:
    """Added, changed, deleted, with another mode, where git finds no shorter delta: the same but for what zlib makes of it."""
    repo = tmp_path / "repo"
    repo.mkdir()
    git(repo, "init", "-q", f"--object-format={algorithm}")
    assert object_format(find_project(os.fsencode(repo)).git) == algorithm
    states = {"changed": (b"\0" + os.urandom(900), os.urandom(700), 0o644), "gone": (b"\0" + os.urandom(99), None, 0o644),
              "mode": (b"\0" + os.urandom(900), os.urandom(700), 0o755), "new": (None, b"\0" + os.urandom(60), 0o755),
              "bits": (b"\0same", b"\0same", 0o755), 'ö "\\\n': (b"\0" + os.urandom(30), os.urandom(40), 0o644)}
    entries = []
    for name, (before, after, mode) in states.items():
        old = None if before is None else kept(blobs, tmp_path, before)
        new = None if after is None else kept(blobs, tmp_path, after, mode)
        entries.append(Entry(os.fsencode(name), old, new))
        if before is not None:
            (repo / name).write_bytes(before)
    git(repo, "add", ".")
    git(repo, "commit", "-q", "-m", "x")
    for name, (_, after, mode) in states.items():
        if after is None:
            (repo / name).unlink()
        else:
            (repo / name).write_bytes(after)
            (repo / name).chmod(mode)
    git(repo, "add", "--intent-to-add", ".")
    lost: list[Lost] = []
    ours = b"".join(patch(ChangeSet.of(entries), blobs, algorithm, lost))
    theirs = git(repo, "diff", "HEAD", "--binary", "--full-index", "--no-renames")
    assert lost == []
    assert unpacked(ours) == unpacked(theirs)


@given(st.one_of(st.binary(max_size=300), st.sampled_from(CONTENTS)), st.integers(1, 200))
def test_a_literal_does_not_depend_on_how_it_is_cut(content: bytes, piece: int) -> None:
    pieces = [content[at:at + piece] for at in range(0, len(content), piece)]
    out = b"".join(literal(len(content), pieces))
    assert out == b"".join(literal(len(content), [content]))
    assert out.endswith(b"\n\n")
    assert all(len(line) <= 66 for line in out.splitlines()[1:])


@pytest.mark.parametrize("old", CONTENTS, ids=len)
@pytest.mark.parametrize("by_name", [False, True])
def test_git_applies_what_was_kept_whole_or_by_name(blobs: Blobs, tmp_path: Path, old: bytes, by_name: bool) -> None:
    repo = tmp_path / "repo"
    repo.mkdir()
    new = b"\0" + old[::-1] + b"more"
    for name in ("changed", "gone"):
        (repo / name).write_bytes(old)
    before = kept(blobs, tmp_path, old, by_name=by_name)
    if by_name and before.text:
        return  # texts are always kept
    found = ChangeSet.of([Entry(b"changed", before, kept(blobs, tmp_path, new)), Entry(b"gone", before, None),
                          Entry(b"deep/new", None, kept(blobs, tmp_path, new, 0o755))])
    lost: list[Lost] = []
    text = b"".join(patch(found, blobs, "sha1", lost))
    assert lost == []
    git(repo, "apply", "-", text=text)
    assert {path.name: path.read_bytes() for path in repo.rglob("*") if path.is_file()} == {"changed": new, "new": new}
    if not by_name:
        git(repo, "apply", "--reverse", "-", text=text)
        assert {path.name: path.read_bytes() for path in repo.rglob("*")} == {"changed": old, "gone": old}


def test_what_git_has_no_words_for_is_told(blobs: Blobs, tmp_path: Path) -> None:
    file = kept(blobs, tmp_path, b"x\n")
    private = State(Kind.FILE, 0o600, file.size, file.sha256, True)
    directory = State(Kind.DIRECTORY, 0o755)
    lost: list[Lost] = []
    text = b"".join(patch(ChangeSet.of([
        Entry(b"a", State(Kind.FILE, 0o644, 9, ""), kept(blobs, tmp_path, b"\0")),
        Entry(b"bits", file, private),
        Entry(b"empty", None, directory),
        Entry(b"full", None, directory), Entry(b"full/x", None, file),
        Entry(b"gone", directory, None), Entry(b"gone/empty", directory, None), Entry(b"gone/x", file, None),
        Entry(b"left", directory, None), Entry(b"left/x", file, None),
        Entry(b"mode", directory, State(Kind.DIRECTORY, 0o700)),
    ]), blobs, "sha1", lost))
    assert [one.path for one in lost] == [b"a", b"bits", b"empty", b"gone", b"gone/empty", b"mode"]
    assert b"GIT binary patch" not in text


@pytest.mark.parametrize("name", [b" x /a", b"a b/a b", b"a b/a b/a b", b"x ", b" ", b"a/b b/a/b", b'" "', b"\t ", b"a  b"])
@pytest.mark.parametrize("content", [b"", b"x\n", b"\0"])
def test_a_name_with_blanks_is_the_one_that_git_reads(blobs: Blobs, tmp_path: Path, name: bytes, content: bytes) -> None:
    repo = tmp_path / "repo"
    repo.mkdir()
    found = ChangeSet.of([Entry(name, None, kept(blobs, tmp_path, content))])
    git(repo, "apply", "-", text=b"".join(patch(found, blobs, "sha1", [])))
    assert [os.path.relpath(os.fsencode(path), os.fsencode(repo)) for path in repo.rglob("*") if path.is_file()] == [name]


def test_a_file_over_a_directory_that_git_does_not_remove_spoils_nothing(blobs: Blobs, tmp_path: Path) -> None:
    repo = tmp_path / "repo"
    (repo / "a/empty").mkdir(parents=True)
    directory, file = State(Kind.DIRECTORY, 0o755), kept(blobs, tmp_path, b"x\n")
    found = ChangeSet.of([Entry(b"a", directory, file), Entry(b"a/empty", directory, None), Entry(b"b", None, file)])
    lost: list[Lost] = []
    git(repo, "apply", "-", text=b"".join(patch(found, blobs, "sha1", lost)))
    assert (repo / "b").exists()
    assert [one.path for one in lost if one.whole] == [b"a"]


def test_an_old_content_that_was_never_kept_is_told(blobs: Blobs, tmp_path: Path) -> None:
    new = kept(blobs, tmp_path, b"\0new")
    lost: list[Lost] = []
    found = ChangeSet.of([Entry(b"a", State(Kind.FILE, 0o644, 4, "0" * 64), new), Entry(b"b", None, new)])
    text = b"".join(patch(found, blobs, "sha1", lost))
    assert [one.path for one in lost] == [b"a"]
    assert b"a/b b/b" in text


def test_a_damaged_blob_is_no_patch(blobs: Blobs, tmp_path: Path) -> None:
    new = kept(blobs, tmp_path, b"\0new")
    (blobs.directory / new.sha256).write_bytes(b"\0old")
    with pytest.raises(StoreError, match="another digest"):
        b"".join(patch(ChangeSet.of([Entry(b"a", None, new)]), blobs, "sha1", []))


def test_names_are_not_kept_of_other_bytes(blobs: Blobs, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"\0one")
    with (tmp_path / "x").open("rb") as file:
        found = digest(file.fileno())
        (tmp_path / "x").write_bytes(b"\0two")
        blobs.put_names(file.fileno(), found)
    assert blobs.name_in_git(found.sha256, "sha1") == ""


def test_git_names_contents_as_we_do(tmp_path: Path) -> None:
    for content in CONTENTS:
        name = git(tmp_path, "hash-object", "--stdin", text=content).decode().strip()
        assert object_names(len(content), [content], "sha1") == [name]


def test_a_huge_file_is_never_in_memory_whole(blobs: Blobs, tmp_path: Path) -> None:
    long, dense = kept(blobs, tmp_path, b"\0" * (48 << 20)), kept(blobs, tmp_path, os.urandom(3 << 20))
    found = ChangeSet.of([Entry(b"a", long, dense), Entry(b"b", dense, long), Entry(b"c", None, long)])
    tracemalloc.start()
    try:
        size = sum(len(piece) for piece in patch(found, blobs, "sha1", []))
        assert size > 6 << 20
        assert tracemalloc.get_traced_memory()[1] < 6 << 20
    finally:
        tracemalloc.stop()


def test_eyes_are_told_of_binary_files_by_size_and_digest(blobs: Blobs, tmp_path: Path) -> None:
    new = kept(blobs, tmp_path, b"\0new")
    shown = render(ChangeSet.of([Entry(b"a", None, new)]), blobs.read)
    assert shown == b"# new binary or large file a\n#   is 4 bytes, sha256 " + new.sha256.encode() + b"\n"
