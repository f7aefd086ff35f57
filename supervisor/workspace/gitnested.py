"""Repositories below the project's root, as they read in a sandbox: submodules, linked worktrees, clones that nobody absorbed.

Two things of theirs lead out of it. A pointer (the ``.git`` file of a working tree) names a directory of the host, by an
absolute path or by one that begins beside the project; and what it names points back at the working tree. Both are rewritten
where git's directory is in the sandbox at all. And a repository that is a directory has a configuration of its own, which reads
as the project's does (``gitshown``). See gitrepository-layout(5), gitsubmodules(7).

Nothing outside of what is named ``.git`` is shown otherwise: it would be a change of the session's in the diff. So a git
directory by another name, a bare clone for one, is files of the project like all others.
"""
from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

from supervisor.workspace.gitnames import in_git_directory
from supervisor.workspace.gitshown import CONFIG_NAMES, Shown


@dataclass(frozen=True, slots=True)
class Moved:
    """Git's directory on the host, and its path inside. ``away``: seen from the project, it lies elsewhere there.

    ``shown`` is what reads otherwise below it; what points back at a working tree is added.
    """

    common: bytes
    inside: bytes
    away: bool
    shown: Shown


def look_below(root: bytes, workdir: bytes, found: tuple[bytes, ...], git: Moved | None, project: Shown) -> None:
    """Look at each ``.git`` below ``root`` (relative paths), and put into ``project`` what reads otherwise there.

    ``workdir`` is the root's path inside.
    """
    for path in found:
        here = os.path.join(root, path)
        if os.path.isdir(here):
            project.look(path)
            continue
        said, real = _target(root, path, project)
        tree = os.path.join(workdir, os.path.dirname(path))
        if git is not None and real.startswith(git.common + b"/"):
            if git.away or os.path.isabs(said):
                relative = os.path.relpath(real, git.common)
                project.contents[path] = b"gitdir: " + os.path.join(git.inside, relative) + b"\n"
                git.shown.contents.update(_pointing_back(git.common, relative, tree, git.shown))
        elif os.path.isabs(said) and real.startswith(root + b"/"):
            relative = os.path.relpath(real, root)
            project.contents[path] = b"gitdir: " + os.path.join(workdir, relative) + b"\n"
            back = os.path.join(relative, b"gitdir")
            if os.path.isfile(os.path.join(root, back)) and in_git_directory(back):  # of a linked worktree
                project.contents[back] = os.path.join(tree, b".git") + b"\n"


def _target(root: bytes, pointer: bytes, project: Shown) -> tuple[bytes, bytes]:
    """What a ``.git`` file says, and where that is; nothing, twice, where it is none."""
    line = project.read(pointer).partition(b"\n")[0]
    if not line.startswith(b"gitdir:"):
        return b"", b""
    said = line.removeprefix(b"gitdir:").strip()
    return said, os.path.realpath(os.path.join(root, os.path.dirname(pointer), said))


def _pointing_back(common: bytes, relative: bytes, tree: bytes, shown: Shown) -> Iterator[tuple[bytes, bytes]]:
    back = os.path.join(relative, b"gitdir")
    if os.path.isfile(os.path.join(common, back)):  # of a linked worktree
        yield back, os.path.join(tree, b".git") + b"\n"
        return
    yield from with_worktree(shown, relative, tree)


def with_worktree(shown: Shown, directory: bytes, tree: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The configurations of a git directory with its working tree's place inside at their end, where the last word counts."""
    for name in CONFIG_NAMES:
        path = os.path.join(directory, name)
        if text := shown.read(path):
            yield path, text.rstrip(b"\n") + b"\n[core]\n\tworktree = " + tree + b"\n"
