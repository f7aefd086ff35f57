"""What git must read differently inside a sandbox, where the project stands at /workspace and nothing else of the host is.

A linked worktree, a submodule opened by itself and a separate git directory keep git's directory outside the project's root. It
becomes a second working copy at /gitdir, disposable like the first (B12), and two pointers are rewritten in the copies: the
project's ``.git`` file, and what points back at the working tree; those of repositories below it alike (``gitnested``). See
gitrepository-layout(5).

Wherever git's directory is, its configuration reads without the developer's identity and credentials (``gitshown``).
"""
from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, field

from supervisor.workspace.gitnested import Moved, look_below, with_worktree
from supervisor.workspace.gitshown import Shown
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


def git_copies(project: Project, nested: tuple[bytes, ...] = ()) -> GitCopies:
    """Decide what git needs in this project's sandbox. ``nested``: each ``.git`` below the root's own. Raises OSError."""
    git = project.git
    with contextlib.ExitStack() as stack:
        below = Shown(_opened(project.root, stack))
        if git is None:
            look_below(project.root, WORKDIR, nested, None, below)
            closed = _closed(os.path.join(project.root, b".git"), os.R_OK | os.X_OK)
            return GitCopies(tuple(below.contents.items()), notices=closed + _told(below))
        own = Shown(_opened(git.common, stack))
        own.look()
        inside, kept = _place(project, git)
        away = git.kind is not GitKind.DIRECTORY
        look_below(project.root, WORKDIR, nested, Moved(git.common, inside, away, own), below)
        notices = _notices(git) + _told(own, below)
        seeds = tuple(below.contents.items())
        if git.kind is GitKind.WORKTREE:
            name = b"worktrees/" + git.name
            seeds += ((b".git", b"gitdir: " + inside + b"/" + name + b"\n"),)
            own.contents[name + b"/gitdir"] = WORKDIR + b"/.git\n"
        elif away:
            seeds += ((b".git", b"gitdir: " + inside + b"\n"),)
            own.contents.update([*with_worktree(own, b"", WORKDIR)])
    if not kept:
        return GitCopies(seeds, git.common, Seeds(contents=tuple(own.contents.items())), notices=notices)
    seeds += tuple((os.path.join(kept, name), text) for name, text in own.contents.items())
    return GitCopies(seeds, kept=() if kept == b".git" else (kept,), notices=notices)


def _opened(directory: bytes, stack: contextlib.ExitStack) -> int:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    stack.callback(os.close, fd)
    return fd


def _told(*shown: Shown) -> tuple[str, ...]:
    """The notices about what was looked at."""
    hides = ("git's configuration of this repository is shown without its identity and credentials",)
    rest = ("there are more or larger configurations of git's than are looked at: those are shown as they are",)
    return (hides if any(one.hides for one in shown) else ()) + (() if all(one.whole for one in shown) else rest)


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
