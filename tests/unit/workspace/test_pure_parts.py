"""The pure parts: exclusions, git's names, links, ignore rules, line differences, what eyes are shown, session ids."""
from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from supervisor.errors import PolicyError, StoreError
from supervisor.workspace.changes import ChangeSet, Entry, Kind, Operation, State, changed
from supervisor.workspace.diff import quote, show
from supervisor.workspace.exclusions import Exclusions
from supervisor.workspace.gitnames import in_git_directory, is_git_name
from supervisor.workspace.ignore import IgnoreRules
from supervisor.workspace.linediff import changes
from supervisor.workspace.links import why_not
from supervisor.workspace.session_id import is_session_id, make_session_id, normalise


@pytest.mark.parametrize(
    "name", [b".env", b".env.local", b".ENVRC", b"x.pem", b"X.Key", b"a.p12", b"b.pfx", b"c.crt", b".env\n"]
)
def test_built_in_exclusions(name: bytes) -> None:
    assert Exclusions.parse().matches(b"deep/er/" + name, False)


@pytest.mark.parametrize("name", [b"env", b"pem", b"x.pem.txt", b"secrets", b"environment", b"x.keys", b""])
def test_what_is_not_excluded(name: bytes) -> None:
    assert not Exclusions.parse().matches(name, False)


@pytest.mark.parametrize(("pattern", "path", "directory", "expected"), [
    ("fixtures/private/**", b"fixtures/private/a/b", False, True),
    ("fixtures/private/**", b"fixtures/private", True, False),
    ("**/gen", b"a/b/gen", False, True),
    ("**/gen", b"gen", False, True),
    ("a/**/z", b"a/z", False, True),
    ("a/**/z", b"a/b/c/z", False, True),
    ("a/*/z", b"a/b/c/z", False, False),
    ("/top", b"top", False, True),
    ("/top", b"x/top", False, False),
    ("x/dir/", b"x/dir", False, False),
    ("x/dir/", b"x/dir", True, True),
    ("[ab]?.t", b"a1.t", False, True),
    ("[!ab]?.t", b"a1.t", False, False),
    ("[[:digit:]]", b"7", False, True),
    ("\\*", b"*", False, True),
    ("é*", "tété".encode(), False, False),
    ("é*", "état".encode(), False, True),
    ("Case", b"case", False, False),
])
def test_policy_globs(pattern: str, path: bytes, directory: bool, expected: bool) -> None:
    assert Exclusions.parse([pattern]).matches(path, directory) is expected


@pytest.mark.parametrize("pattern", [
    "", "/", "!x", "a//b", "../x", "a/./b", "[ab", "*", "**", "**/*", "a\0", "x\\", "[[:nope:]]", "[z-a]",
])
def test_a_pattern_that_means_nothing_is_named(pattern: str) -> None:
    with pytest.raises(PolicyError):
        Exclusions.parse([pattern])


@given(st.lists(st.binary(min_size=1, max_size=6).filter(lambda name: b"\0" not in name and b"/" not in name), max_size=8))
def test_a_batch_is_split_as_each_name_is_judged(names: list[bytes]) -> None:
    exclusions = Exclusions.parse(["\xff*", "d"])
    batch = b"\0" + b"".join(b"d" + name + b"\0" for name in names)
    hidden, below = exclusions.split(batch)
    assert set(hidden) == {name for name in names if exclusions.matches(name, True)}
    assert set(below) == set(names) - set(hidden)


@pytest.mark.parametrize("name", [b".git", b".GIT", b".Git ", b".git.", b".git . ", b"git~1", b"GIT~2", ".g\u200cit".encode(),
                                  b".git::$INDEX_ALLOCATION", b".git:x", "\ufeff.git".encode()])
def test_names_that_mean_git(name: bytes) -> None:
    assert is_git_name(name)
    assert in_git_directory(b"a/" + name + b"/hooks")


@pytest.mark.parametrize("name", [b".gitignore", b".github", b"git", b"x.git", b".gi", b"git~", b".gitmodules", b"..git"])
def test_names_that_do_not(name: bytes) -> None:
    assert not is_git_name(name)


@pytest.mark.parametrize(("path", "target", "refused"), [
    (b"l", b"a", False), (b"d/l", b"../a", False), (b"d/l", b"../../a", True), (b"l", b"/a", True), (b"l", b"l", True),
    (b"x/l", b"up/../y", True), (b"x/l", b"down/../y", False), (b"l", b".git/config", True), (b"l", b"missing/../../x", True),
    (b"l", b"away", True),
])
def test_where_links_lead(path: bytes, target: bytes, refused: bool) -> None:
    links = {b"x/up": b"..", b"x/down": b"deep/er", b"l": target, b"away": b"/etc"}
    assert bool(why_not(path, target, links.get)) is refused


def test_ignore_rules_are_those_of_git() -> None:
    top = b"# no\n*.log\n!keep.log\n/build/\ndocs/*.html\n\\#x\ntrail \\ \nq/\n"
    texts = {b".gitignore": top, b"sub/.gitignore": b"!a.log\n"}
    rules = IgnoreRules(texts.get, (b"*.user\n",))
    paths = [b"a.log", b"keep.log", b"sub/a.log", b"sub/b.log", b"build/x", b"sub/build/x", b"docs/i.html", b"docs/d/i.html",
             b"#x", b"x.user", b"q", b"q/z", b"plain"]
    new = {path for path in paths if rules.is_debris(path, False, is_new=True)}
    assert new == {b"a.log", b"sub/b.log", b"build/x", b"docs/i.html", b"#x", b"x.user", b"q/z"}
    assert rules.is_debris(b"x/__pycache__/m.pyc", False, is_new=False)
    assert not rules.is_debris(b"target/main.rs", False, is_new=False)


LINE = st.sampled_from([b"a\n", b"b\n", b"c\n", b"d\n", b"unique %d\n"])


@settings(max_examples=400)
@given(st.lists(LINE, max_size=30), st.lists(LINE, max_size=30))
def test_line_changes_turn_one_text_into_the_other(old: list[bytes], new: list[bytes]) -> None:
    built: list[bytes] = []
    at = at_new = 0
    for change in changes(old, new):
        assert old[at:change.old_from] == new[at_new:change.new_from]
        built += old[at:change.old_from] + new[change.new_from:change.new_to]
        at, at_new = change.old_to, change.new_to
    assert built + old[at:] == new


def test_hostile_texts_are_compared_in_bounded_time() -> None:
    old = [b"a\n", b"b\n"] * 60_000
    new = [b"b\n", b"b\n", b"a\n"] * 40_000
    began = time.process_time()
    changes(old, new)
    assert time.process_time() - began < 20


def test_show_leaves_nothing_invisible() -> None:
    raw = "ok\té\u202e\u200b\x1b[2J\r\x9b\u00a0\U000e0041\ufe0f\n".encode() + b"\xff" + b"<U+200B>"
    assert show(raw) == (
        "ok\té<U+202E><U+200B><U+001B>[2J<U+000D><U+009B><U+00A0><U+E0041><U+FE0F>\n<0xFF><U+003C>U+200B>"
    )


def test_names_are_quoted_as_git_does() -> None:
    assert quote(b"plain name") == b"plain name"
    assert quote(b'a"\\\n\t\xff\x01') == b'"a\\"\\\\\\n\\t\\377\\001"'


def test_change_sets_survive_storage_and_tell_what_happened() -> None:
    one, two = State(Kind.FILE, 0o644, 1, "a" * 64, True), State(Kind.FILE, 0o755, 1, "a" * 64, True)
    found = ChangeSet.of([
        Entry(b"\xff\n", None, one), Entry(b"m", one, two), Entry(b"d", one, None),
        Entry(b"t", one, State(Kind.SYMLINK, target=b"\xfe")), Entry(b"e", one, State(Kind.FILE, 0o644, 2, "b" * 64)),
    ], ["n"])
    assert ChangeSet.decode(found.encode()) == found
    assert {entry.path: entry.operation for entry in found.entries} == {
        b"\xff\n": Operation.ADD, b"m": Operation.MODE, b"d": Operation.DELETE, b"t": Operation.TYPE, b"e": Operation.EDIT,
    }
    assert not changed(one, one)
    assert changed(State(Kind.FILE, 0o644, 9), State(Kind.FILE, 0o644, 9))  # what was not read is never the same
    for damaged in (b"", b"{}", b'{"entries": 1}', found.encode()[:-1]):
        with pytest.raises(StoreError):
            ChangeSet.decode(damaged)


def test_session_ids_sort_by_time_and_are_read_leniently() -> None:
    early, late = make_session_id(1_000, b"\xff" * 10), make_session_id(1_001, b"\0" * 10)
    assert early < late
    assert is_session_id(early)
    assert len(early) == 26
    assert normalise(" 0OILoil ") == "0011011"
    assert not any(is_session_id(text) for text in ("", early[:-1], early[:-1] + "u", "../" + early))
