"""Upper against lower: what a session really changed, read after the last of its processes is dead.

Costs what changed, not what the project holds. The developer's tree is read as it is *now*: a file that they changed after
the session opened and that the session changed too is a conflict, never reverted. Told apart by the change time, which
nothing inside a sandbox can set, and by the mark that overlayfs leaves on what it copied up (``user.overlay.origin``).

The tree is the work of somebody hostile: names of any bytes, directories of any depth, holes of a tebibyte, FIFOs, modes 000.
Nothing is followed, nothing is executed, git is never run; what cannot be carried over is refused or left out, with a notice.
"""
from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from native import files
from supervisor.errors import WorkspaceError
from supervisor.workspace import links, lookalikes
from supervisor.workspace.blobs import Blobs, Digest, digest, is_hollow, open_regular
from supervisor.workspace.changes import ChangeSet, Entry, Kind, State, changed
from supervisor.workspace.exclusions import Exclusions
from supervisor.workspace.gitnames import is_git_name
from supervisor.workspace.gitwork import GitWork, Layers, is_told
from supervisor.workspace.ignore import IgnoreRules
from supervisor.workspace.overlay import attribute
from supervisor.workspace.trees import inside, lstat

_LONGEST_PATH: Final = 4095  # bytes, as a single system call takes: nobody could use what is deeper
_ALL_PATHS: Final = 256 << 20  # bytes of all paths together: a session must not fill the supervisor's memory with names
_OLD_BYTES: Final = 256 << 20  # of binary files that were there, kept so that a patch can be reversed; beyond it by name alone
_NOTICES: Final = 50
_CHANGED: Final = "it changed in the project after the session began"
_GONE: Final = "it was deleted or moved in the project after the session began"


@dataclass(frozen=True, slots=True)
class Rules:
    """What the comparison must know of the session. Paths are relative to the project's root.

    ``masked`` are hidden from the session, ``kept`` belong to lemni itself, ``gits`` to git by another name: none of them ever
    enters a change set. ``seeds``: files that the session found instead of the developer's.
    """

    opened_ns: int
    exclusions: Exclusions
    masked: frozenset[bytes]
    kept: frozenset[bytes]
    debris: IgnoreRules
    gits: frozenset[bytes] = frozenset()
    seeds: Mapping[bytes, bytes] = field(default_factory=dict)


class Collector:
    """One comparison. ``lower`` is a descriptor of the developer's tree."""

    def __init__(self, lower: int, rules: Rules, blobs: Blobs) -> None:
        self.lower = lower
        self.rules = rules
        self.blobs = blobs
        self.entries: dict[bytes, Entry] = {}
        self.notices: list[str] = []
        self._gitwork = GitWork()
        self._gits: set[bytes] = set()  # those in the project that the session changed
        self._path_bytes = 0
        self._old_bytes = 0
        self._excluded: set[bytes] = set()

    # -- what both kinds of working copy need

    def result(self) -> ChangeSet:
        """The change set, with links and what looks like a repository judged by the tree as it will be."""
        for path, entry in self.entries.items():
            if entry.after is not None and entry.after.kind is Kind.SYMLINK and not entry.refused:
                why = links.why_not(path, entry.after.target, self._link_after)
                if why:
                    self._add(replace(entry, refused=why))
        for path in list(lookalikes.planted(self.entries, self._stands)):
            if not self.entries[path].refused:
                self._add(replace(self.entries[path], refused=lookalikes.WHY))
        left_out = len(self.notices) - _NOTICES
        notices = self.notices[:_NOTICES] + ([f"… and {left_out} more notices of this kind"] if left_out > 0 else [])
        if (told := self._gitwork.notice) is not None:
            notices.insert(0, told)
        return ChangeSet.of(self.entries.values(), notices)

    def skips(self, path: bytes, name: bytes) -> bool:
        """Whether a path belongs to git or to lemni: it never enters the change set."""
        return is_git_name(name) or path in self.rules.gits or path in self.rules.kept

    def skipped_above(self, path: bytes) -> bytes | None:
        """The path itself, or the outermost one above it, that is skipped."""
        parts = path.split(b"/")
        tops = (b"/".join(parts[: depth + 1]) for depth, part in enumerate(parts))
        return next((top for top, name in zip(tops, parts, strict=True) if self.skips(top, name)), None)

    def look_at_git(self, path: bytes, layers: Layers, seen: set[bytes]) -> None:
        """Note whether the session changed what is skipped at this path and in the copy; what is lemni's own is left alone."""
        if path not in self.rules.kept and path not in self.rules.masked and layers.is_changed(path, seen):
            self._git_changed(path)

    def gone_from_git(self, top: bytes, path: bytes) -> None:
        """Note that a plain copy lost ``path``, which ``top`` is or holds."""
        if top not in self._gits and (path == top or is_told(path[len(top) + 1 :])):
            self._git_changed(top)

    def look_at_git_copy(self, layers: Layers, shown: bytes) -> None:
        """The same for a git directory outside the project, which has a copy of its own."""
        seen: set[bytes] = set()
        if layers.is_changed(b"", seen) or any(path not in seen and is_told(path) for path in layers.made or ()):
            self._gitwork.add(shown)

    @contextlib.contextmanager
    def below(self, directory: bytes) -> Iterator[int | None]:
        """The developer's directory of this path, or None where there is none."""
        fd = self._open_lower(directory)
        try:
            yield fd
        finally:
            if fd is not None:
                os.close(fd)

    def compare(
        self, path: bytes, parent: int, name: bytes, status: os.stat_result, lower: int | None, *, came: bool = False
    ) -> bool:
        """Compare one thing of the copy with what the developer has there now. True when it is a directory to go into.

        ``parent`` and ``lower`` are the directories that hold it, in the copy and in the developer's tree. ``came``: it was
        there when the session began; where nothing is now, the developer took it away.
        """
        if len(path) > _LONGEST_PATH:
            self.notice("nested too deep, left out", path[:80] + b"...")
            return False
        is_directory = stat.S_ISDIR(status.st_mode)
        if self._is_excluded(path, is_directory):
            # The developer's file is not even read: its content must not enter the stored diff
            after, refused = self._after(path, parent, name, status)
            if after is not None:
                self._add(Entry(path, None, after, "", refused or "it is excluded from the session's context"))
            return is_directory
        below = lstat(lower, name)
        after, refused = self._after(path, parent, name, status)
        if after is None:
            return False
        before = self._before(lower, name, below, after.sha256) if below is not None else None
        if below is not None and before is None:
            self.notice("a special file of yours stands there, left as it is", path)
            return False
        if changed(before, after):
            conflict = ""
            if below is not None and below.st_ctime_ns > self.rules.opened_ns:
                conflict = _CHANGED
            elif below is None and came:
                conflict = _GONE
            self._add(Entry(path, before, after, conflict, refused, self._is_debris(path, before, after)))
        if before is not None and before.kind is Kind.DIRECTORY and after.kind is not Kind.DIRECTORY:
            self._delete_beneath(path)
        return after.kind is Kind.DIRECTORY

    def delete(self, path: bytes) -> None:
        """The session deleted what stands at this path of the developer's tree, with all that is beneath."""
        parent = self._open_lower(os.path.dirname(path))
        if parent is None:
            return
        try:
            name = os.path.basename(path)
            status = lstat(parent, name)
            if status is None or self.skips(path, name) or path in self.rules.masked:
                return
            if stat.S_ISDIR(status.st_mode) and not self._delete_beneath(path):
                self.notice("deleted by the session, but it holds what the session did not see: kept", path)
                return
            before = self._before(parent, name, status)
            if before is None:
                self.notice("a special file of yours was deleted, left as it is", path)
                return
            is_directory = before.kind is Kind.DIRECTORY
            conflict = _CHANGED if status.st_ctime_ns > self.rules.opened_ns and not is_directory else ""
            self._add(Entry(path, before, None, conflict))
        finally:
            os.close(parent)

    def delete_unseen(self, directory: bytes, seen: set[bytes]) -> None:
        """An opaque directory hides what is below it: what has no name in the upper layer was deleted."""
        fd = self._open_lower(directory)
        if fd is None:
            return
        try:
            for _, name in files.entries(fd):
                if name not in seen:
                    self.delete(directory + b"/" + name if directory else name)
        finally:
            os.close(fd)

    def names_changed(self, path: bytes) -> bool:
        """Whether names came or went, since the session began, in the developer's directory that holds (or held) this path."""
        while path:
            path = os.path.dirname(path)
            fd = self._open_lower(path)
            if fd is not None:
                try:
                    return os.fstat(fd).st_ctime_ns > self.rules.opened_ns
                finally:
                    os.close(fd)
        return True

    def notice(self, what: str, path: bytes) -> None:
        """Something that the person should know and that is no change."""
        self.notices.append(f"{os.fsdecode(path)}: {what}")

    # -- details

    def _is_excluded(self, path: bytes, is_directory: bool) -> bool:
        """Whether a path, or a directory above it (which was compared before it), is hidden from sessions."""
        excluded = (
            os.path.dirname(path) in self._excluded
            or path in self.rules.masked
            or self.rules.exclusions.matches(path, is_directory)
        )
        if excluded and is_directory:
            self._excluded.add(path)
        return excluded

    def _git_changed(self, path: bytes) -> None:
        self._remember(path)
        self._gits.add(path)
        self._gitwork.add(path)

    def _add(self, entry: Entry) -> None:
        self._remember(entry.path)
        self.entries[entry.path] = entry

    def _remember(self, path: bytes) -> None:
        self._path_bytes += len(path)
        if self._path_bytes > _ALL_PATHS:
            raise WorkspaceError(
                "listing what the session changed", why="the names of the changed files alone are over 256 MiB",
                code="changes_too_large",
            )

    def _is_debris(self, path: bytes, before: State | None, after: State | None) -> bool:
        if after is None:  # a deletion is always proposed: or the directory above it could not go
            return False
        return self.rules.debris.is_debris(path, after.kind is Kind.DIRECTORY, is_new=before is None)

    def _delete_beneath(self, path: bytes) -> bool:
        """Delete all entries of a directory of the developer's; False when something in it has to stay.

        Iterative: directories are listed top down, and judged bottom up.
        """
        order: list[bytes] = []
        stack, stays = [path], set()
        while stack:
            directory = stack.pop()
            order.append(directory)
            fd = self._open_lower(directory)
            if fd is None:
                stays.add(directory)
                continue
            try:
                for _, name in files.entries(fd):
                    child = directory + b"/" + name
                    status = lstat(fd, name)
                    if status is None:
                        continue
                    if self.skips(child, name) or child in self.rules.masked or len(child) > _LONGEST_PATH:
                        stays.add(directory)
                    elif stat.S_ISDIR(status.st_mode):
                        stack.append(child)
                    elif (before := self._before(fd, name, status)) is None:
                        stays.add(directory)
                    else:
                        conflict = _CHANGED if status.st_ctime_ns > self.rules.opened_ns else ""
                        self._add(Entry(child, before, None, conflict))
            finally:
                os.close(fd)
        for directory in reversed(order):
            if directory in stays:
                stays.add(os.path.dirname(directory))
            elif directory != path:
                state = self._directory_state(directory)
                if state is not None:
                    self._add(Entry(directory, state, None))
        return path not in stays

    def _directory_state(self, path: bytes) -> State | None:
        fd = self._open_lower(path)
        if fd is None:
            return None
        try:
            return State(Kind.DIRECTORY, stat.S_IMODE(os.fstat(fd).st_mode) & 0o777)
        finally:
            os.close(fd)

    def _open_lower(self, path: bytes) -> int | None:
        try:
            return files.open_directory(self.lower, path)
        except OSError:
            return None

    def _before(self, parent: int | None, name: bytes, status: os.stat_result, kept: str = "") -> State | None:
        """What the developer has there; None for FIFOs, sockets and devices. ``kept``: the digest of what stands there now.

        Texts are kept, so that the diff can be shown; others, up to a bound, for the patch.
        """
        mode = stat.S_IMODE(status.st_mode) & 0o777
        if stat.S_ISDIR(status.st_mode):
            return State(Kind.DIRECTORY, mode, ctime_ns=status.st_ctime_ns)
        if stat.S_ISLNK(status.st_mode):
            return State(Kind.SYMLINK, target=os.readlink(name, dir_fd=parent), ctime_ns=status.st_ctime_ns)
        if not stat.S_ISREG(status.st_mode) or parent is None:
            return None
        found = Digest("", status.st_size, False)
        with contextlib.suppress(OSError):  # unreadable: its change time alone stands for its content
            fd = open_regular(parent, name)
            try:
                if not is_hollow(fd, status):
                    found = digest(fd)
                    if found.sha256 != kept:
                        found = self._keep_old(fd, found)
            finally:
                os.close(fd)
        return State(Kind.FILE, mode, found.size, found.sha256, found.text, ctime_ns=status.st_ctime_ns)

    def _keep_old(self, fd: int, found: Digest) -> Digest:
        if not found.text and self._old_bytes + found.size > _OLD_BYTES:
            self.blobs.put_names(fd, found)
            return found
        self._old_bytes += 0 if found.text else found.size
        return self.blobs.put(fd)

    def _after(self, path: bytes, parent: int, name: bytes, status: os.stat_result) -> tuple[State | None, str]:
        """What the session has there, its bytes kept; and why it is refused, or ""."""
        mode = stat.S_IMODE(status.st_mode) & 0o777
        if stat.S_ISDIR(status.st_mode):
            return State(Kind.DIRECTORY, mode), ""
        if stat.S_ISLNK(status.st_mode):
            return State(Kind.SYMLINK, target=os.readlink(name, dir_fd=parent)), ""
        if not stat.S_ISREG(status.st_mode):
            self.notice("a FIFO, socket or device of the session, left out", path)
            return None, ""
        try:
            fd = open_regular(parent, name)
        except PermissionError:
            os.chmod(name, 0o600, dir_fd=parent)  # ours and at rest, see trees.py
            fd = open_regular(parent, name)
        try:
            if is_hollow(fd, status):
                return State(Kind.FILE, mode, status.st_size), "it is a sparse file, far larger than its data"
            found = self.blobs.put(fd)
        finally:
            os.close(fd)
        return State(Kind.FILE, mode, found.size, found.sha256, found.text), ""

    def _stands(self, path: bytes) -> bool:
        """Whether the developer has something at this path now."""
        parent = self._open_lower(os.path.dirname(path))
        if parent is None:
            return False
        try:
            return lstat(parent, os.path.basename(path)) is not None
        finally:
            os.close(parent)

    def _link_after(self, path: bytes) -> bytes | None:
        """The target of what will be a link at this path once the changes are applied."""
        entry = self.entries.get(path)
        if entry is not None:
            return entry.after.target if entry.after is not None and entry.after.kind is Kind.SYMLINK else None
        parent = self._open_lower(os.path.dirname(path))
        if parent is None:
            return None
        try:
            return os.readlink(os.path.basename(path), dir_fd=parent)
        except OSError:
            return None
        finally:
            os.close(parent)


def collect_overlay(upper: int, collector: Collector) -> ChangeSet:
    """Compare an overlay's upper layer (a descriptor of its root) with the tree that ``collector`` holds as the lower one."""
    stack: list[tuple[bytes, bool]] = [(b"", False)]
    layers = Layers(upper, collector.lower, collector.rules.seeds, None)
    while stack:
        directory, opaque = stack.pop()
        with inside(upper, directory) as here, collector.below(directory) as lower:
            _refuse_redirects(here, directory)
            opaque = opaque or attribute(here, None, "opaque") is not None
            seen: set[bytes] = set()
            for _, name in files.entries(here):
                path = directory + b"/" + name if directory else name
                seen.add(name)
                if collector.skips(path, name):
                    collector.look_at_git(path, layers, set())
                    continue
                status = os.stat(name, dir_fd=here, follow_symlinks=False)
                if stat.S_ISCHR(status.st_mode) and status.st_rdev == 0:
                    if path not in collector.rules.masked:
                        collector.delete(path)
                elif collector.compare(path, here, name, status, lower, came=_came(collector, path, here, name)):
                    stack.append((path, opaque))
            if opaque:
                collector.delete_unseen(directory, seen)
    return collector.result()


def _came(collector: Collector, path: bytes, directory: int, name: bytes) -> bool:
    """Whether what stands here was copied up from this very path.

    The mark of overlayfs says only that it came from *some* path below: the session may have moved it here. Where the
    developer's directory is as it was, it did; where names changed there too, the developer's deletion is assumed.
    """
    return attribute(directory, name, "origin") is not None and collector.names_changed(path)


def _refuse_redirects(directory: int, path: bytes) -> None:
    """Sandboxes mount without ``redirect_dir`` and ``metacopy``; a layer that has such marks would be misread."""
    for what in ("redirect", "metacopy"):
        if attribute(directory, None, what) is not None:
            raise WorkspaceError("comparing the working copy", on=os.fsdecode(path), why=f"the overlay uses {what}")
