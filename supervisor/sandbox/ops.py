"""The operations of a plan: what the sandbox's init carries out, one after the other, choosing nothing.

``plan.py`` decides the list outside; ``wire.py`` turns it into bytes; ``native/init`` executes it. One dataclass an
operation; the number of each kind is its wire number and is compared with ``native/init/protocol.h`` in a test.
Paths are bytes and absolute in the view they name: *new* = beneath the new root, *host* = of the old root before pivot.
``fd`` fields are indexes into the descriptors that travel with the plan.
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

# Flags of Bind, Tmpfs, MoveMount: mount attributes to set on the new mount
RO = 1
NOSUID = 2
NODEV = 4
NOEXEC = 8
ATTRIBUTES = RO | NOSUID | NODEV | NOEXEC  # the same bits as MOUNT_ATTR_* of mount_setattr(2)
RECURSIVE = 16  # Bind: with the mounts below it
OUTSIDE = 512  # MoveMount: see there
INSIDE = 1024  # Bind: the source is a path of the new view
OPTIONAL = 32  # Bind, LandlockRule: absent source is skipped in silence because the *plan* said it may be absent


@dataclass(frozen=True, slots=True)
class Op:
    """Base of all operations."""

    KIND: ClassVar[int] = 0


@dataclass(frozen=True, slots=True)
class CgroupJoin(Op):
    """Write "0" to the v1 ``tasks`` file behind ``fd``: the writing thread joins, without an RCU grace period."""

    KIND: ClassVar[int] = 1
    fd: int


@dataclass(frozen=True, slots=True)
class UnshareCgroup(Op):
    """Unshare the cgroup namespace, after the joins, so that /proc/self/cgroup shows "/"."""

    KIND: ClassVar[int] = 2


@dataclass(frozen=True, slots=True)
class TakeIds(Op):
    """Become these ids of the own user namespace, keeping capabilities; supplementary groups are cleared.

    ``setgroups`` is skipped where it is denied (an unprivileged map): ``clear_groups`` says which.
    """

    KIND: ClassVar[int] = 3
    uid: int
    gid: int
    clear_groups: bool


@dataclass(frozen=True, slots=True)
class NewRoot(Op):
    """Make all mounts private, mount a tmpfs as the new root (mode 755) and stand in it. Size in bytes."""

    KIND: ClassVar[int] = 4
    size: int
    inodes: int


@dataclass(frozen=True, slots=True)
class Dir(Op):
    """mkdir beneath the new root, with parents (755). An existing directory is accepted. Owner: -1 keeps init's."""

    KIND: ClassVar[int] = 5
    path: bytes
    mode: int = 0o755
    uid: int = -1
    gid: int = -1


@dataclass(frozen=True, slots=True)
class File(Op):
    """A new file beneath the new root with this content."""

    KIND: ClassVar[int] = 6
    path: bytes
    content: bytes
    mode: int = 0o644
    uid: int = -1
    gid: int = -1


@dataclass(frozen=True, slots=True)
class Symlink(Op):
    """A symbolic link beneath the new root."""

    KIND: ClassVar[int] = 7
    path: bytes
    target: bytes


@dataclass(frozen=True, slots=True)
class Bind(Op):
    """open_tree(CLONE) of host ``source`` (never following a final symlink), attributes set, moved onto new ``target``.

    The target is made (directory, or an empty node by mknodat) when missing.
    """

    KIND: ClassVar[int] = 8
    source: bytes
    target: bytes
    flags: int


@dataclass(frozen=True, slots=True)
class MoveMount(Op):
    """move_mount of the detached mount behind ``fd`` (made by the supervisor, e.g. idmapped) onto new ``target``.

    With OUTSIDE, before Pivot: hung over the old root, with which it goes; ``target`` is not looked at. For a layer of an
    overlay, which then names it by the same ``fd``, or for a mount that holds layers (``OpenBelow``).
    """

    KIND: ClassVar[int] = 9
    fd: int
    target: bytes
    flags: int


@dataclass(frozen=True, slots=True)
class Tmpfs(Op):
    """A tmpfs on new ``target``, always nosuid and nodev. Size in bytes; owner as for Dir."""

    KIND: ClassVar[int] = 10
    target: bytes
    size: int
    inodes: int
    mode: int
    flags: int = 0
    uid: int = -1
    gid: int = -1


@dataclass(frozen=True, slots=True)
class Proc(Op):
    """A fresh proc on new ``target`` (nosuid, nodev, noexec)."""

    KIND: ClassVar[int] = 11
    target: bytes


@dataclass(frozen=True, slots=True)
class DevPts(Op):
    """A new devpts instance on new ``target`` (ptmxmode=666, mode=620)."""

    KIND: ClassVar[int] = 12
    target: bytes


@dataclass(frozen=True, slots=True)
class Mqueue(Op):
    """A mqueue file system of the own ipc namespace on new ``target``."""

    KIND: ClassVar[int] = 13
    target: bytes


@dataclass(frozen=True, slots=True)
class Overlay(Op):
    """An overlay on new ``target``, its layers named as /proc/self/fd/N so that mountinfo shows no host path.
    """

    KIND: ClassVar[int] = 14
    target: bytes
    lower: int
    upper: int
    work: int
    userxattr: bool = True
    volatile: bool = True


@dataclass(frozen=True, slots=True)
class ReadOnly(Op):
    """mount_setattr RDONLY on new ``target`` (after its content was made); recursive with the RECURSIVE flag."""

    KIND: ClassVar[int] = 15
    target: bytes
    flags: int = 0


@dataclass(frozen=True, slots=True)
class Pivot(Op):
    """pivot_root into the new root and detach the old one. From here on *new* paths are absolute paths."""

    KIND: ClassVar[int] = 17


@dataclass(frozen=True, slots=True)
class Hostname(Op):
    """sethostname."""

    KIND: ClassVar[int] = 18
    name: bytes


@dataclass(frozen=True, slots=True)
class LoopbackUp(Op):
    """Raise ``lo`` (only where the profile says so)."""

    KIND: ClassVar[int] = 19


@dataclass(frozen=True, slots=True)
class Keyring(Op):
    """Join a fresh session keyring (keyrings cross every namespace)."""

    KIND: ClassVar[int] = 20


@dataclass(frozen=True, slots=True)
class Rlimit(Op):
    """setrlimit on init, inherited by commands. RLIM_INFINITY is 2**64 - 1."""

    KIND: ClassVar[int] = 21
    resource: int
    soft: int
    hard: int


@dataclass(frozen=True, slots=True)
class OpenNetlink(Op):
    """Enter the own network namespace and open an AF_NETLINK/ROUTE socket of it, for HandOver."""

    KIND: ClassVar[int] = 22


@dataclass(frozen=True, slots=True)
class OpenWorkdir(Op):
    """Open this new directory (O_PATH|O_DIRECTORY), kept for HandOver and for each command's start."""

    KIND: ClassVar[int] = 23
    path: bytes


@dataclass(frozen=True, slots=True)
class CommandIds(Op):
    """Ids that commands take (setresgid, setresuid in the child). Equal to init's where one id only is mapped."""

    KIND: ClassVar[int] = 24
    uid: int
    gid: int


@dataclass(frozen=True, slots=True)
class NonDumpable(Op):
    """PR_SET_DUMPABLE 0, then PR_SET_PDEATHSIG SIGKILL (the second belt; the first is end of file)."""

    KIND: ClassVar[int] = 25


@dataclass(frozen=True, slots=True)
class DropCaps(Op):
    """Keep only ``keep`` (bit mask) permitted and effective; empty bounding, ambient and inheritable sets; lock securebits.

    The bounding set is emptied here unless ``DropBounding`` did it.
    """

    KIND: ClassVar[int] = 26
    keep: int


@dataclass(frozen=True, slots=True)
class NoNewPrivs(Op):
    """PR_SET_NO_NEW_PRIVS."""

    KIND: ClassVar[int] = 27


@dataclass(frozen=True, slots=True)
class LandlockRuleset(Op):
    """landlock_create_ruleset with these masks (already downgraded to the kernel's ABI by ``profiles``)."""

    KIND: ClassVar[int] = 28
    handled_fs: int
    handled_net: int
    scoped: int


@dataclass(frozen=True, slots=True)
class LandlockRule(Op):
    """A path-beneath rule on a path of the new view, for what stands there now."""

    KIND: ClassVar[int] = 29
    path: bytes
    access: int
    flags: int = 0


@dataclass(frozen=True, slots=True)
class LandlockEnforce(Op):
    """landlock_restrict_self with the ruleset made before."""

    KIND: ClassVar[int] = 30


@dataclass(frozen=True, slots=True)
class Seccomp(Op):
    """Load this BPF program (array of struct sock_filter) for init and all it starts. The last operation of a plan."""

    KIND: ClassVar[int] = 31
    program: bytes


@dataclass(frozen=True, slots=True)
class OpenBelow(Op):
    """Put directory ``path`` below ``base`` (a mount moved OUTSIDE) in the place of descriptor ``fd``; both are fd indexes."""

    KIND: ClassVar[int] = 32
    base: int
    fd: int
    path: bytes


@dataclass(frozen=True, slots=True)
class BeginOverlays(Op):
    """Begin to make the overlays of this plan on a thread beside; their own steps attach them. Their layers are there."""

    KIND: ClassVar[int] = 33


@dataclass(frozen=True, slots=True)
class AdoptRoot(Op):
    """As NewRoot, with the detached tree behind ``fd`` in place of an empty tmpfs."""

    KIND: ClassVar[int] = 34
    fd: int


@dataclass(frozen=True, slots=True)
class DropBounding(Op):
    """Empty the bounding set: forty system calls, which may be done while something is waited for."""

    KIND: ClassVar[int] = 35


@dataclass(frozen=True, slots=True)
class HandOver(Op):
    """Answer this request of ``wire`` unasked: HAND_WORKDIR; HAND_NETLINK, a socket that init does not keep; HAND_ROOT, a
    detached clone of the new root with all that is mounted in it.
    """

    KIND: ClassVar[int] = 16
    what: int
