"""From what is wanted to what init has to do: pure functions, and the only place where the order is decided.

The list reads from outside to inside: become nobody of the host, build a root that holds only what the profile names and the
working copies, join the groups, move into the root and the network namespace, then give up, one layer after the other,
everything that was needed to build; seccomp comes last because it forbids most of what stands before it.

It travels in two parts, so that each begins as soon as what it needs is there: the *whole* root, which init builds while the
supervisor makes the groups and a thread of init the network, and the *seal*. A warm sandbox has the *base* first, which is the
same for all of one kind, and the rest *late*, with the seal.

Descriptors travel in a fixed order: for each working copy those of ``copy_descriptors``; the shell of the root, where one was
made before (``template.py``); the cgroups' ``tasks`` files.
"""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from profiles.landlock import Compiled
from profiles.model import Profile
from supervisor.sandbox import ops
from supervisor.sandbox.ids import IdPlan
from supervisor.sandbox.machine import Entry, HostFacts
from supervisor.sandbox.ops import INSIDE, NODEV, NOEXEC, NOSUID, OUTSIDE, RECURSIVE, RO, Op
from supervisor.sandbox.spec import GITDIR, HOME, WORKDIR, Limits, PlainCopy
from supervisor.sandbox.wire import Request

ROOT_SIZE, ROOT_INODES = 8 << 20, 4096  # the root holds directories, links and a few small files
CAP_KILL, CAP_SETGID, CAP_SETUID = 5, 6, 7
# getrlimit(2), the numbers of x86 and arm
CPU, FSIZE, DATA, CORE, NPROC, NOFILE, AS = 0, 1, 2, 4, 6, 7, 9
_RESERVED = 1 << 40  # bytes of address space without memory behind them: each WebAssembly memory of V8 reserves over 8 GiB
_SHARED = RO | NOSUID | NODEV


@dataclass(frozen=True, slots=True)
class Layers:
    """An overlay by its target inside; ``upper`` and ``work`` are the names of its two directories in one scratch directory."""

    target: bytes
    upper: bytes
    work: bytes


@dataclass(frozen=True, slots=True)
class Draft:
    """Everything that the plan depends on. Equal drafts give equal plans, so that plans are cached by their draft.

    ``joins`` is the number of v1 cgroups; ``watched`` means that no cgroup limits the sandbox and resource limits stand in;
    ``detached`` that working copies come as detached mounts, which a privileged supervisor makes, and not by path.
    """

    host: HostFacts
    profile: Profile
    ids: IdPlan
    limits: Limits
    copies: tuple[Layers | PlainCopy, ...]
    files: tuple[tuple[bytes, bytes], ...]
    loopback: bool
    joins: int
    watched: bool
    detached: bool
    pinned: bool = False  # the share of the CPUs is kept by affinity (``share``)
    adopted: bool = False  # the shell of the root comes as a detached tree, behind the last descriptor


def copy_descriptors(copy: Layers | PlainCopy, detached: bool) -> int:
    """How many descriptors this copy takes: lower, upper, work (and, detached, their scratch); or the mount; or none."""
    return 3 + detached if isinstance(copy, Layers) else int(detached)


def descriptors(draft: Draft) -> int:
    """How many descriptors travel with the view: the working copies', then the root's shell where it is adopted."""
    return sum(copy_descriptors(copy, draft.detached) for copy in draft.copies) + draft.adopted


def base(draft: Draft) -> tuple[Op, ...]:
    """The part that knows no working copy, no group and no path of the finished root."""
    return (_take_ids(draft.ids), *_view(draft), *_own(draft))


def whole(draft: Draft, landlock: Compiled | None) -> tuple[Op, ...]:
    """The root with the working copies, and all that needs neither the network nor the groups: both are being made."""
    return (
        _take_ids(draft.ids),
        *_layers(draft),
        ops.BeginOverlays(),
        *_view(draft),
        *_files(draft),
        *_copies(draft),
        *_finish(draft, landlock),
        *_own(draft),
    )


def late(draft: Draft, landlock: Compiled | None) -> tuple[Op, ...]:
    """What ``whole`` has beyond ``base``."""
    return (*_layers(draft), *_files(draft), *_copies(draft), *_finish(draft, landlock))


def seal(draft: Draft, landlock: Compiled | None, seccomp: bytes, first: int = 0) -> tuple[Op, ...]:
    """What makes it a sandbox, with these compiled rules and this BPF program; ``first`` is the groups' first descriptor."""
    keep = 0 if draft.ids.shared else 1 << CAP_KILL | 1 << CAP_SETGID | 1 << CAP_SETUID
    return (
        *_groups(draft, first),
        ops.Pivot(),
        *_network(draft),
        ops.NonDumpable(),
        ops.DropCaps(keep),
        ops.NoNewPrivs(),
        *(() if landlock is None else (ops.LandlockEnforce(),)),
        ops.Seccomp(seccomp),
    )


def template(draft: Draft, holder: IdPlan) -> tuple[Op, ...]:
    """A root for all sandboxes of one kind, with the places of all that is mounted in it, made by its holder.

    The holder then has neither the host's root nor its network.
    """
    places = (*(scratch.path.encode() for scratch in draft.profile.view.scratch), *targets(draft))
    return (
        _take_ids(holder),
        *_shell(draft),
        *(ops.Dir(path) for path in places if not _in_scratch(draft, path)),
        ops.ReadOnly(b"/"),
        ops.Pivot(),
        ops.OpenNetlink(),
        ops.NoNewPrivs(),
        ops.NonDumpable(),
    )


def shareable(draft: Draft) -> bool:
    """Whether all that is made for one sandbox alone lies in its scratch: the shell is read-only."""
    return all(_in_scratch(draft, path) for path in (HOME, *(path for path, _ in draft.files)))


def _in_scratch(draft: Draft, path: bytes) -> bool:
    """Whether ``path`` lies below a private tmpfs."""
    return any(path.startswith(scratch.path.encode() + b"/") for scratch in draft.profile.view.scratch)


def targets(draft: Draft) -> tuple[bytes, ...]:
    """Where the working copies stand inside; both places for a base, which does not know yet."""
    return tuple(copy.target for copy in draft.copies) or (WORKDIR, GITDIR)


def _take_ids(ids: IdPlan) -> Op:
    return ops.TakeIds(ids.init_uid, ids.init_gid, clear_groups=not ids.setgroups_denied)


def _view(draft: Draft) -> Iterator[Op]:
    if draft.adopted:
        yield ops.AdoptRoot(descriptors(draft) - 1)
    else:
        yield from _shell(draft)
    yield ops.DevPts(b"/dev/pts")
    yield ops.Mqueue(b"/dev/mqueue")
    yield from _proc(draft)
    yield from _scratch(draft)


def _shell(draft: Draft) -> Iterator[Op]:
    yield from _root(draft)
    yield from _etc(draft)
    yield from _devices(draft)


def _groups(draft: Draft, first: int) -> Iterator[Op]:
    for index in range(draft.joins):
        yield ops.CgroupJoin(first + index)
    if draft.joins:
        yield ops.UnshareCgroup()


def _root(draft: Draft) -> Iterator[Op]:
    yield ops.NewRoot(ROOT_SIZE, ROOT_INODES)
    for path in (b"/dev", b"/etc", b"/home", b"/proc", b"/run", b"/tmp", b"/var"):
        yield ops.Dir(path)
    yield ops.Symlink(b"/var/tmp", b"/tmp")
    yield ops.Symlink(b"/var/run", b"/run")
    for entry in draft.host.view.trees:
        yield from _shared(entry, RECURSIVE)


def _shared(entry: Entry, flags: int) -> Iterator[Op]:
    if entry.target is not None:
        yield ops.Symlink(entry.path, entry.target)
    elif entry.content is not None:
        yield ops.File(entry.path, entry.content)
    else:
        yield ops.Bind(entry.source, entry.path, _SHARED | flags)


def _etc(draft: Draft) -> Iterator[Op]:
    parents: set[bytes] = set()
    for entry in draft.host.view.etc:
        parent = entry.path.rpartition(b"/")[0]
        if parent != b"/etc" and parent not in parents:
            parents.add(parent)
            yield ops.Dir(parent)
        yield from _shared(entry, 0)
    for name, content in etc_files(draft.ids, draft.profile.view.hostname.encode()):
        yield ops.File(b"/etc/" + name, content)
    yield ops.Symlink(b"/etc/mtab", b"/proc/self/mounts")


def etc_files(ids: IdPlan, hostname: bytes) -> tuple[tuple[bytes, bytes], ...]:
    """The files of /etc that are made up: one account, no other name, no resolver."""
    uid, gid = ids.command_uid, ids.command_gid
    return (
        (b"passwd", b"root:x:0:0:root:/:/usr/sbin/nologin\nagent:x:%d:%d:agent:%s:/bin/bash\n"
         b"nobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n" % (uid, gid, HOME)),
        (b"group", b"root:x:0:\ntty:x:5:\nagent:x:%d:\nnogroup:x:65534:\n" % gid),
        (b"hosts", b"127.0.0.1 localhost %s\n::1 localhost\n" % hostname),
        (b"nsswitch.conf", b"passwd: files\ngroup: files\nhosts: files\nservices: files\nprotocols: files\n"),
        (b"hostname", hostname + b"\n"),
        (b"shells", b"/bin/sh\n/bin/bash\n"),
    )


def _devices(draft: Draft) -> Iterator[Op]:
    # In the root's own tmpfs, mode 755: in a directory that all may write, opening a device with O_CREAT is refused to other
    # ids (fs.protected_regular). The devices are mounts of their own, so that a read-only root leaves them writable.
    for path in draft.host.view.devices:
        yield ops.Bind(path, path, NOSUID | NOEXEC)
    for name, target in ((b"fd", b"/proc/self/fd"), (b"stdin", b"/proc/self/fd/0"), (b"stdout", b"/proc/self/fd/1"),
                         (b"stderr", b"/proc/self/fd/2"), (b"ptmx", b"pts/ptmx")):
        yield ops.Symlink(b"/dev/" + name, target)
    for path in (b"/dev/mqueue", b"/dev/pts", b"/dev/shm"):
        yield ops.Dir(path)


def _proc(draft: Draft) -> Iterator[Op]:
    yield ops.Proc(b"/proc")
    for path in draft.host.view.masked_files:
        yield ops.Bind(b"/dev/null", path, RO | NOSUID | NOEXEC)
    for path in draft.host.view.masked_directories:
        yield ops.Tmpfs(path, 4096, 2, 0o555, RO | NOEXEC)


def _scratch(draft: Draft) -> Iterator[Op]:
    for scratch in draft.profile.view.scratch:
        size, inodes = min(scratch.size, draft.limits.disk), min(scratch.inodes, draft.limits.inodes)
        yield ops.Tmpfs(scratch.path.encode(), size, inodes, scratch.mode)
    uid, gid = draft.ids.command_uid, draft.ids.command_gid
    yield ops.Dir(HOME, 0o700, uid, gid)


def _files(draft: Draft) -> Iterator[Op]:
    uid, gid = draft.ids.command_uid, draft.ids.command_gid
    made = {HOME}
    for path, content in draft.files:
        parent = path.rpartition(b"/")[0]
        if parent not in made:
            made.add(parent)
            yield ops.Dir(parent, 0o755, uid, gid)
        yield ops.File(path, content, 0o644, uid, gid)


def _placed(draft: Draft) -> Iterator[tuple[int, Layers | PlainCopy]]:
    """The working copies, each with the index of its first descriptor."""
    fd = 0
    for copy in draft.copies:
        yield fd, copy
        fd += copy_descriptors(copy, draft.detached)


def _layers(draft: Draft) -> Iterator[Op]:
    """An overlay takes layers of init's own mount namespace only; so detached ones are hung there until the pivot."""
    for fd, copy in _placed(draft):
        if isinstance(copy, Layers) and draft.detached:
            yield ops.MoveMount(fd, b"/", _SHARED | OUTSIDE)
            yield ops.MoveMount(fd + 3, b"/", NOSUID | NODEV | OUTSIDE)
            yield ops.OpenBelow(fd + 3, fd + 1, b"/" + copy.upper)
            yield ops.OpenBelow(fd + 3, fd + 2, b"/" + copy.work)


def _copies(draft: Draft) -> Iterator[Op]:
    for fd, copy in _placed(draft):
        yield ops.Dir(copy.target)
        if isinstance(copy, Layers):
            yield ops.Overlay(copy.target, fd, fd + 1, fd + 2)
        elif draft.detached:
            yield ops.MoveMount(fd, copy.target, NOSUID | NODEV)
        else:
            yield ops.Bind(copy.path, copy.target, NOSUID | NODEV)


def _own(draft: Draft) -> Iterator[Op]:
    """What is neither a file nor a layer: names, keys, limits of each process."""
    yield ops.Hostname(draft.profile.view.hostname.encode())
    yield ops.Keyring()
    for which, value in rlimits(draft.limits, draft.watched):
        value = min(value, draft.host.hard_limit(which))
        yield ops.Rlimit(which, value, value)
    yield ops.DropBounding()


def _network(draft: Draft) -> Iterator[Op]:
    """Into the network namespace. The supervisor looks at it, through a socket of it, while init goes on."""
    if draft.loopback:
        yield ops.LoopbackUp()
    yield ops.OpenNetlink()
    yield ops.HandOver(Request.HAND_NETLINK)
    yield ops.HandOver(Request.HAND_WORKDIR)


def _finish(draft: Draft, landlock: Compiled | None) -> Iterator[Op]:
    """After the last mount: what refers to the root as it is now. A rule of Landlock binds what stands at its path."""
    yield ops.ReadOnly(b"/")
    for path in draft.host.view.read_only:
        yield ops.Bind(path, path, RO | NOSUID | NODEV | NOEXEC | RECURSIVE | INSIDE)
    yield ops.OpenWorkdir(WORKDIR)
    yield ops.CommandIds(draft.ids.command_uid, draft.ids.command_gid)
    if landlock is not None:
        yield ops.LandlockRuleset(landlock.handled_fs, landlock.handled_net, landlock.scoped)
        for name, access in landlock.rules:
            yield ops.LandlockRule(name.encode(), access)


def rlimits(limits: Limits, watched: bool) -> tuple[tuple[int, int], ...]:
    """Resource limits of every process of the sandbox. With ``watched`` they stand in for a cgroup, process by process."""
    always = (
        # One byte, not zero: with a core_pattern that is a pipe, zero still starts the host's handler with foreign data.
        (CORE, 1),
        (NOFILE, limits.open_files),
        (FSIZE, limits.file_size),
    )
    # The namespace counts its own processes: init and a shim are in that count beside the commands'. One second more than the
    # cap, so that the watcher comes first, and names it, where a single process used it all up.
    # Memory: what a process can fill by itself is bounded, not what it only reserves.
    instead = (
        (NPROC, limits.processes + 2),
        (DATA, limits.memory),
        (AS, limits.memory + _RESERVED),
        (CPU, limits.cpu_seconds + 1),
    )
    return always + instead if watched else always
