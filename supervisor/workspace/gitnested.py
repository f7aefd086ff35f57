"""Repositories below the project's root, as they read in a sandbox: submodules, linked worktrees, clones that nobody absorbed.

Two things of theirs lead out of it. A pointer (the ``.git`` file of a working tree) names a directory of the host, by an
absolute path or by one that begins beside the project; and what it names points back at the working tree. Both are rewritten
where git's directory is in the sandbox at all. And a repository that is a directory has a configuration of its own, which reads
as the project's does (``gitconfig``). See gitrepository-layout(5), gitsubmodules(7).
"""
from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from supervisor.workspace.gitconfig import neutral

CONFIG_NAMES = (b"config", b"config.worktree")
_CONFIG_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class Nested:
    """What stands in place of the developer's files, by paths below the root and below git's directory.

    ``neutral``: something was left out of a configuration.
    """

    project: dict[bytes, bytes] = field(default_factory=dict)
    git: dict[bytes, bytes] = field(default_factory=dict)
    neutral: bool = False


@dataclass(frozen=True, slots=True)
class Moved:
    """Git's directory on the host, and its path inside. ``away``: seen from the project, it lies elsewhere there."""

    common: bytes
    inside: bytes
    away: bool


def nested(root: bytes, workdir: bytes, found: tuple[bytes, ...], git: Moved | None, shown: Mapping[bytes, bytes]) -> Nested:
    """Look at each ``.git``, or git directory of another name, below ``root`` (relative paths).

    ``workdir`` is the root's path inside; ``shown`` are configurations below git's directory that read otherwise already.
    """
    project: dict[bytes, bytes] = {}
    placed: dict[bytes, bytes] = {}
    hides = False
    for path in found:
        here = os.path.join(root, path)
        if os.path.isdir(here):
            own = dict(neutral_configs(here, config_directories(here)))
            project.update((os.path.join(path, name), text) for name, text in own.items())
            hides = hides or bool(own)
        elif git is not None and (relative := _pointed(here, git)) is not None:
            tree = os.path.join(workdir, os.path.dirname(path))
            project[path] = b"gitdir: " + os.path.join(git.inside, relative) + b"\n"
            placed.update(_pointing_back(git.common, relative, tree, shown))
        elif (beneath := _beneath(here, root)) is not None:
            project[path] = b"gitdir: " + os.path.join(workdir, beneath) + b"\n"
            back = os.path.join(beneath, b"gitdir")
            if os.path.isfile(os.path.join(root, back)):  # of a linked worktree
                project[back] = os.path.join(workdir, path) + b"\n"
    return Nested(project, placed, hides)


def _target(pointer: bytes) -> tuple[bytes, bytes]:
    """What a ``.git`` file says, and where that is; nothing, twice, where it is none."""
    line = read(pointer).partition(b"\n")[0]
    if not line.startswith(b"gitdir:"):
        return b"", b""
    said = line.removeprefix(b"gitdir:").strip()
    return said, os.path.realpath(os.path.join(os.path.dirname(pointer), said))


def _pointed(pointer: bytes, git: Moved) -> bytes | None:
    """Where below git's directory a ``.git`` file leads, when it leads there and not by a way that holds inside as well."""
    said, real = _target(pointer)
    if not real.startswith(git.common + b"/") or not (git.away or os.path.isabs(said)):
        return None
    return os.path.relpath(real, git.common)


def _beneath(pointer: bytes, root: bytes) -> bytes | None:
    """Where below the project a ``.git`` file leads by an absolute path."""
    said, real = _target(pointer)
    return os.path.relpath(real, root) if os.path.isabs(said) and real.startswith(root + b"/") else None


def _pointing_back(
    common: bytes, relative: bytes, tree: bytes, shown: Mapping[bytes, bytes]
) -> Iterator[tuple[bytes, bytes]]:
    back = os.path.join(relative, b"gitdir")
    if os.path.isfile(os.path.join(common, back)):  # of a linked worktree
        yield back, os.path.join(tree, b".git") + b"\n"
        return
    for name in CONFIG_NAMES:
        file = os.path.join(relative, name)
        if text := with_worktree(shown.get(file) or read(os.path.join(common, file)), tree):
            yield file, text


def with_worktree(text: bytes, tree: bytes) -> bytes:
    """A configuration with the working tree's place inside added at its end, where the last word counts; none stays none."""
    return text.rstrip(b"\n") + b"\n[core]\n\tworktree = " + tree + b"\n" if text else b""


def config_directories(common: bytes, most: int = 1000) -> list[bytes]:
    """Git's directory itself (b""), and below it those of its linked worktrees and submodules, and of theirs; relative.

    ``most`` of them, and perhaps one more: then there are others.
    """
    found: list[bytes] = []
    stack = [b""]
    while stack and len(found) <= most:
        here = stack.pop()
        found.append(here)
        with contextlib.suppress(OSError):  # there are no linked worktrees
            trees = os.path.join(here, b"worktrees")
            stack += [os.path.join(trees, name) for name in os.listdir(os.path.join(common, trees))]
        for directory, names, files in os.walk(os.path.join(common, here, b"modules")):  # names may have slashes
            if b"config" in files and b"HEAD" in files:
                stack.append(os.path.relpath(directory, common))
                names.clear()  # what lies below it is its own
    return found


def neutral_configs(common: bytes, directories: list[bytes]) -> Iterator[tuple[bytes, bytes]]:
    """The configuration files in these directories that hold an identity or a credential, as they read without."""
    for directory in directories:
        for name in CONFIG_NAMES:
            file = os.path.normpath(os.path.join(directory, name))
            text = read(os.path.join(common, file))
            if (left := neutral(text)) != text:
                yield file, left


def read(path: bytes) -> bytes:
    """A small file's content; nothing where it cannot be read, which git inside cannot either."""
    try:
        with open(path, "rb") as file:
            return file.read(_CONFIG_BYTES)
    except OSError:
        return b""
