"""The file tools over a plain directory: what they answer, and that nothing outside is reached."""
from __future__ import annotations

import fcntl
import os
import signal
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from native import files
from supervisor.types import EditCall, ListCall, ReadCall, SearchCall, WriteCall
from supervisor.workspace.files import Done, Failed, FileView, Outside


@pytest.fixture
def root(tmp_path: Path) -> Path:
    copy = tmp_path / "copy"
    (copy / "src").mkdir(parents=True)
    (copy / "a.txt").write_text("one\ntwo\nthree\n")
    (copy / "src/b.py").write_text("def two(): pass\n")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/secret").write_text("two secrets\n")
    return copy


@pytest.fixture
def view(root: Path) -> Iterator[FileView]:
    fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    yield FileView(fd)
    os.close(fd)


def text(result: object) -> str:
    assert isinstance(result, Done), result
    return result.text


@pytest.mark.parametrize(("pattern", "reason"), [
    ("(", "missing )"), ("[", "missing ]"), ("*a", "no argument for repetition operator: *"),
    ("[z-a]", "invalid character class range: z-a"), ("a{1001}", "invalid repetition size: {1001}"), ("\\", "trailing \\"),
])
def test_a_wrong_pattern_is_answered_with_itself_and_the_reason(view: FileView, pattern: str, reason: str) -> None:
    refused = view.search(SearchCall(pattern, ".", None))
    assert isinstance(refused, Failed)
    assert refused.text == f'the pattern "{pattern}" is not valid RE2: {reason}'


@pytest.mark.parametrize("call", [
    SearchCall("(", "a.txt", None), SearchCall("two\ud800", "a.txt", None), SearchCall("two", "a.txt", "[a"),
    SearchCall("two", "a.txt", "\ud800"), ReadCall("a.txt", 0, 1), ReadCall("a.txt", 1, 0), WriteCall("a.txt", "\ud800"),
], ids=repr)
def test_a_path_that_is_not_at_fault_is_not_named(view: FileView, call: SearchCall | ReadCall | WriteCall) -> None:
    match call:
        case SearchCall():
            done = view.search(call)
        case ReadCall():
            done = view.read(call)
        case WriteCall():
            done = view.write(call)
    assert isinstance(done, Failed)
    assert "a.txt" not in done.text


def test_read_windows(view: FileView, root: Path) -> None:
    assert text(view.read(ReadCall("a.txt"))) == "one\ntwo\nthree\n"
    assert text(view.read(ReadCall("/workspace/src/../a.txt", 2, 1))).startswith("two\n[more lines follow")
    assert text(view.read(ReadCall("a.txt", 3, 5))) == "three\n"
    assert text(view.read(ReadCall("a.txt", 9))) == "[the file has 3 lines]"
    (root / "empty").touch()
    assert text(view.read(ReadCall("empty"))) == "[empty file]"
    (root / "latin").write_bytes(b"caf\xe9\n")
    assert text(view.read(ReadCall("latin"))) == "caf\\xe9\n"
    (root / "big").write_bytes(b"x" * 99 + b"\n" + (b"y" * 999 + b"\n") * 200)
    shown = text(view.read(ReadCall("big")))
    assert shown.endswith("[cut at 64 KiB; continue with offset=67]")
    assert text(view.read(ReadCall("big", 67, 1))).startswith("y" * 999)
    (root / "long").write_bytes(b"z" * 200_000)
    assert "longer than 64 KiB" in text(view.read(ReadCall("long")))


def test_list_shows_kinds_and_keeps_one_line_a_name(view: FileView, root: Path) -> None:
    os.symlink("a.txt", root / "link")
    os.mkfifo(root / "pipe")
    (root / "new\nline\x1b[2J").touch()
    assert text(view.list(ListCall("."))).split("\n") == [
        "a.txt", "link -> a.txt", "new\\nline\\x1b[2J", "pipe [not a regular file]", "src/",
    ]
    assert isinstance(view.list(ListCall("a.txt")), Failed)


@pytest.mark.parametrize("path", [
    "../outside/secret", "/etc/passwd", "src/../../outside/secret", "/", "/workspace/../etc/passwd", "out/secret",
    "up/outside/secret", "absolute", "chain/secret", "/workspacex/a", "//etc/passwd", "/proc/self/root/etc/passwd",
])
def test_outside_is_refused_with_path_and_reason(view: FileView, root: Path, path: str) -> None:
    os.symlink("../outside", root / "out")
    os.symlink("..", root / "up")
    os.symlink("/etc/passwd", root / "absolute")
    os.symlink("out", root / "chain")
    for result in (
        view.read(ReadCall(path)), view.write(WriteCall(path, "x")), view.edit(EditCall(path, "two", "x")),
        view.search(SearchCall("two", path)), view.list(ListCall(path)),
    ):
        assert isinstance(result, Outside), result
        assert path in result.text
        assert "outside the project" in result.text
    assert (root.parent / "outside/secret").read_text() == "two secrets\n"


def test_links_inside_are_followed(view: FileView, root: Path) -> None:
    os.symlink("src", root / "s")
    os.symlink("../a.txt", root / "src/up")
    assert text(view.read(ReadCall("s/up"))).startswith("one")
    assert isinstance(view.write(WriteCall("s/new/deep/file", "x")), Done)
    assert (root / "src/new/deep/file").read_text() == "x"


def test_new_paths_are_judged_where_they_would_be(view: FileView, root: Path) -> None:
    os.symlink("../outside", root / "out")
    assert isinstance(view.write(WriteCall("../new.txt", "x")), Outside)
    assert isinstance(view.write(WriteCall("out/new.txt", "x")), Outside)
    assert isinstance(view.write(WriteCall("out/a/b/new.txt", "x")), Outside)
    assert isinstance(view.write(WriteCall("newdir/../../x", "x")), (Outside, Failed))
    assert sorted(path.name for path in root.parent.iterdir()) == ["copy", "outside"]
    assert [path.name for path in (root.parent / "outside").iterdir()] == ["secret"]


def test_write_replaces_and_says_what(view: FileView, root: Path) -> None:
    result = view.write(WriteCall("a.txt", "x"))
    assert isinstance(result, Done)
    assert (result.path, result.length) == (b"a.txt", 1)
    assert (root / "a.txt").read_text() == "x"
    for path in ("src", "a.txt/x", "", "nul\0", "\ud800"):
        assert isinstance(view.write(WriteCall(path, "x")), Failed)
    assert isinstance(view.write(WriteCall("x", "\ud800")), Failed)


@pytest.mark.parametrize("kind", ["fifo", "device", "lease"])
def test_nothing_waits(view: FileView, root: Path, kind: str) -> None:
    if kind == "fifo":
        os.mkfifo(root / "x")
    elif kind == "device":
        os.symlink("/dev/tty", root / "x")
    else:
        (root / "x").write_text("x")
        signal.signal(signal.SIGIO, signal.SIG_IGN)  # how the kernel tells the holder, fatal by default
        held = os.open(root / "x", os.O_RDWR)
        fcntl.fcntl(held, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    for result in (view.read(ReadCall("x")), view.write(WriteCall("x", "y")), view.edit(EditCall("x", "x", "y"))):
        assert isinstance(result, (Failed, Outside))
    assert text(view.search(SearchCall("one"))) == "a.txt:1: one"
    if kind == "lease":
        os.close(held)
        signal.signal(signal.SIGIO, signal.SIG_DFL)


def test_a_link_swapped_in_at_any_moment_never_leads_out(view: FileView, root: Path) -> None:
    """A command that replaces a directory by an outward link, over and over, against the tools."""
    stop = threading.Event()
    (root / "d").mkdir()
    (root / "d/secret").write_text("inside\n")
    os.symlink("../outside", root / "l")

    def swap() -> None:
        fd = os.open(root, os.O_RDONLY)
        while not stop.is_set():
            files.renameat2(fd, b"d", fd, b"l", files.EXCHANGE)
        os.close(fd)

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        for _ in range(1500):
            read = view.read(ReadCall("d/secret"))
            assert not isinstance(read, Done) or read.text == "inside\n"
            view.edit(EditCall("d/secret", "two", "three"))
            view.write(WriteCall("d/new/x", "x"))
            view.write(WriteCall("d/other", "x"))
            found = view.search(SearchCall("secrets"))
            assert isinstance(found, Failed) or text(found) == "[no match]"
    finally:
        stop.set()
        thread.join()
    assert (root.parent / "outside/secret").read_text() == "two secrets\n"
    assert [path.name for path in (root.parent / "outside").iterdir()] == ["secret"]


def test_search(view: FileView, root: Path) -> None:
    (root / ".git").mkdir()
    (root / ".git/config").write_text("two\n")
    (root / "binary").write_bytes(b"two\0\n")
    os.symlink("../outside", root / "out")
    os.symlink("../outside/secret", root / "leak")
    assert text(view.search(SearchCall("two"))) == "a.txt:2: two\nsrc/b.py:1: def two(): pass"
    assert text(view.search(SearchCall("two", "src"))) == "src/b.py:1: def two(): pass"
    assert text(view.search(SearchCall("two", ".", "*.py"))) == "src/b.py:1: def two(): pass"
    assert text(view.search(SearchCall("two", ".", "src/*"))) == "src/b.py:1: def two(): pass"
    assert text(view.search(SearchCall("^t.*e$"))) == "a.txt:3: three"
    assert text(view.search(SearchCall("TWO"))) == "[no match]"
    assert isinstance(view.search(SearchCall("(")), Failed)
    assert isinstance(view.search(SearchCall("x", ".", "[")), Failed)
    (root / "many").write_text("hit\n" * 500)
    assert text(view.search(SearchCall("hit"))).count("many:") == 200
    (root / "slow").write_text("a" * 100_000)
    assert text(view.search(SearchCall("(a*)*(a*)*b", "slow"))) == "[no match]"


@pytest.mark.parametrize(("content", "old", "new", "expected"), [
    (b"a\r\nb\r\nc\r\n", "b\n", "x\ny\n", b"a\r\nx\r\ny\r\nc\r\n"),
    (b"a\r\nb\r\nc\r\n", "b", "x\ny", b"a\r\nx\r\ny\r\nc\r\n"),
    (b"a\nb\r\nc", "c", "d", b"a\nb\r\nd"),
    (b"a\nb\r\nc", "a\nb", "q", b"q\r\nc"),
    (b"\xef\xbb\xbfa\nb", "a", "z", b"\xef\xbb\xbfz\nb"),
    ("é\n".encode(), "é", "è", "è\n".encode()),
])
def test_edit_changes_only_the_touched_lines(
    view: FileView, root: Path, content: bytes, old: str, new: str, expected: bytes
) -> None:
    (root / "f").write_bytes(content)
    (root / "f").chmod(0o751)
    assert text(view.edit(EditCall("f", old, new))) == "1 replacement"
    assert (root / "f").read_bytes() == expected
    assert stat.S_IMODE((root / "f").stat().st_mode) == 0o751


@pytest.mark.parametrize(("content", "old", "why"), [
    (b"aa", "a", "2 matches"), (b"x", "a", "no match"), (b"a\xff", "a", "not UTF-8"), (b"a", "", "empty"),
    ("a".encode("utf-16"), "a", "not UTF-8"),
])
def test_edit_refuses_and_leaves_the_bytes(view: FileView, root: Path, content: bytes, old: str, why: str) -> None:
    (root / "f").write_bytes(content)
    result = view.edit(EditCall("f", old, "new"))
    assert isinstance(result, Failed)
    assert why in result.text
    assert (root / "f").read_bytes() == content


def test_edit_all(view: FileView, root: Path) -> None:
    (root / "f").write_text("a b a\n")
    result = view.edit(EditCall("f", "a", "c", True))
    assert text(result) == "2 replacements"
    assert (root / "f").read_text() == "c b c\n"


@pytest.mark.needs("root")
def test_as_root_it_acts_under_the_commands_ids(root: Path) -> None:
    os.chown(root, 7777, 8888)
    fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    view = FileView(fd, 7777, 8888)
    assert isinstance(view.write(WriteCall("new/file", "x")), Done)
    status = (root / "new/file").stat()
    assert (status.st_uid, status.st_gid) == (7777, 8888)
    (root / "a.txt").chmod(0o600)  # root's: the command could not read it either
    assert isinstance(view.read(ReadCall("a.txt")), Failed)
    assert os.stat("/root").st_uid == 0
    assert (root / "a.txt").read_text()  # and afterwards we are root again
    os.close(fd)
