"""What git must read differently inside a sandbox, where the project stands at /workspace and nothing else of the host is.

A linked worktree, a submodule opened by itself and a separate git directory keep git's directory outside the project's root. It
becomes a second working copy at /gitdir, disposable like the first (B12), and two pointers are rewritten in the copies: the
project's ``.git`` file, and what points back at the working tree. See gitrepository-layout(5).
"""
from __future__ import annotations

import os
from dataclasses import dataclass, field

from supervisor.workspace.overlay import Seeds
from supervisor.workspace.project import GitKind, GitLayout, Project

WORKDIR = b"/workspace"
GITDIR = b"/gitdir"


@dataclass(frozen=True, slots=True)
class GitCopies:
    """``lower``: the host directory that must be copied to /gitdir, or None. ``kept``: paths of the project that belong to git
    without being named ``.git``; they never enter the diff."""

    project_seeds: tuple[tuple[bytes, bytes], ...] = ()
    lower: bytes | None = None
    seeds: Seeds = field(default_factory=Seeds)
    kept: tuple[bytes, ...] = ()
    notices: tuple[str, ...] = ()


def git_copies(project: Project) -> GitCopies:
    """Decide what git needs in this project's sandbox."""
    git = project.git
    if git is None:
        return GitCopies()
    notices = _notices(git)
    if git.kind is GitKind.DIRECTORY:
        return GitCopies(notices=notices)
    if git.common.startswith(project.root + b"/"):  # e.g. .git → .bare: it is in the first copy already
        relative = os.path.relpath(git.common, project.root)
        inside, kept = WORKDIR + b"/" + relative, relative
    else:
        inside, kept = GITDIR, b""
    if git.kind is GitKind.WORKTREE:
        own = b"worktrees/" + git.name
        pointer = b"gitdir: " + inside + b"/" + own + b"\n"
        contents: tuple[tuple[bytes, bytes], ...] = ((own + b"/gitdir", WORKDIR + b"/.git\n"),)
    else:
        pointer = b"gitdir: " + inside + b"\n"
        contents = tuple(_with_worktree(git.gitdir, name) for name in (b"config", b"config.worktree"))
        contents = tuple((name, text) for name, text in contents if text)
    project_seeds: tuple[tuple[bytes, bytes], ...] = ((b".git", pointer),)
    if kept:
        project_seeds += tuple((kept + b"/" + name, text) for name, text in contents)
        return GitCopies(project_seeds, kept=(kept,), notices=notices)
    return GitCopies(project_seeds, git.common, Seeds(contents=contents), notices=notices)


def _with_worktree(gitdir: bytes, name: bytes) -> tuple[bytes, bytes]:
    """A configuration file with the working tree's place inside added at its end, where the last word counts."""
    path = os.path.join(gitdir, name)
    if not os.path.isfile(path):
        return name, b""
    with open(path, "rb") as file:
        text = file.read()
    return name, text.rstrip(b"\n") + b"\n[core]\n\tworktree = " + WORKDIR + b"\n"


def _notices(git: GitLayout) -> tuple[str, ...]:
    alternates = os.path.join(git.common, b"objects/info/alternates")
    if os.path.isfile(alternates):
        return ("this repository borrows objects from another one, which the sandbox does not see: git may fail inside",)
    return ()
