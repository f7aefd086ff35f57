"""Plans, requests and replies as bytes: the Python half of ``native/init/protocol.h``.

Pure. ``encode_plan`` turns the operations of ``ops.py`` into one header, fixed-size records and one arena; ``encode_run``
does the same for a command; ``decode_reply`` turns a record of the init into a frozen value. The init checks all of it
again, since it is the side that holds the privilege; a test compares the numbers here with the header's.
"""
from __future__ import annotations

import enum
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from supervisor.errors import ChannelBroken, InternalError
from supervisor.sandbox import ops

VERSION = 1
MAGIC = b"LEMNIPLN"
NOTHING = 0xFFFF_FFFF
INLINE_MAX = 60 * 1024  # a larger payload travels in a sealed memfd
PAYLOAD_MAX = 2 * 1024 * 1024 + 128 * 1024
OPS_MAX = 4096
FDS_MAX = 200
PATH_MAX = 4095
ARGC_MAX = 65536
RLIMITS_MAX = 16
COMMANDS_MAX = 1024

HEADER = struct.Struct("=8s6I")
OP = struct.Struct("=12I3Q")
REQUEST = struct.Struct("=IIQII")
RUN = struct.Struct("=4I")
RUN_LIMIT = struct.Struct("=IIQQ")
REPLY = struct.Struct("=IIQiI3Q")

CLEAR_GROUPS = 64  # flags beyond those of ops.py
USERXATTR = 128
VOLATILE = 256


class Request(enum.IntEnum):
    """What the supervisor asks of the init."""

    GO = 1
    RUN = 2
    SIGNAL = 3
    KILL = 4
    KILL_ALL = 5
    HAND_WORKDIR = 6
    HAND_NETLINK = 7
    SHUTDOWN = 8
    HAND_ROOT = 9


IN_MEMFD = 1
ANNOUNCE = 2
MORE = 4
QUIET = 8


class Stage(enum.IntEnum):
    """How far a command came that could not be started."""

    REQUEST = 1
    FORK = 2
    SESSION = 3
    STDIO = 4
    LIMITS = 5
    IDS = 6
    CWD = 7
    EXEC = 8


class PlanFault(enum.IntEnum):
    """Why the init did not begin a plan: a bug of ours, but for ``NETWORK``, which is the host's."""

    NONE = 0
    HEADER = 1
    KIND = 2
    FLAGS = 3
    FD = 4
    ID = 5
    PATH = 6
    DATA = 7
    NUMBER = 8
    MESSAGE = 9
    NETWORK = 10  # no fault of the plan: the errno says why there is no network namespace


# --- replies ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ready:
    """What was sent of the plan was carried out."""


@dataclass(frozen=True, slots=True)
class Failed:
    """Step number ``step`` of a part of the plan (None: it was not begun, ``fault`` says why) failed with ``errno``."""

    step: int | None
    kind: int
    errno: int
    fault: PlanFault
    part: int = 0


@dataclass(frozen=True, slots=True)
class Started:
    """execve of command ``id`` succeeded (only when asked for). ``pid`` is the number inside."""

    id: int
    pid: int


@dataclass(frozen=True, slots=True)
class RunFailed:
    """Command ``id`` could not be started. ``Gone`` follows."""

    id: int
    stage: Stage
    errno: int


@dataclass(frozen=True, slots=True)
class Exited:
    """The first process of command ``id`` ended; what it left in the background may live on. ``Gone`` follows.

    ``status`` is the wait status (os.waitstatus_to_exitcode); times in microseconds, with those of the children it
    waited for; ``max_rss`` in bytes.
    """

    id: int
    status: int
    utime_us: int
    stime_us: int
    max_rss: int


@dataclass(frozen=True, slots=True)
class Gone:
    """No process of command ``id`` is left. Exactly one for each RUN, the last word on it.

    ``told`` is False where neither Exited nor RunFailed came before: the command was killed with KILL_ALL, or it killed
    the process that watched it.
    """

    id: int
    told: bool


@dataclass(frozen=True, slots=True)
class Killed:
    """KILL or KILL_ALL was carried out: SIGKILL is under way to ``count`` processes. ``Gone`` follows."""

    id: int
    count: int


@dataclass(frozen=True, slots=True)
class Signalled:
    """Answer to SIGNAL; ``errno`` is 0, or ESRCH: its first process has ended, or is not there yet (before Started)."""

    id: int
    errno: int


@dataclass(frozen=True, slots=True)
class Handed:
    """The descriptor that ``request`` asked for came with this record."""

    request: Request


@dataclass(frozen=True, slots=True)
class Refused:
    """A request that was not carried out: unknown (ENOSYS), malformed (EPROTO), no such command (ESRCH), …"""

    request: int
    id: int
    errno: int


Reply = Ready | Failed | Started | RunFailed | Exited | Gone | Killed | Signalled | Handed | Refused

_DECODERS: dict[int, Callable[[int, int, int, int, int, int, int], Reply]] = {
    1: lambda code, id, error, detail, a, b, c: Ready(),
    2: lambda code, id, error, detail, a, b, c: Failed(None if code == NOTHING else code, detail, error, PlanFault(a), b),
    3: lambda code, id, error, detail, a, b, c: Started(id, code),
    4: lambda code, id, error, detail, a, b, c: RunFailed(id, Stage(code), error),
    5: lambda code, id, error, detail, a, b, c: Exited(id, code, a, b, c),
    6: lambda code, id, error, detail, a, b, c: Gone(id, code != 0),
    7: lambda code, id, error, detail, a, b, c: Killed(id, code),
    8: lambda code, id, error, detail, a, b, c: Signalled(id, error),
    9: lambda code, id, error, detail, a, b, c: Handed(Request(code)),
    10: lambda code, id, error, detail, a, b, c: Refused(code, id, error),
}


def decode_reply(record: bytes) -> Reply:
    """One record of the init. Raises ChannelBroken for anything else than a record of the protocol."""
    if len(record) != REPLY.size:
        raise ChannelBroken("reading a record of the sandbox's init", why=f"{len(record)} bytes instead of {REPLY.size}")
    kind, code, id, error, detail, a, b, c = REPLY.unpack(record)
    try:
        return _DECODERS[kind](code, id, error, detail, a, b, c)
    except (KeyError, ValueError):
        raise ChannelBroken("reading a record of the sandbox's init", why=f"unknown record {record.hex()}") from None


# --- requests --------------------------------------------------------------------------------------------------------


def encode_request(kind: Request, id: int = 0, *, argument: int = 0, flags: int = 0, size: int = 0) -> bytes:
    """The fixed part of a request; a payload of ``size`` bytes follows it, or is in a memfd (``IN_MEMFD``)."""
    return REQUEST.pack(kind, flags, id, argument, size)


def encode_run(
    argv: Sequence[bytes],
    environment: Sequence[tuple[bytes, bytes]],
    cwd: bytes = b".",
    limits: Sequence[tuple[int, int, int]] = (),
) -> bytes:
    """Payload of RUN. ``argv[0]`` is an absolute path inside; ``cwd`` relative to the working directory; ``limits`` are
    (resource, soft, hard). Raises ValueError for what no execve could take: a NUL, an empty argv, more than 2 MiB."""
    variables = [name + b"=" + value for name, value in environment]
    strings = [cwd or b".", *argv, *variables]
    text = b"\0".join(strings) + b"\0"
    if not argv or len(argv) + len(variables) > ARGC_MAX:
        raise ValueError(f"{len(argv)} arguments and {len(variables)} variables")
    if text.count(b"\0") != len(strings):
        raise ValueError("a NUL byte in an argument, a variable or the working directory")
    if len(limits) > RLIMITS_MAX:
        raise ValueError(f"{len(limits)} limits")
    payload = b"".join(
        [RUN.pack(len(argv), len(variables), len(limits), 0), *(RUN_LIMIT.pack(r, 0, s, h) for r, s, h in limits), text]
    )
    if len(payload) > PAYLOAD_MAX:
        raise ValueError(f"arguments and environment of {len(payload)} bytes")
    return payload


# --- the plan --------------------------------------------------------------------------------------------------------


class _Arena:
    """The texts of a plan, each once, each NUL-terminated."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.size = 0
        self.known: dict[bytes, int] = {}

    def place(self, text: bytes) -> tuple[int, int]:
        offset = self.known.get(text)
        if offset is None:
            offset = self.known[text] = self.size
            self.parts.append(text)
            self.size += len(text) + 1
        return offset, len(text)

    def bytes(self) -> bytes:
        return b"\0".join([*self.parts, b""]) if self.parts else b""


def _id(value: int) -> int:
    return NOTHING if value == -1 else value


def _fields(op: ops.Op) -> dict[str, Any]:
    """The fields of the record that this kind of operation uses; the others keep their neutral values."""
    match op:
        case ops.CgroupJoin(fd):
            return {"fd": (fd,)}
        case ops.TakeIds(uid, gid, clear):
            return {"uid": uid, "gid": gid, "flags": CLEAR_GROUPS if clear else 0}
        case ops.NewRoot(size, inodes):
            return {"number": (size, inodes)}
        case ops.Dir(path, mode, uid, gid):
            return {"path": path, "mode": mode, "uid": _id(uid), "gid": _id(gid)}
        case ops.File(path, content, mode, uid, gid):
            return {"path": path, "data": content, "mode": mode, "uid": _id(uid), "gid": _id(gid)}
        case ops.Symlink(path, target):
            return {"path": path, "data": target}
        case ops.Bind(source, target, flags):
            return {"path": target, "data": source, "flags": flags}
        case ops.MoveMount(fd, target, flags):
            return {"fd": (fd,), "path": target, "flags": flags}
        case ops.Tmpfs(target, size, inodes, mode, flags, uid, gid):
            return {"path": target, "number": (size, inodes), "mode": mode, "flags": flags, "uid": _id(uid), "gid": _id(gid)}
        case ops.Proc(target) | ops.DevPts(target) | ops.Mqueue(target):
            return {"path": target}
        case ops.Overlay(target, lower, upper, work, userxattr, volatile):
            flags = (USERXATTR if userxattr else 0) | (VOLATILE if volatile else 0)
            return {"path": target, "fd": (lower, upper, work), "flags": flags}
        case ops.ReadOnly(target, flags):
            return {"path": target, "flags": flags}
        case ops.Hostname(name):
            return {"data": name}
        case ops.Rlimit(resource, soft, hard):
            return {"number": (resource, soft, hard)}
        case ops.OpenWorkdir(path):
            return {"path": path}
        case ops.CommandIds(uid, gid):
            return {"uid": uid, "gid": gid}
        case ops.DropCaps(keep):
            return {"number": (keep,)}
        case ops.LandlockRuleset(fs, net, scoped):
            return {"number": (fs, net, scoped)}
        case ops.LandlockRule(path, access, flags):
            return {"path": path, "number": (access,), "flags": flags}
        case ops.Seccomp(program):
            return {"data": program}
        case ops.HandOver(what):
            return {"number": (what,)}
        case ops.AdoptRoot(fd):
            return {"fd": (fd,)}
        case ops.OpenBelow(base, fd, path):
            return {"fd": (base, fd), "path": path}
        case (
            ops.UnshareCgroup() | ops.Pivot() | ops.LoopbackUp() | ops.Keyring() | ops.OpenNetlink() | ops.NonDumpable()
            | ops.NoNewPrivs() | ops.LandlockEnforce() | ops.BeginOverlays()
            | ops.DropBounding()
        ):
            return {}
    raise InternalError("encoding a plan", on=type(op).__name__, why="unknown operation")


def _record(op: ops.Op, arena: _Arena) -> bytes:
    fields = _fields(op)
    fds = (*fields.get("fd", ()), NOTHING, NOTHING, NOTHING)[:3]
    numbers = (*fields.get("number", ()), 0, 0, 0)[:3]
    path = arena.place(fields["path"]) if "path" in fields else (0, 0)
    data = arena.place(fields["data"]) if "data" in fields else (0, 0)
    ids = (fields.get("uid", NOTHING), fields.get("gid", NOTHING))
    return OP.pack(op.KIND, fields.get("flags", 0), *fds, fields.get("mode", 0), *ids, *path, *data, *numbers)


def encode_plan(operations: Sequence[ops.Op], fds: int) -> bytes:
    """The plan as the init reads it. ``fds`` is the number of descriptors that will travel with it.

    Raises InternalError for a plan that the protocol cannot carry (a number out of its field, too large).
    """
    arena = _Arena()
    try:
        records = b"".join([_record(op, arena) for op in operations])
    except struct.error as error:
        raise InternalError("encoding a plan", why=str(error)) from error
    start = HEADER.size + len(records)
    size = start + arena.size
    if len(operations) > OPS_MAX or fds > FDS_MAX or size > PAYLOAD_MAX:
        raise InternalError("encoding a plan", why=f"{len(operations)} operations, {fds} descriptors, {size} bytes")
    return HEADER.pack(MAGIC, VERSION, size, len(operations), fds, start, arena.size) + records + arena.bytes()
