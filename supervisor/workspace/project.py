"""Which project a directory belongs to (FP-03, FP-04), found by reading files and never by running git.

Git executes what a repository's configuration names, even for ``git status`` (B14). What is needed here is little: where the
root is, and where git keeps its directory when ``.git`` is a file (linked worktree, submodule, separate git directory).
The formats are those of gitrepository-layout(5) and git-worktree(1).
"""
from __future__ import annotations

import enum
import hashlib
import os
import stat
from dataclasses import dataclass

from supervisor.errors import ProjectError

_POINTER_LIMIT = 8192  # bytes of a .git, commondir or HEAD file: a path and a word; what is longer is not one
_CONFIG_LIMIT = 1 << 20


class GitKind(enum.Enum):
    """How git keeps its directory for this root."""

    DIRECTORY = "directory"  # ROOT/.git is the directory
    WORKTREE = "worktree"  # ROOT/.git is a file: a linked worktree of a repository elsewhere
    SUBMODULE = "submodule"  # ROOT/.git is a file: the directory is kept elsewhere and belongs to this root alone


@dataclass(frozen=True, slots=True)
class GitLayout:
    """Absolute host paths. ``gitdir`` is this root's own directory, ``common`` the one shared by all worktrees.

    ``name`` is a linked worktree's name beneath ``common/worktrees``, otherwise empty.
    """

    kind: GitKind
    gitdir: bytes
    common: bytes
    name: bytes = b""


@dataclass(frozen=True, slots=True)
class Project:
    """A directory that a session may be opened over. ``start`` is where the person stood, relative to ``root``."""

    root: bytes
    start: bytes
    git: GitLayout | None
    owner_uid: int
    owner_gid: int

    @property
    def id(self) -> str:
        """A stable name of the root, for finding this repository's sessions again: 32 hexadecimal digits."""
        return hashlib.sha256(self.root).hexdigest()[:32]


def find_project(start: bytes) -> Project:
    """The project of a directory: its git root, or itself where there is none.

    ProjectError codes: ``bare_repository``, ``inside_git_directory``, ``git_pointer_broken``, ``git_pointer_foreign``,
    ``project_unreadable``, ``project_refused`` (``/`` itself).
    """
    try:
        here = os.path.realpath(start, strict=True)
        device = os.stat(here).st_dev
        os.close(os.open(here, os.O_RDONLY | os.O_DIRECTORY))
    except OSError as error:
        raise ProjectError(
            "opening the project", on=os.fsdecode(start), errno=error.errno, code="project_unreadable"
        ) from error
    above = here
    while True:
        layout = _layout(above)
        if layout is not None:
            return _project(above, here, layout)
        _refuse_git_directory(above)
        parent = os.path.dirname(above)
        # Like git, do not look beyond the file system where the person stands
        if parent == above or os.stat(parent).st_dev != device:
            return _project(here, here, None)
        above = parent


def _project(root: bytes, here: bytes, layout: GitLayout | None) -> Project:
    if root == b"/":
        raise ProjectError(
            "opening the project", on="/", why="the whole file system is no project", remedy="start in a directory of yours"
        )
    status = os.stat(root)
    return Project(root, os.path.relpath(here, root), layout, status.st_uid, status.st_gid)


def _layout(root: bytes) -> GitLayout | None:
    """What ``root/.git`` says, or None where there is no (valid) one: git goes on upwards then, and so do we."""
    dotgit = os.path.join(root, b".git")
    try:
        mode = os.stat(dotgit).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise ProjectError("reading the git directory", on=os.fsdecode(dotgit), errno=error.errno) from error
    if stat.S_ISDIR(mode):
        if not _is_git_directory(dotgit):
            return None
        if _is_bare(dotgit):
            raise _bare(dotgit)
        real = os.path.realpath(dotgit)
        inside = real.startswith(root + b"/")  # .git may be a link to a directory elsewhere
        _refuse_foreign(root, real)
        return GitLayout(GitKind.DIRECTORY if inside else GitKind.SUBMODULE, real, real)
    if not stat.S_ISREG(mode):
        return None
    pointer = _line(dotgit)
    target = pointer.removeprefix(b"gitdir:").strip()
    if not pointer.startswith(b"gitdir:") or not target:
        raise _broken(dotgit, "it is a file that does not begin with 'gitdir:'")
    gitdir = os.path.realpath(os.path.join(root, target))
    if not _is_git_directory(gitdir):
        raise _broken(dotgit, f"it names {os.fsdecode(gitdir)}, which is no git directory")
    common_file = os.path.join(gitdir, b"commondir")
    if not os.path.isfile(common_file):
        if _is_bare(gitdir):
            raise _bare(gitdir)
        _refuse_foreign(root, gitdir)
        return GitLayout(GitKind.SUBMODULE, gitdir, gitdir)
    common = os.path.realpath(os.path.join(gitdir, _line(common_file)))
    name = os.path.basename(gitdir)
    if not _is_git_directory(common) or gitdir != os.path.join(common, b"worktrees", name):
        raise _broken(dotgit, f"{os.fsdecode(gitdir)} is no worktree of {os.fsdecode(common)}")
    if os.path.realpath(os.path.join(gitdir, _line(os.path.join(gitdir, b"gitdir")))) != dotgit:
        raise _foreign(dotgit, gitdir, "run `git worktree repair` here if you moved this working tree")
    return GitLayout(GitKind.WORKTREE, gitdir, common, name)


def _is_git_directory(path: bytes) -> bool:
    """Git's own test: a HEAD, and objects and refs, here or in the common directory."""
    if not os.path.lexists(os.path.join(path, b"HEAD")):
        return False
    common_file = os.path.join(path, b"commondir")
    common = os.path.join(path, _line(common_file)) if os.path.isfile(common_file) else path
    return os.path.isdir(os.path.join(common, b"objects")) and os.path.isdir(os.path.join(common, b"refs"))


def _refuse_git_directory(path: bytes) -> None:
    """Standing in a bare repository, or in a git directory: there is no working tree to copy."""
    if not _is_git_directory(path):
        return
    if os.path.basename(path) == b".git" and not _is_bare(path):
        raise ProjectError(
            "opening the project",
            on=os.fsdecode(path),
            why="this is git's own directory, not a working tree",
            remedy=f"start in {os.fsdecode(os.path.dirname(path))}",
            code="inside_git_directory",
        )
    raise _bare(path)


def _refuse_foreign(root: bytes, gitdir: bytes) -> None:
    """Refuse a directory of another working tree: a project that somebody else packed must not show a session what that holds.

    A submodule's says whose it is (``core.worktree``); a separate one says nothing, and belongs to nobody else unless it is
    the ``.git`` of the directory above it.
    """
    if gitdir.startswith(root + b"/"):
        return
    named = _core(gitdir, b"worktree")
    if named is None and os.path.basename(gitdir) != b".git":
        return
    owner = os.path.realpath(os.path.join(gitdir, named or b".."))
    if owner != root:
        raise _foreign(os.path.join(root, b".git"), gitdir, f"start in {os.fsdecode(owner)}")


def _foreign(dotgit: bytes, gitdir: bytes, remedy: str) -> ProjectError:
    return ProjectError(
        "reading where git keeps its directory",
        on=os.fsdecode(dotgit),
        why=f"it names {os.fsdecode(gitdir)}, which belongs to another working tree",
        remedy=remedy,
        code="git_pointer_foreign",
    )


def _bare(path: bytes) -> ProjectError:
    return ProjectError(
        "opening the project",
        on=os.fsdecode(path),
        why="it is a bare repository, which has no working tree",
        remedy="make one with `git worktree add` or `git clone`, and start there",
        code="bare_repository",
    )


def _broken(path: bytes, why: str) -> ProjectError:
    return ProjectError("reading where git keeps its directory", on=os.fsdecode(path), why=why, code="git_pointer_broken")


def _read(path: bytes, limit: int) -> bytes:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
        with open(fd, "rb") as file:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise _broken(path, "it is not a regular file")
            return file.read(limit)
    except OSError as error:
        raise ProjectError("reading the git directory", on=os.fsdecode(path), errno=error.errno) from error


def _line(path: bytes) -> bytes:
    content = _read(path, _POINTER_LIMIT).rstrip(b"\r\n")
    if b"\n" in content or b"\0" in content:
        raise _broken(path, "it is not one line")
    return content


def _is_bare(gitdir: bytes) -> bool:
    return (_core(gitdir, b"bare") or b"").lower() in (b"true", b"yes", b"on", b"1")


def object_format(git: GitLayout | None) -> str:
    """The digest by which this repository names its objects; git's default where there is none."""
    named = None if git is None else _setting(git.common, b"extensions", b"objectformat")
    return "sha256" if named is not None and named.lower() == b"sha256" else "sha1"


def _core(gitdir: bytes, wanted: bytes) -> bytes | None:
    return _setting(gitdir, b"core", wanted)


def _setting(gitdir: bytes, within: bytes, wanted: bytes) -> bytes | None:
    """``WITHIN.WANTED`` of this directory's own configuration file; includes are not followed. A key without value is true."""
    path = os.path.join(gitdir, b"config")
    if not os.path.isfile(path):
        return None
    section, found = b"", None
    for raw in _read(path, _CONFIG_LIMIT).splitlines():
        line = raw.strip()
        if line.startswith(b"["):
            section, _, line = line[1:].partition(b"]")
            line = line.strip()
        key, equals, value = line.partition(b"=")
        if section.strip().lower() == within and key.strip().lower() == wanted:
            found = value.split(b"#")[0].split(b";")[0].strip().strip(b'"') if equals else b"true"
    return found
