"""Repositories in repositories: git works in each of them inside, and none shows who the developer is."""
from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
import trio

from supervisor.session.live import open_session
from supervisor.session.request import Outcome
from support.sessions import Numbers, Recorder, request

pytestmark = [pytest.mark.kernel, pytest.mark.needs("userns", "seccomp", "bash", "git")]

EVERYWHERE = (
    "for d in $(find . -name .git | sort); do cd /workspace/${d%.git}; git status --short || echo BROKEN $d; "
    "git log --oneline -1 >/dev/null || echo BROKEN $d; git diff --stat || echo BROKEN $d; cd /workspace; done; "
    "git submodule status --recursive >/dev/null || echo BROKEN submodules; "
    "grep -rhoa 'NONCE' /workspace $(git rev-parse --git-common-dir) | sort | uniq -c"
)


def git(where: Path, *words: str) -> None:
    settings = ("safe.directory=*", "protocol.file.allow=always", "user.name=T", "user.email=t@x.invalid")
    options = [word for setting in settings for word in ("-c", setting)]
    subprocess.run(["git", *options, "-C", str(where), *words], check=True, capture_output=True)


def made(where: Path) -> Path:
    where.mkdir()
    git(where, "init", "-q", "-b", "main")
    (where / "file").write_text("x\n")
    git(where, "add", ".")
    git(where, "commit", "-qm", "first")
    return where


@pytest.fixture
def tree(public_tmp: Path) -> Path:
    """``top`` with a submodule ``sub`` that has a submodule ``deep``; beside them an embedded clone and an untracked one."""
    deep, sub, top = made(public_tmp / "deep-origin"), made(public_tmp / "sub-origin"), made(public_tmp / "top")
    git(sub, "submodule", "add", "-q", str(deep), "deep")
    git(sub, "commit", "-qm", "deep")
    git(top, "submodule", "add", "-q", str(sub), "sub")
    git(top, "commit", "-qm", "sub")
    git(top, "submodule", "update", "-q", "--init", "--recursive")
    git(top, "clone", "-q", str(deep), "embedded")
    git(top, "submodule", "add", "-q", str(deep), "embedded")
    git(top, "commit", "-qm", "embedded")
    git(top, "clone", "-q", str(deep), "untracked")
    for own in ("embedded", "untracked", "sub", "sub/deep", "."):
        git(top / own, "config", "user.email", "NONCE@example.com")
        git(top / own, "config", "remote.origin.url", "https://ada:NONCE@example.com/x")
    return top


async def inside(where: Path, home: Path, script: str = EVERYWHERE) -> tuple[list[str], list[str]]:
    """The lines that a command printed in a session there, and the session's notices."""
    new, seen = Numbers(), Recorder()
    async with open_session(request(where, home), seen, seen) as session:
        await session.begin("x")
        result = await session.submit(new.bash(script))
        closing = await session.finish(Outcome.DONE)
    assert closing.changes is not None
    assert closing.changes.entries == ()  # what a session is shown otherwise is no change of its own
    assert result.execution is not None
    assert result.execution.stderr == b""
    return result.execution.stdout.decode().splitlines(), [text for _, text in seen.notices]


@pytest.mark.parametrize("where", [".", "sub", "sub/deep", "embedded", "untracked"])
async def test_git_works_in_every_repository_of_a_tree(tree: Path, home: Path, where: str) -> None:
    lines, notices = await inside(tree / where, home)
    assert lines == (["?? untracked/"] if where == "." else [])
    assert any("without its identity and credentials" in text for text in notices)


async def test_git_works_in_a_linked_worktree_with_submodules(tree: Path, home: Path, public_tmp: Path) -> None:
    linked = public_tmp / "linked"
    git(tree, "worktree", "add", "-q", str(linked))
    git(linked, "submodule", "update", "-q", "--init", "sub")
    git(linked / "sub", "config", "user.email", "NONCE@example.com")
    lines, _ = await inside(linked, home)
    assert lines == []


async def test_a_pointer_by_an_absolute_path_is_followed(tree: Path, home: Path) -> None:
    (tree / "sub/.git").write_text(f"gitdir: {tree}/.git/modules/sub\n")
    git(tree, "worktree", "add", "-q", str(tree / "beside"))
    lines, _ = await inside(tree, home)
    assert lines == ["?? beside/", "?? untracked/"]


async def test_absolute_pointers_of_other_repositories_below_are_followed(tree: Path, home: Path, public_tmp: Path) -> None:
    git(tree / "untracked", "worktree", "add", "-q", str(tree / "its-worktree"))
    git(tree, "clone", "-q", "--separate-git-dir", str(tree / "odd"), str(public_tmp / "deep-origin"), "separate")
    lines, _ = await inside(tree, home)
    assert lines == ["?? its-worktree/", "?? odd/", "?? separate/", "?? untracked/"]


async def test_work_in_a_nested_repository_is_proposed_as_files(tree: Path, home: Path) -> None:
    new, seen = Numbers(), Recorder()
    async with open_session(request(tree / "sub", home), seen, seen) as session:
        await session.begin("x")
        await session.submit(new.bash("cd deep && echo y >> file && git commit -qam y && git status --short"))
        closing = await session.finish(Outcome.DONE)
    assert closing.changes is not None
    assert [entry.path for entry in closing.changes.proposed] == [b"deep/file"]
    assert (tree / "sub/deep/.git").read_text().startswith("gitdir: ../../")


async def test_nested_repositories_of_no_repository_are_looked_at_too(public_tmp: Path, home: Path) -> None:
    (public_tmp / "plain").mkdir()
    one = made(public_tmp / "plain/one")
    git(one, "config", "user.email", "NONCE@example.com")
    lines, notices = await inside(public_tmp / "plain", home, "git -C one status --short; grep -rhoa NONCE . | sort | uniq -c")
    assert lines == []
    assert any("without its identity" in text for text in notices)


async def test_every_git_directory_of_the_project_reads_without_a_name(public_tmp: Path, home: Path) -> None:
    top = made(public_tmp / "top")
    git(top, "submodule", "add", "-q", str(made(public_tmp / "origin")), "a/sub")
    git(top, "commit", "-qm", "sub")
    git(top, "worktree", "add", "-q", str(public_tmp / "linked"))
    git(public_tmp / "linked", "submodule", "update", "-q", "--init")
    nested = made(top / "nested")
    git(nested, "worktree", "add", "-q", str(public_tmp / "further"))
    (nested / ".git/worktrees/further/config.worktree").write_text("[user]\n\temail = NONCE@example.com\n")
    for where in (".git", ".git/modules/a/sub", ".git/worktrees/linked/modules/a/sub", "nested/.git"):
        config = top / where / "config"
        config.write_text(config.read_text() + "[http]\n\textraHeader = Authorization: NONCE\n")
    script = "grep -rhoa NONCE /workspace $(git rev-parse --git-common-dir) | sort | uniq -c"
    for start in (top, public_tmp / "linked"):
        lines, notices = await inside(start, home, script)
        assert lines == []
        assert any("without its identity and credentials" in text for text in notices)


async def test_a_git_directory_by_another_name_is_files_of_the_project(public_tmp: Path, home: Path) -> None:
    """They are in the diff as all others: what was shown otherwise would be proposed as a change."""
    top = made(public_tmp / "top")
    git(top, "clone", "-q", "--bare", str(top), "mirrors/one.git")
    (top / "mirrors/one.git/config").write_text("[core]\n\tbare = true\n[user]\n\tname = shown\n")
    git(top / "mirrors/one.git", "worktree", "add", "-q", str(top / "checked-out"))
    lines, _ = await inside(top, home, "grep -c shown mirrors/one.git/config; git status --short")
    assert lines == ["1", "?? checked-out/", "?? mirrors/"]


@pytest.mark.parametrize("trap", ["config", "config.worktree", "modules", "worktrees", "modules/x", "worktrees/x", "fifo"])
async def test_no_link_in_a_planted_git_directory_leads_out_and_no_fifo_holds_us(
    public_tmp: Path, home: Path, trap: str
) -> None:
    """A ``.git`` in an unpacked archive is somebody else's: what its links name is never read, nor shown."""
    outside = public_tmp / "outside"
    (outside / "x").mkdir(parents=True)
    for directory in (outside, outside / "x"):
        (directory / "HEAD").write_text("ref: refs/heads/main\n")
        (directory / "config").write_text("[user]\n\tname = x\n[other]\n\tkey = NONCE\n")
    top = made(public_tmp / "top")
    planted = made(top / "vendor") / ".git"
    if trap == "fifo":
        (planted / "config").unlink()
        os.mkfifo(planted / "config")
        os.mkfifo(planted / "config.worktree")
    else:
        place = planted / trap
        place.parent.mkdir(exist_ok=True)
        place.unlink(missing_ok=True)
        place.symlink_to(outside / "config" if "config" in trap else outside / "x" if "/" in trap else outside)
    with trio.fail_after(60):
        lines, _ = await inside(top, home, "find . -type f -exec grep -la NONCE {} +; ls vendor/.git >/dev/null")
    assert lines == []
