"""What git must read differently inside a sandbox, where the project stands at /workspace and nothing else of the host is.

A linked worktree, a submodule opened by itself and a separate git directory keep git's directory outside the project's root. It
becomes a second working copy at /gitdir, disposable like the first (B12), and two pointers are rewritten in the copies: the
project's ``.git`` file, and what points back at the working tree. See gitrepository-layout(5).

Wherever git's directory is, its configuration reads without the developer's identity and credentials (``gitconfig``).
"""
from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, field

from supervisor.workspace.gitconfig import neutral
from supervisor.workspace.overlay import Seeds
from supervisor.workspace.project import GitKind, GitLayout, Project

WORKDIR = b"/workspace"
GITDIR = b"/gitdir"
_CONFIGS = 1000  # submodules and worktrees whose configuration is looked at
_CONFIG_NAMES = (b"config", b"config.worktree")
_CONFIG_BYTES = 4 << 20


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
        closed = _closed(os.path.join(project.root, b".git"), os.R_OK | os.X_OK)
        return GitCopies(notices=closed)
    directories = _directories(git)
    neutral_configs = _neutral_configs(git, directories[:_CONFIGS])
    notices = _notices(git)
    if len(directories) > _CONFIGS:
        notices += (f"git's configuration of more than {_CONFIGS} submodules and worktrees is shown as it is",)
    if neutral_configs:
        notices += ("git's configuration of this repository is shown without its identity and credentials",)
    if git.kind is GitKind.DIRECTORY:
        return GitCopies(tuple((b".git/" + name, text) for name, text in neutral_configs.items()), notices=notices)
    if git.common.startswith(project.root + b"/"):  # e.g. .git → .bare: it is in the first copy already
        relative = os.path.relpath(git.common, project.root)
        inside, kept = WORKDIR + b"/" + relative, relative
    else:
        inside, kept = GITDIR, b""
    if git.kind is GitKind.WORKTREE:
        own = b"worktrees/" + git.name
        pointer = b"gitdir: " + inside + b"/" + own + b"\n"
        contents = {**neutral_configs, own + b"/gitdir": WORKDIR + b"/.git\n"}
    else:
        pointer = b"gitdir: " + inside + b"\n"
        placed = {name: _with_worktree(git.gitdir, name, neutral_configs) for name in (b"config", b"config.worktree")}
        contents = {**neutral_configs, **{name: text for name, text in placed.items() if text}}
    project_seeds: tuple[tuple[bytes, bytes], ...] = ((b".git", pointer),)
    if kept:
        project_seeds += tuple((kept + b"/" + name, text) for name, text in contents.items())
        return GitCopies(project_seeds, kept=(kept,), notices=notices)
    return GitCopies(project_seeds, git.common, Seeds(contents=tuple(contents.items())), notices=notices)


def _with_worktree(gitdir: bytes, name: bytes, neutral_configs: dict[bytes, bytes]) -> bytes:
    """A configuration file with the working tree's place inside added at its end, where the last word counts."""
    text = neutral_configs.get(name) or _read(os.path.join(gitdir, name))
    return text.rstrip(b"\n") + b"\n[core]\n\tworktree = " + WORKDIR + b"\n" if text else b""


def _directories(git: GitLayout) -> list[bytes]:
    """Where a configuration may lie, below git's directory: the project's own first, and at most a few more than count."""
    found = [b"", os.path.relpath(git.gitdir, git.common)]
    with contextlib.suppress(OSError):  # there are no linked worktrees
        found += [os.path.join(b"worktrees", name) for name in os.listdir(os.path.join(git.common, b"worktrees"))]
    for directory, below, names in os.walk(os.path.join(git.common, b"modules")):  # submodules, by their names
        if b"config" in names and b"HEAD" in names:
            found.append(os.path.relpath(directory, git.common))
            below[:] = [b"modules"] if b"modules" in below else []
        if len(found) > _CONFIGS:
            break
    return found


def _neutral_configs(git: GitLayout, directories: list[bytes]) -> dict[bytes, bytes]:
    """The configuration files that hold an identity or a credential, as they read without."""
    names = [os.path.normpath(os.path.join(directory, name)) for directory in directories for name in _CONFIG_NAMES]
    texts = ((name, _read(os.path.join(git.common, name))) for name in names)
    return {name: shown for name, text in texts if (shown := neutral(text)) != text}


def _read(path: bytes) -> bytes:
    """A small file's content; nothing where it cannot be read, which git inside cannot either."""
    try:
        with open(path, "rb") as file:
            return file.read(_CONFIG_BYTES)
    except OSError:
        return b""


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
