"""The part of a sandbox's root that is the same for all of one kind: made once, and cloned for each.

A third of the time to open goes into directories, links, small files and binds that every sandbox of one profile has alike. A
``Holder`` has them all in one read-only tree; a clone of it is one system call, and init takes it as its root. What a sandbox
has for itself (proc, pts, queues, its tmpfs, the working copy) is mounted in the clone.

For the first sandbox of a process, and where no holder is to be had, init builds the whole root: ``plan`` says the same of
both, and a test compares what is seen inside. A kept tree holds the host's file systems and files as they were: when the host's
mounts change, or a name beside one that was bound (so that another file may stand there), it is made anew. Until then what it
holds stays in use.
"""
from __future__ import annotations

import os
import select
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from profiles.model import Profile
from supervisor.errors import ChannelBroken, HostUnfit, LaunchFailed
from supervisor.sandbox import ops, plan
from supervisor.sandbox.holder import Holder
from supervisor.sandbox.ids import IdPlan, holding
from supervisor.sandbox.launch import IdMaps
from supervisor.sandbox.machine import HostFacts
from supervisor.sandbox.plan import Draft

KINDS = 4  # trees kept by one process, each by a process of its own
ATTEMPTS = 3  # holders that failed; then they are done without
Key = tuple[HostFacts, Profile, IdPlan, tuple[bytes, ...], tuple[tuple[bytes, bytes], ...]]
SETTLED_NS = 1_000_000_000  # a directory's time is no finer than a tick: one that changed just now may have changed twice
Directories = tuple[tuple[bytes, int, int], ...]
_REFUSED = (LaunchFailed, HostUnfit, ChannelBroken)


@dataclass(frozen=True, slots=True)
class Tree:
    """Who holds a tree, and the directories that its sources lie in: path, inode number, time of the last change of a name."""

    holder: Holder
    around: Directories
    made_ns: int

    def stale(self) -> bool:
        """Whether another file may stand where one of the sources was."""
        return _seen(path for path, _, _ in self.around) != self.around or any(
            changed > self.made_ns - SETTLED_NS for _, _, changed in self.around
        )


@dataclass(slots=True)
class Templates:
    """The trees of one process, and the owner of their holders."""

    _trees: dict[Key, Tree | None] = field(default_factory=dict)  # None: seen once
    _failed: int = 0
    _mounts: int = -1
    _process: int = 0

    def clone(self, draft: Draft) -> int | None:
        """A detached clone of the root for this draft, the caller's to close. None: init is to build it."""
        if self._failed >= ATTEMPTS:
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
            tree.holder.close()
            tree = self._trees[key] = None
        if tree is None:
            tree = self._trees[key] = self._make(draft)
        return None if tree is None else self._cloned(key, tree)

    def prepare(self) -> None:
        """Have the next clones made while nobody waits for them: when a sandbox is open, its command is what takes time."""
        for key, tree in self._trees.items():
            if tree is not None:
                try:
                    tree.holder.prepare()
                except _REFUSED:
                    self._give_up(key, tree)

    def close(self) -> None:
        """Let go of every tree."""
        for tree in self._trees.values():
            if tree is not None:
                tree.holder.close()
        self._trees.clear()
        if self._mounts >= 0:
            os.close(self._mounts)
            self._mounts = -1

    def _make(self, draft: Draft) -> Tree | None:
        ids = holding(draft.host.privileged, draft.host.uid, draft.host.gid)
        steps = plan.template(draft, ids)
        # Not the devices: nobody puts another file in their place.
        sources = [step.source for step in steps if isinstance(step, ops.Bind) and step.flags & ops.NODEV]
        made_ns, around = time.time_ns(), _seen(dict.fromkeys(os.path.dirname(path) for path in sources))
        try:
            return Tree(Holder(steps, IdMaps(ids.uid_map, ids.gid_map, ids.setgroups_denied)), around, made_ns)
        except _REFUSED:
            # What is wrong is told by the opening that follows, which asks the same of the host.
            self._failed += 1
            return None

    def _cloned(self, key: Key, tree: Tree) -> int | None:
        try:
            return tree.holder.clone()
        except _REFUSED:
            self._give_up(key, tree)
            return None

    def _give_up(self, key: Key, tree: Tree) -> None:
        tree.holder.close()
        self._trees[key] = None
        self._failed += 1

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


TEMPLATES = Templates()
