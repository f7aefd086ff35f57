"""The part of a sandbox's root that is the same for all of one kind: made once, and cloned for each.

A third of the time to open goes into directories, links, small files and binds that every sandbox of one profile has alike.
The supervisor makes them once as a detached, read-only tree, which no path names; a clone of it is one system call, and init
takes it as its root. What a sandbox has for itself (proc, pts, queues, its tmpfs, the working copy) is mounted in the clone.

Needs Linux 6.15, which lets a detached tree be built and cloned, and a caller who may mount. Elsewhere, and for the first
sandbox of a process, init builds the whole root: ``plan`` says the same of both, and a test compares what is seen inside.
A kept tree holds the host's file systems and files as they were: when the host's mounts change, or a name beside one that was
bound (so that another file may stand there), it is made anew. Until then what it holds stays in use.
"""
from __future__ import annotations

import errno
import os
import select
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from profiles.model import Profile
from supervisor.errors import HostUnfit, InternalError, LaunchFailed
from supervisor.sandbox import launch, ops, plan
from supervisor.sandbox.ids import IdPlan
from supervisor.sandbox.machine import HostFacts
from supervisor.sandbox.plan import Draft

KINDS = 8  # trees kept by one process
NOT_OFFERED = frozenset({errno.EINVAL, errno.ENOSYS, errno.EPERM, errno.EACCES, errno.EOPNOTSUPP})
Key = tuple[HostFacts, Profile, IdPlan, tuple[bytes, ...], tuple[tuple[bytes, bytes], ...]]
SETTLED_NS = 1_000_000_000  # a directory's time is no finer than a tick: one that changed just now may have changed twice
Directories = tuple[tuple[bytes, int, int], ...]


@dataclass(frozen=True, slots=True)
class Tree:
    """A detached tree, and the directories that its sources lie in: path, inode number, time of the last change of a name."""

    fd: int
    around: Directories
    made_ns: int

    def stale(self) -> bool:
        """Whether another file may stand where one of the sources was."""
        return _seen(path for path, _, _ in self.around) != self.around or any(
            changed > self.made_ns - SETTLED_NS for _, _, changed in self.around
        )


@dataclass(slots=True)
class Templates:
    """The trees of one process. ``clone`` and ``close`` are its two acts; nothing else holds the descriptors."""

    _trees: dict[Key, Tree | None] = field(default_factory=dict)  # None: seen once
    _offered: bool = True
    _mounts: int = -1
    _process: int = 0

    def clone(self, draft: Draft) -> int | None:
        """A detached clone of the root for this draft, the caller's to close. None: init is to build it.

        Raises ``LaunchFailed``.
        """
        if not draft.detached or not self._offered:
            return None
        if self._process != os.getpid() or self._mounts_changed():
            self.close()  # a fork's are its parent's: it would not hear of every change
            self._process = os.getpid()
            self._mounts_changed()
        key = (draft.host, draft.profile, draft.ids, plan.targets(draft), draft.files)
        if key not in self._trees:
            if not plan.shareable(draft):
                return None
            if len(self._trees) >= KINDS:
                self.close()
            self._trees[key] = None
            return None
        tree = self._trees[key]
        if tree is not None and tree.stale():
            os.close(tree.fd)
            tree = self._trees[key] = None
        if tree is None:
            tree = self._trees[key] = self._make(draft)
        return None if tree is None else launch.detached_mount(tree.fd, recursive=True)

    def close(self) -> None:
        """Let go of every tree."""
        for tree in self._trees.values():
            if tree is not None:
                os.close(tree.fd)
        self._trees.clear()
        if self._mounts >= 0:
            os.close(self._mounts)
            self._mounts = -1

    def _make(self, draft: Draft) -> Tree | None:
        steps = plan.shell(draft)
        sources = [step.source for step in steps if isinstance(step, ops.Bind) and step.flags & ops.NODEV]
        made_ns, around = time.time_ns(), _seen(dict.fromkeys(os.path.dirname(path) for path in sources))
        try:
            return Tree(make(steps), around, made_ns)
        except (LaunchFailed, HostUnfit) as error:
            # As ever, then; what is wrong is told by the step of init's that fails. An older kernel is not asked again.
            self._offered = error.errno not in NOT_OFFERED
            return None

    def _mounts_changed(self) -> bool:
        """Whether the host's mounts changed since the last call (proc(5): a poll of mountinfo says it)."""
        if self._mounts < 0:
            self._mounts = os.open("/proc/self/mountinfo", os.O_RDONLY | os.O_CLOEXEC)
        poll = select.poll()
        poll.register(self._mounts, select.POLLPRI)
        return bool(poll.poll(0))


def _seen(directories: Iterable[bytes]) -> Directories:
    """Each directory with its inode number and its time; zeros where there is none."""
    found = []
    for path in directories:
        try:
            status = os.stat(path)
            found.append((path, status.st_ino, status.st_mtime_ns))
        except OSError:
            found.append((path, 0, 0))
    return tuple(found)


def make(steps: Iterable[ops.Op]) -> int:
    """Carry out the steps of a root's shell here: the descriptor of a detached tree, read-only.

    Raises ``LaunchFailed`` or ``HostUnfit`` where a step is refused.
    """
    tree = -1
    made = {b""}  # directories below the root that are ours: nothing is made through a link or in a bound tree
    try:
        for step in steps:
            if isinstance(step, ops.NewRoot):
                tree = launch.detached_tmpfs(step.size, step.inodes)
            else:
                _carry_out(tree, step, made)
        launch.restrict(tree, ops.RO)
    except BaseException as error:
        if tree >= 0:
            os.close(tree)
        if isinstance(error, OSError):
            raise LaunchFailed("building the template of a root", errno=error.errno) from error
        raise
    return tree


def _carry_out(tree: int, step: ops.Op, made: set[bytes]) -> None:
    match step:
        case ops.Dir(path, mode):
            _directory(tree, path[1:], made)
            os.chmod(path[1:], mode, dir_fd=tree)
        case ops.Symlink(path, target):
            os.symlink(target, _place(tree, path, made), dir_fd=tree)
        case ops.File(path, content, mode):
            fd = os.open(_place(tree, path, made), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0, dir_fd=tree)
            with open(fd, "wb") as file:
                file.write(content)
                os.fchmod(fd, mode)
        case ops.Bind(source, path, flags):
            _bind(tree, source, _place(tree, path, made), flags)
        case _:
            raise InternalError("building the template of a root", on=type(step).__name__, why="not a part of it")


def _place(tree: int, path: bytes, made: set[bytes]) -> bytes:
    """``path`` relative to the tree, its parents there."""
    relative = path[1:]
    _directory(tree, os.path.dirname(relative), made)
    return relative


def _directory(tree: int, relative: bytes, made: set[bytes]) -> None:
    if relative in made:
        return
    _directory(tree, os.path.dirname(relative), made)
    os.mkdir(relative, 0o755, dir_fd=tree)  # FileExistsError: a link or a bound tree stands there
    os.chmod(relative, 0o755, dir_fd=tree)
    made.add(relative)


def _bind(tree: int, source: bytes, relative: bytes, flags: int) -> None:
    mount = launch.detached_tree(source, recursive=bool(flags & ops.RECURSIVE), attributes=flags & ops.ATTRIBUTES)
    try:
        if os.path.isdir(source):
            os.mkdir(relative, 0o755, dir_fd=tree)
        else:
            os.mknod(relative, 0o644, dir_fd=tree)
        launch.attach(mount, tree, relative)
    finally:
        os.close(mount)


TEMPLATES = Templates()
