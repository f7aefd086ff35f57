"""What git must read differently inside a sandbox, where the project stands at /workspace and nothing else of the host is.

A linked worktree, a submodule opened by itself and a separate git directory keep git's directory outside the project's root. It
becomes a second working copy at /gitdir, disposable like the first (B12), and two pointers are rewritten in the copies: the
project's ``.git`` file, and what points back at the working tree; those of repositories below it alike (``gitnested``). See
gitrepository-layout(5).

Wherever git's directory is, its configuration reads without the developer's identity and credentials (``gitconfig``).
"""
from __future__ import annotations

import os
from dataclasses import dataclass, field

from supervisor.workspace.gitnested import (
    CONFIG_NAMES,
    Moved,
    config_directories,
    neutral_configs,
    read,
    with_worktree,
)
from supervisor.workspace.gitnested import nested as look_below
from supervisor.workspace.overlay import Seeds
from supervisor.workspace.project import GitKind, GitLayout, Project

WORKDIR = b"/workspace"
GITDIR = b"/gitdir"
_CONFIGS = 1000  # submodules and worktrees whose configuration is looked at
_HIDES = ("git's configuration of this repository is shown without its identity and credentials",)


@dataclass(frozen=True, slots=True)
class GitCopies:
    """``lower``: the host directory that must be copied to /gitdir, or None. ``kept``: paths of the project that belong to git
    without being named ``.git``; they never enter the diff."""

    project_seeds: tuple[tuple[bytes, bytes], ...] = ()
    lower: bytes | None = None
    seeds: Seeds = field(default_factory=Seeds)
    kept: tuple[bytes, ...] = ()
    notices: tuple[str, ...] = ()


def git_copies(project: Project, nested: tuple[bytes, ...] = ()) -> GitCopies:
    """Decide what git needs in this project's sandbox. ``nested``: as ``Found.gits``."""
    git = project.git
    if git is None:
        closed = _closed(os.path.join(project.root, b".git"), os.R_OK | os.X_OK)
        alone = look_below(project.root, WORKDIR, nested, None, {})
        return GitCopies(tuple(alone.project.items()), notices=closed + (_HIDES if alone.neutral else ()))
    directories = config_directories(git.common, _CONFIGS)
    contents = dict(neutral_configs(git.common, directories[:_CONFIGS]))
    hides = bool(contents)
    notices = _notices(git)
    if len(directories) > _CONFIGS:
        notices += (f"git's configuration of more than {_CONFIGS} submodules and worktrees is shown as it is",)
    inside, kept = _place(project, git)
    away = git.kind is not GitKind.DIRECTORY
    below = look_below(project.root, WORKDIR, nested, Moved(git.common, inside, away), contents)
    contents |= below.git
    notices += _HIDES if hides or below.neutral else ()
    if not away:
        own = tuple((os.path.join(kept, name), text) for name, text in contents.items())
        return GitCopies((*own, *below.project.items()), kept=() if kept == b".git" else (kept,), notices=notices)
    if git.kind is GitKind.WORKTREE:
        name = b"worktrees/" + git.name
        pointer = inside + b"/" + name
        contents[name + b"/gitdir"] = WORKDIR + b"/.git\n"
    else:
        pointer = inside
        for name in CONFIG_NAMES:
            if text := with_worktree(contents.get(name) or read(os.path.join(git.gitdir, name)), WORKDIR):
                contents[name] = text
    seeds = ((b".git", b"gitdir: " + pointer + b"\n"), *below.project.items())
    if kept:
        seeds += tuple((os.path.join(kept, name), text) for name, text in contents.items())
        return GitCopies(seeds, kept=(kept,), notices=notices)
    return GitCopies(seeds, git.common, Seeds(contents=tuple(contents.items())), notices=notices)


def _place(project: Project, git: GitLayout) -> tuple[bytes, bytes]:
    """Git's directory inside, and relative to the project where it is in the first copy already (e.g. .git → .bare)."""
    if git.common.startswith(project.root + b"/"):
        relative = os.path.relpath(git.common, project.root)
        return WORKDIR + b"/" + relative, relative
    return GITDIR, b""


def _notices(git: GitLayout) -> tuple[str, ...]:
    closed = _closed(os.path.join(git.gitdir, b"HEAD"), os.R_OK)
    alternates = os.path.join(git.common, b"objects/info/alternates")
    if os.path.isfile(alternates):
        borrows = "this repository borrows objects from another one, which the sandbox does not see: git may fail inside"
        return (*closed, borrows)
    return closed


def _closed(path: bytes, mode: int) -> tuple[str, ...]:
    """The notice of a file or directory of git's that is there and cannot be read by us, nor by the session."""
    if not os.path.lexists(path) or os.access(path, mode, effective_ids=True):
        return ()
    return (f"{os.fsdecode(path)} cannot be read: git does not work in the session",)
