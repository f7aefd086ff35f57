"""A session's disposable working copy: opened over a project, collected once, taken away.

Opening costs one names-only walk for the exclusions and a handful of system calls, whatever the project's size. The scratch
directory is locked while the session lives; what a crash leaves is swept at the next start because nobody locks it any more.
"""
from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import trio

from supervisor.errors import WorkspaceError
from supervisor.workspace.apart import keep_apart
from supervisor.workspace.blobs import Blobs, make_private
from supervisor.workspace.changes import ChangeSet
from supervisor.workspace.collect import Collector, Rules, collect_overlay
from supervisor.workspace.copy import Baseline, CopyLayers, collect_copy, make_copy
from supervisor.workspace.exclusions import Exclusions
from supervisor.workspace.gitdirs import GITDIR, WORKDIR, GitCopies, git_copies
from supervisor.workspace.gitwork import Layers
from supervisor.workspace.ignore import IgnoreRules
from supervisor.workspace.overlay import OverlayLayers, Seeds, make_layers
from supervisor.workspace.project import Project
from supervisor.workspace.readable import FEW, Closed, find_unreadable
from supervisor.workspace.trees import remove_tree
from supervisor.workspace.walk import Found, find_excluded

COPY_BYTES: Final = 4 << 30  # the sandbox's own disk limit: a copy that does not fit is refused
COPY_INODES: Final = 500_000
_REMOVAL_SECONDS: Final = 30.0  # then the rest waits for the next sweep
_IGNORE_LIMIT: Final = 1 << 20


@dataclass(frozen=True)
class Workspace:
    """An open working copy. ``copies``: what to mount, the project first; ``masked``: what is hidden, relative paths, sorted.

    ``notices`` are for the person. ``walk_us`` is what the walks through the project took, in microseconds. ``looked``: whether
    what cannot be read is among the notices; where there are many files, ``look`` has yet to find it.
    """

    project: Project
    copies: tuple[OverlayLayers | CopyLayers, ...]
    masked: tuple[bytes, ...]
    notices: tuple[str, ...]
    walk_us: int
    looked: bool
    _reader: tuple[int, int] | None = field(repr=False)  # by whose ids files are read inside; None: the caller's
    _rules: Rules = field(repr=False)
    _git: GitCopies = field(repr=False)
    _baselines: tuple[Baseline | None, ...] = field(repr=False)  # of each copy; None: an overlay

    def look(self, going_on: Callable[[], bool]) -> str | None:
        """A notice of the files that the session cannot read, or None. Blocks on the disk, while ``going_on`` says yes.

        One that could not go on to the end says so.
        """
        try:
            closed = find_unreadable(self.project.root, frozenset(self.masked), self._reader, going_on=going_on)
        except OSError:
            return None  # the project went away meanwhile: whoever needs it says so
        return _unreadable(closed)

    def collect(self, blobs: Blobs) -> ChangeSet:
        """What changed, with the bytes kept in ``blobs``. Only when no process of the sandbox lives any more.

        Blocks on the disk. WorkspaceError when the copy cannot be read.
        """
        tops = [copy.upper if isinstance(copy, OverlayLayers) else copy.path for copy in self.copies]
        with contextlib.ExitStack() as stack:
            lower = stack.enter_context(_directory(self.project.root))
            uppers = [stack.enter_context(_directory(top)) for top in tops]
            collector = Collector(lower, self._rules, blobs)
            try:
                if self._git.lower is not None:
                    made = None if (baseline := self._baselines[1]) is None else baseline.made
                    git = stack.enter_context(_directory(self._git.lower))
                    collector.look_at_git_copy(Layers(uppers[1], git, dict(self._git.seeds.contents), made), self._git.lower)
                if self._baselines[0] is None:
                    return collect_overlay(uppers[0], collector)
                return collect_copy(uppers[0], self._baselines[0], collector)
            except OSError as error:
                named = os.fsdecode(error.filename) if error.filename else None
                raise WorkspaceError("comparing the working copy", on=named, errno=error.errno) from error


@contextlib.asynccontextmanager
async def open_workspace(
    project: Project,
    exclusions: Exclusions,
    scratch: Path,
    host_uid: int,
    host_gid: int,
    *,
    want_copy: bool = False,
    hidden: tuple[bytes, ...] = (),
) -> AsyncIterator[Workspace]:
    """Open a working copy in ``scratch``, a directory that is made here and removed at the end.

    ``host_uid``, ``host_gid``: what the sandbox's commands are on the host; others than the caller's own only for root.
    ``hidden``: absolute host paths that no session may see when they lie beneath the project (what is lemni's own).
    Mounts beneath the project make it a plain copy, as ``want_copy`` does. Raises WorkspaceError (``workspace_failed``,
    ``too_large_to_copy``).
    """
    with _scratch(scratch) as directory:
        try:
            opening = functools.partial(
                _open, project, exclusions, directory, (host_uid, host_gid), want_copy=want_copy, hidden=hidden
            )
            yield await trio.to_thread.run_sync(opening)
        finally:
            with trio.CancelScope(shield=True):
                await trio.to_thread.run_sync(_remove, scratch)


def sweep_scratch(scratch_root: Path) -> int:
    """Remove the scratch directories that no living session locks. Returns how many went."""
    swept = 0
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):  # what is wrong with it, the next opening says
        for entry in sorted(scratch_root.iterdir()):
            with contextlib.suppress(OSError):
                fd = os.open(entry, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
                try:
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    swept += _remove(entry)
                finally:
                    os.close(fd)
    return swept


@contextlib.contextmanager
def _scratch(path: Path) -> Iterator[bytes]:
    """Make and lock the scratch directory."""
    while True:
        try:
            make_private(path.parent)
            keep_apart(path.parent)
            path.mkdir(mode=0o700)
        except OSError as error:
            raise WorkspaceError("making the scratch directory", on=str(path), errno=error.errno) from error
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        fcntl.flock(fd, fcntl.LOCK_EX)
        # A sweep between mkdir and flock may have taken it for a leftover: then begin again
        with contextlib.suppress(FileNotFoundError):
            if os.stat(path).st_ino == os.fstat(fd).st_ino:
                break
        os.close(fd)
    try:
        yield os.fsencode(path)
    finally:
        os.close(fd)


def _remove(path: Path) -> bool:
    """Take a scratch directory away; what resists is left to the next sweep."""
    try:
        with _directory(os.fsencode(path.parent)) as parent:
            remove_tree(parent, os.fsencode(path.name), seconds=_REMOVAL_SECONDS)
    except OSError:  # TimeoutError is one
        return False
    return True


@contextlib.contextmanager
def _directory(path: bytes) -> Iterator[int]:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


def _open(
    project: Project,
    exclusions: Exclusions,
    scratch: bytes,
    ids: tuple[int, int],
    *,
    want_copy: bool,
    hidden: tuple[bytes, ...],
) -> Workspace:
    started = time.monotonic_ns()
    try:
        with _directory(project.root) as root:
            found = find_excluded(root, exclusions)
        git = git_copies(project, found.gits)
        kept = _beneath(project.root, hidden)
        if b"." in kept:
            raise WorkspaceError("opening the project", on=os.fsdecode(project.root), why="it is lemni's own state directory")
        notices = _notices(project, found, git)
        mounts = mounts_beneath(project.root)
        copying = want_copy or bool(mounts)  # what cannot be read is not copied, and the copy says so
        # A sandbox with ids of its own reads as the project's owner
        reader = None if ids[0] == os.geteuid() else (project.owner_uid, project.owner_gid)
        looked = copying
        if not copying and 0 < found.files <= FEW:  # 0: nothing was walked, or there is nothing to look at
            closed = find_unreadable(project.root, frozenset(found.masked), reader, most=FEW)
            looked = closed.whole
            if looked and (told := _unreadable(closed)) is not None:
                notices.append(told)
        if mounts and not want_copy:
            notices.append(f"mounted beneath the project: {_list(mounts)}; the working copy is a plain copy")
        walk_us = (time.monotonic_ns() - started) // 1000
        # Taken before the layers exist, from the clock that is never behind the one that stamps files
        opened_ns = time.time_ns()
        present = [path for path in kept if os.path.lexists(os.path.join(project.root, path))]
        seeds = Seeds((*found.masked, *present), git.project_seeds)
        baselines: list[Baseline | None] = []
        copies: list[OverlayLayers | CopyLayers] = []
        if copying:
            filled = make_copy(
                project.root, os.path.join(scratch, b"copy"), ids, seeds, limit=COPY_BYTES, inodes=COPY_INODES
            )
            notices += filled.notices
            baselines.append(filled)
            copies.append(CopyLayers(os.path.join(scratch, b"copy"), WORKDIR))
        else:
            copies.append(make_layers(project.root, scratch, b"workspace", WORKDIR, ids, seeds))
            baselines.append(None)
        if git.lower is not None and (want_copy or mounts_beneath(git.lower)):
            made = make_copy(
                git.lower, os.path.join(scratch, b"git"), ids, git.seeds, limit=COPY_BYTES, inodes=COPY_INODES
            )
            notices += made.notices
            baselines.append(made)
            copies.append(CopyLayers(os.path.join(scratch, b"git"), GITDIR))
        elif git.lower is not None:
            copies.append(make_layers(git.lower, scratch, b"gitdir", GITDIR, ids, git.seeds))
            baselines.append(None)
    except OSError as error:
        raise WorkspaceError(
            "making the working copy", on=os.fsdecode(error.filename or project.root), errno=error.errno
        ) from error
    rules = Rules(
        opened_ns, exclusions, frozenset(found.masked), frozenset(kept), _ignore_rules(project), frozenset(git.kept),
        dict(git.project_seeds),
    )
    return Workspace(
        project, tuple(copies), found.masked, tuple(notices), walk_us, looked, reader, rules, git, tuple(baselines)
    )


def mounts_beneath(root: bytes) -> list[bytes]:
    """Mount points strictly beneath a directory, from mountinfo (proc_pid_mountinfo(5))."""
    with open("/proc/self/mountinfo", "rb") as file:
        points = {line.split(b" ", 5)[4] for line in file}
    plain = (point.decode("unicode_escape").encode("latin-1") if b"\\" in point else point for point in points)
    return sorted(point for point in plain if point.startswith(root.rstrip(b"/") + b"/"))


def _beneath(root: bytes, paths: tuple[bytes, ...]) -> tuple[bytes, ...]:
    real = (os.path.realpath(path) for path in paths)
    return tuple(os.path.relpath(path, root) for path in real if (path + b"/").startswith(root + b"/"))


def _notices(project: Project, found: Found, git: GitCopies) -> list[str]:
    notices = list(git.notices)
    if found.unreadable:
        notices.append(f"cannot be read, neither by you nor by the session: {_list(found.unreadable)}")
    if found.masked and project.git is not None:
        notices.append("files that are hidden from the session can still be read where the repository's commits have them")
    return notices


def _unreadable(closed: Closed) -> str | None:
    said = f"the session cannot read: {_list(closed.paths, closed.count)}" if closed.count else ""
    if closed.whole:
        return said or None
    rest = "not every file was looked at before the session ended"
    return f"{said}; {rest}" if said else f"whether the session can read everything is not known: {rest}"


def _list(paths: tuple[bytes, ...] | list[bytes], count: int | None = None) -> str:
    shown = ", ".join(repr(os.fsdecode(path))[1:-1] for path in paths[:5])
    more = (len(paths) if count is None else count) - 5
    return shown + (f" and {more} more" if more > 0 else "")


def _ignore_rules(project: Project) -> IgnoreRules:
    """The developer's ignore rules: read when they are asked for, from their own tree and git directory."""

    def read(path: bytes) -> bytes | None:
        return _small_file(os.path.join(project.root, path))

    home = os.environb.get(b"XDG_CONFIG_HOME") or os.path.join(os.path.expanduser(b"~"), b".config")
    outer = [_small_file(os.path.join(home, b"git", b"ignore"))]
    if project.git is not None:
        outer.append(_small_file(os.path.join(project.git.common, b"info", b"exclude")))
    return IgnoreRules(read, tuple(text for text in outer if text))


def _small_file(path: bytes) -> bytes | None:
    with contextlib.suppress(OSError):
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        with open(fd, "rb") as file:
            return file.read(_IGNORE_LIMIT)
    return None
