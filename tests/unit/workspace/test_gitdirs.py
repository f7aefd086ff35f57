"""Which of git's configuration files are shown otherwise than they are, wherever git keeps them."""
from __future__ import annotations

import os
from pathlib import Path

import pytest

from supervisor.workspace import gitshown
from supervisor.workspace.gitdirs import git_copies
from supervisor.workspace.project import GitKind, GitLayout, Project, find_project

SECRET = "[user]\n\temail = ada@example.com\n[core]\n\tbare = false\n"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    for directory in ("", "worktrees/a", "modules/b", "modules/b/modules/c", "modules/deep/d"):
        path = tmp_path / ".git" / directory
        path.mkdir(parents=True, exist_ok=True)
        (path / "HEAD").write_text("ref: refs/heads/main\n")
        (path / "config").write_text(SECRET)
        (path / "config.worktree").write_text(SECRET)
    (tmp_path / ".git/modules/b/hooks").mkdir()
    (tmp_path / ".git/modules/b/hooks/config").write_text(SECRET)  # no configuration of a repository
    for directory in ("objects", "refs"):
        (tmp_path / ".git" / directory).mkdir()
    found = find_project(os.fsencode(tmp_path))
    assert isinstance(found.git, GitLayout)
    assert found.git.kind is GitKind.DIRECTORY
    return found


def test_every_configuration_is_shown_without_a_name(project: Project) -> None:
    copies = git_copies(project)
    shown = dict(copies.project_seeds)
    where = ("", "worktrees/a/", "modules/b/", "modules/b/modules/c/", "modules/deep/d/")
    assert shown.keys() == {os.fsencode(f".git/{w}{name}") for w in where for name in ("config", "config.worktree")}
    assert set(shown.values()) == {b"[core]\n\tbare = false\n"}
    assert any("without its identity" in notice for notice in copies.notices)


@pytest.mark.parametrize(("limit", "value", "kept"), [("_DIRECTORIES", 3, 6), ("_BYTES", 10, 0), ("_ROOM", 0, 2)])
def test_those_that_are_too_many_or_too_large_are_told(
    project: Project, monkeypatch: pytest.MonkeyPatch, limit: str, value: int, kept: int
) -> None:
    monkeypatch.setattr(gitshown, limit, value)
    copies = git_copies(project)
    assert len(copies.project_seeds) == kept
    assert any("those are shown as they are" in notice for notice in copies.notices)
