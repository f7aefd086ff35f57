"""From what is wanted to what init has to do: pure functions, and the only place where the order is decided.

The list reads from outside to inside. The *base*: become nobody of the host, build a root that holds only what the profile
names. The *rest*: join the groups, put the working copies in, pivot, then give up, one layer after the other, everything that
was needed to build; seccomp comes last because it forbids most of what stands before it. The base is the same for all
sandboxes of one kind, so that a warm one has it already; otherwise both go as one plan.

Descriptors travel in a fixed order: the cgroups' ``tasks`` files, then for each working copy those of ``copy_descriptors``.
"""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from profiles.landlock import Compiled
from profiles.model import Profile
from supervisor.sandbox import ops
from supervisor.sandbox.ids import IdPlan
from supervisor.sandbox.machine import Entry, HostFacts
from supervisor.sandbox.ops import NODEV, NOEXEC, NOSUID, OUTSIDE, RECURSIVE, RO, Op
from supervisor.sandbox.spec import HOME, WORKDIR, Limits, PlainCopy

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


def copy_descriptors(copy: Layers | PlainCopy, detached: bool) -> int:
    """How many descriptors this copy takes: lower, upper, work (and, detached, their scratch); or the mount; or none."""
    return 3 + detached if isinstance(copy, Layers) else int(detached)


def base(draft: Draft) -> tuple[Op, ...]:
    """The part that knows no working copy and no group."""
    return (
        ops.TakeIds(draft.ids.init_uid, draft.ids.init_gid, clear_groups=not draft.ids.setgroups_denied),
        *_root(draft),
        *_etc(draft),
        *_devices(draft),
        *_proc(draft),
        *_scratch(draft),
        *_kernel(draft),
    )


def rest(draft: Draft, landlock: Compiled | None, seccomp: bytes) -> tuple[Op, ...]:
    """What makes the base a sandbox, with these compiled rules and this BPF program."""
    return (
        *_groups(draft),
        *_files(draft),
        *_copies(draft),
        ops.Pivot(),
        ops.ReadOnly(b"/"),
        *_renounce(draft),
        *_confine(landlock, seccomp),
    )


def build(draft: Draft, landlock: Compiled | None, seccomp: bytes) -> tuple[Op, ...]:
    """The whole plan in one."""
    return (*base(draft), *rest(draft, landlock, seccomp))


def _groups(draft: Draft) -> Iterator[Op]:
    for index in range(draft.joins):
        yield ops.CgroupJoin(index)
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
    yield ops.Dir(b"/dev/pts")
    yield ops.DevPts(b"/dev/pts")
    yield ops.Dir(b"/dev/shm")
    yield ops.Dir(b"/dev/mqueue")
    yield ops.Mqueue(b"/dev/mqueue")


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


def _copies(draft: Draft) -> Iterator[Op]:
    fd = draft.joins
    for copy in draft.copies:
        yield ops.Dir(copy.target)
        if isinstance(copy, Layers):
            if draft.detached:
                # An overlay takes layers of init's own mount namespace only; so the mounts are hung there for a moment.
                yield ops.MoveMount(fd, b"/", _SHARED | OUTSIDE)
                yield ops.MoveMount(fd + 3, b"/", NOSUID | NODEV | OUTSIDE)
                yield ops.OpenBelow(fd + 3, fd + 1, b"/" + copy.upper)
                yield ops.OpenBelow(fd + 3, fd + 2, b"/" + copy.work)
            yield ops.Overlay(copy.target, fd, fd + 1, fd + 2)
        elif draft.detached:
            yield ops.MoveMount(fd, copy.target, NOSUID | NODEV)
        else:
            yield ops.Bind(copy.path, copy.target, NOSUID | NODEV)
        fd += copy_descriptors(copy, draft.detached)


def _kernel(draft: Draft) -> Iterator[Op]:
    """What is neither a file nor a layer: names, keys, the socket to look at the network through, limits of each process."""
    yield ops.Hostname(draft.profile.view.hostname.encode())
    if draft.loopback:
        yield ops.LoopbackUp()
    yield ops.Keyring()
    yield ops.OpenNetlink()
    for which, value in rlimits(draft.limits, draft.watched):
        value = min(value, draft.host.hard_limit(which))
        yield ops.Rlimit(which, value, value)


def _renounce(draft: Draft) -> Iterator[Op]:
    for path in draft.host.view.read_only:
        yield ops.Bind(path, path, RO | NOSUID | NODEV | NOEXEC | RECURSIVE)
    yield ops.OpenWorkdir(WORKDIR)
    yield ops.CommandIds(draft.ids.command_uid, draft.ids.command_gid)
    yield ops.NonDumpable()
    keep = 0 if draft.ids.shared else 1 << CAP_KILL | 1 << CAP_SETGID | 1 << CAP_SETUID
    yield ops.DropCaps(keep)
    yield ops.NoNewPrivs()


def _confine(landlock: Compiled | None, seccomp: bytes) -> Iterator[Op]:
    if landlock is not None:
        yield ops.LandlockRuleset(landlock.handled_fs, landlock.handled_net, landlock.scoped)
        for path, access in landlock.rules:
            yield ops.LandlockRule(path.encode(), access)
        yield ops.LandlockEnforce()
    yield ops.Seccomp(seccomp)


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
