"""What a session does in git's own directories is never taken, and the person is told where: by a real git, in both copies."""
from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from supervisor.workspace.changes import ChangeSet
from supervisor.workspace.gitnames import is_git_name
from supervisor.workspace.gitwork import is_told
from support.lemni import lemni
from support.overlays import session
from support.scripted import call, configure

pytestmark = [pytest.mark.kernel, pytest.mark.needs("overlay", "git")]
both = pytest.mark.parametrize("want_copy", [False, True])
WHO = {"GIT_AUTHOR_NAME": "n", "GIT_AUTHOR_EMAIL": "e", "GIT_COMMITTER_NAME": "n", "GIT_COMMITTER_EMAIL": "e"}
CLEAN = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1", **WHO}


def git(directory: Path, *words: str) -> None:
    command = ["git", "-c", "protocol.file.allow=always", *words]
    subprocess.run(command, cwd=directory, env=CLEAN, check=True, capture_output=True)


def shell(script: str) -> Callable[[], object]:
    return lambda: subprocess.run(["bash", "-ec", script], check=True, env=CLEAN, stdout=subprocess.DEVNULL)


def told(changes: ChangeSet) -> list[str]:
    """Which git directories the change set says were changed: in one notice, or none."""
    found = [notice for notice in changes.notices if "git's own files" in notice]
    assert len(found) <= 1
    assert changes.notices[:1] == tuple(found) or not found, "it must not drown in others"
    return found[0].partition(" in ")[2].partition(": nothing")[0].split(", ") if found else []


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    root.mkdir()
    git(root, "init", "-q", "-b", "main")
    (root / "a.txt").write_text("one\n")
    (root / "b.txt").write_text("two\n")
    git(root, "add", ".")
    git(root, "commit", "-qm", "first")
    (root / "nested").mkdir()
    git(root / "nested", "init", "-q")
    (root / "nested/x").write_text("x\n")
    git(root / "nested", "add", ".")
    git(root / "nested", "commit", "-qm", "nested")
    return root


@both
@pytest.mark.parametrize(
    ("script", "where"),
    [
        ("echo two >> a.txt; git commit -qam second", ".git"),
        ("git commit -q --allow-empty -m x", ".git"),
        ("echo two >> a.txt; git stash -q", ".git"),
        ("git tag t", ".git"),
        ("git branch index", ".git"),
        ("echo new > n; git add n", ".git"),
        ("git config alias.x '!evil'", ".git"),
        ("echo evil > .git/hooks/pre-commit", ".git"),
        ("chmod 755 .git/description", ".git"),
        ("echo '*.x' >> .git/info/exclude", ".git"),
        ("echo x > .git/anything", ".git"),
        ("rm -r .git/hooks", ".git"),
        ("rm -r .git/info; mkdir .git/info; echo > .git/info/other", ".git"),
        ("rm -rf .git", ".git"),
        ("rm -rf .git; git init -q", ".git"),
        ("rm .git/HEAD; ln -s config .git/HEAD", ".git"),
        ("rm .git/config; mkfifo .git/config", ".git"),
        ("git init -q fresh", "fresh/.git"),
        ("git -C nested tag t", "nested/.git"),
        ("mv nested moved", "moved/.git"),
        ("mkdir -p d/.GIT; echo x > d/.GIT/index", "d/.GIT"),
        ("echo x > '.git '", ".git "),
        ("git tag t; git -C nested tag t; git init -q fresh", ".git, fresh/.git, nested/.git"),
        ("for i in 1 2 3 4 5 6 7; do mkdir $i; echo > $i/.git; done", "1/.git, 2/.git, 3/.git, 4/.git, 5/.git and 2 more"),
    ],
)
def test_work_in_a_git_directory_is_told(repository: Path, tmp_path: Path, want_copy: bool, script: str, where: str) -> None:
    changes, _ = session(repository, tmp_path / "state", shell(script), want_copy=want_copy)
    assert ", ".join(told(changes)) == where
    assert not any(is_git_name(part) for entry in changes.entries for part in entry.path.split(b"/"))


@both
@pytest.mark.parametrize(
    "script",
    [
        "true",
        "touch a.txt; git status; git diff; git log -p; git show; git describe --always; git blame a.txt; git stash list",
        "git gc --auto; git branch; git tag; git config --list; git worktree list; git fsck; git grep one; git rev-parse HEAD",
        "echo x >> a.txt; git status; git diff --stat; git checkout -q -- a.txt; git -C nested status",
        "rm .git/index; git status",
        "touch .git/config .git/HEAD .git/hooks/*; git fetch -q /nonexistent || true",
        "cp -p .git/config c; cat c > .git/config; rm c",
        "chmod -R u+w .git; chmod -R go-w .git",
        "mkdir .git/empty; mkfifo .git/pipe; touch .git/index.lock",
        "mkdir -p new/.git",
        "rm -f b.txt; ln -s a.txt b.txt; mkdir 'git' .github; echo x > .gitignore; echo y > .github/ci",
    ],
)
def test_looking_is_not_told(repository: Path, tmp_path: Path, want_copy: bool, script: str) -> None:
    changes, _ = session(repository, tmp_path / "state", shell(script), want_copy=want_copy)
    assert told(changes) == []


@both
@pytest.mark.parametrize(
    ("script", "is_work"), [("git status", False), ("git commit -q --allow-empty -m x", True), ("git tag t", True)]
)
def test_a_linked_worktrees_directory(repository: Path, tmp_path: Path, want_copy: bool, script: str, is_work: bool) -> None:
    tree = tmp_path / "wt"
    git(repository, "worktree", "add", "-q", str(tree), "-b", "side")
    # At /gitdir in a sandbox; here the copies stand elsewhere, so the pointers are followed by hand
    place = tmp_path / "state/scratch/git" if want_copy else "/mnt/gitdir"
    script = f"export GIT_DIR={place}/worktrees/wt GIT_WORK_TREE=.; touch a.txt; {script}"
    changes, _ = session(tree, tmp_path / "state", shell(script), want_copy=want_copy)
    assert told(changes) == ([str(repository / ".git")] if is_work else [])


@both
@pytest.mark.parametrize(("script", "where"), [
    ("git status", []), ("git -C lib status", []), ("git -C lib tag t", [".git"]), ("echo x > lib/.git", ["lib/.git"]),
])
def test_a_submodules_directory(
    repository: Path, tmp_path: Path, want_copy: bool, script: str, where: list[str]
) -> None:
    git(repository, "submodule", "-q", "add", str(repository / "nested"), "lib")
    changes, _ = session(repository, tmp_path / "state", shell(f"touch lib/x; {script}"), want_copy=want_copy)
    assert told(changes) == where


@both
def test_a_directory_of_git_by_another_name(repository: Path, tmp_path: Path, want_copy: bool) -> None:
    (repository / ".git").rename(repository / ".bare")
    (repository / ".git").write_text("gitdir: .bare\n")
    inside = "export GIT_DIR=.bare GIT_WORK_TREE=."  # the pointer names the place in a sandbox
    looked, _ = session(repository, tmp_path / "one", shell(f"{inside}; touch a.txt; git status"), want_copy=want_copy)
    worked, _ = session(repository, tmp_path / "two", shell(f"{inside}; git tag t"), want_copy=want_copy)
    assert (told(looked), told(worked)) == ([], [".bare"])


@both
def test_a_hostile_git_directory(repository: Path, tmp_path: Path, want_copy: bool) -> None:
    script = """mkdir -p .git/$(printf 'd/%.0s' $(seq 1500)); truncate -s 1T .git/index; chmod 000 .git/hooks .git/info
        mkdir -p y/.git; truncate -s 1T y/.git/f; chmod 000 y/.git/f y/.git; chmod 000 nested/.git/HEAD"""
    changes, _ = session(repository, tmp_path / "state", shell(script), want_copy=want_copy)
    assert told(changes) == ["y/.git"]


@pytest.mark.needs("userns", "bash")
def test_the_person_is_told_at_the_end_and_before_applying(repo: Path, home: Path) -> None:
    turns: list[dict[str, Any]] = [{"calls": [
        call("Write", path=".git/hooks/pre-commit", content="evil"), call("Write", path="new", content="x\n"),
        call("Bash", command="git add new && git commit -qm mine"),
    ]}, {"text": "Committed."}]
    configure(home, turns)
    ended = lemni("-p", "go", cwd=repo, home=home)
    said = "changed git's own files in .git: nothing of them is taken"
    assert ended.code == 0, ended.err
    assert ended.err.count(said) == 1
    assert said in lemni("diff", cwd=repo, home=home).err
    assert said in json.loads(lemni("diff", "--json", cwd=repo, home=home).out)["notices"][0]
    assert said in lemni("apply", cwd=repo, home=home, stdin=b"y\n").err
    assert (repo / "new").read_text() == "x\n"
    assert not (repo / ".git/hooks/pre-commit").exists()


@pytest.mark.needs("userns", "bash")
def test_work_in_a_git_directory_alone_is_told_later_too(repo: Path, home: Path) -> None:
    configure(home, [{"calls": [call("Bash", command="git tag t")]}, {"text": "Tagged."}])
    assert lemni("-p", "go", cwd=repo, home=home).code == 0
    (listed,) = json.loads(lemni("sessions", "--json", cwd=repo, home=home).out)
    for word in ("diff", "apply"):
        assert "changed git's own files in .git" in lemni(word, listed["id"], cwd=repo, home=home).err


@given(st.lists(st.sampled_from(["refs", "logs", "objects", "hooks", "info", "config", "HEAD", "heads", "a"]), min_size=1))
@example(["refs", "heads", "index"])
@example(["hooks", "index"])
@example(["modules", "x", "refs", "heads", "index"])
def test_what_holds_work_is_always_told(parts: list[str]) -> None:
    assert is_told("/".join(parts).encode())


@pytest.mark.parametrize("path", [b"index", b"index.lock", b"sharedindex.0a", b"modules/a/b/index", b"worktrees/w/index"])
def test_an_index_is_not(path: bytes) -> None:
    assert not is_told(path)
