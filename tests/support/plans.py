"""Hypothesis strategies of operations, and a reader of plan bytes that shares no code with the writer."""
from __future__ import annotations

import struct
from typing import Any

from hypothesis import strategies as st

from supervisor.sandbox import ops

NOTHING = 0xFFFF_FFFF
u32 = st.integers(0, 2**32 - 2)
u64 = st.integers(0, 2**64 - 1)
owner = st.integers(-1, 2**32 - 2)
mode = st.integers(0, 0o7777)
fd = st.integers(0, 9)
FDS = 10  # descriptors that go with a generated plan
component = st.binary(min_size=1, max_size=12).map(lambda b: b.replace(b"/", b"_").replace(b"\0", b"0")).filter(
    lambda b: b not in (b".", b"..")
)
path = st.lists(component, max_size=4).map(lambda parts: b"/" + b"/".join(parts))
deeper = st.lists(component, min_size=1, max_size=4).map(lambda parts: b"/" + b"/".join(parts))
text = st.binary(min_size=1, max_size=40).map(lambda b: b.replace(b"\0", b"0"))
attributes = st.integers(0, 15)

operation: st.SearchStrategy[ops.Op] = st.one_of(
    st.builds(ops.CgroupJoin, fd),
    st.builds(ops.UnshareCgroup),
    st.builds(ops.TakeIds, u32, u32, st.booleans()),
    st.builds(ops.NewRoot, u64, u64),
    st.builds(ops.Dir, path, mode, owner, owner),
    st.builds(ops.File, path, st.binary(max_size=60), mode, owner, owner),
    st.builds(ops.Symlink, path, text),
    st.builds(ops.Bind, path, path, st.integers(0, 63)),
    st.builds(ops.Bind, path, path, st.just(ops.INSIDE | ops.RO)),
    st.builds(ops.MoveMount, fd, path, st.integers(0, 31)),
    st.builds(ops.MoveMount, fd, path, st.just(ops.OUTSIDE | ops.RO)),
    st.builds(ops.OpenBelow, fd, fd, path),
    st.builds(ops.Tmpfs, path, u64, u64, mode, attributes, owner, owner),
    st.builds(ops.Proc, path),
    st.builds(ops.DevPts, path),
    st.builds(ops.Mqueue, path),
    st.builds(ops.Overlay, path, fd, fd, fd, st.booleans(), st.booleans()),
    st.builds(ops.ReadOnly, path, st.sampled_from([0, ops.RECURSIVE])),
    st.builds(ops.HandOver, u64),
    st.builds(ops.BeginOverlays),
    st.builds(ops.AdoptRoot, fd),
    st.builds(ops.DropBounding),
    st.builds(ops.Pivot),
    st.builds(ops.Hostname, text),
    st.builds(ops.LoopbackUp),
    st.builds(ops.Keyring),
    st.builds(ops.Rlimit, st.integers(0, 15), u64, u64),
    st.builds(ops.OpenNetlink),
    st.builds(ops.OpenWorkdir, path),
    st.builds(ops.CommandIds, u32, u32),
    st.builds(ops.NonDumpable),
    st.builds(ops.DropCaps, u64),
    st.builds(ops.NoNewPrivs),
    st.builds(ops.LandlockRuleset, u64, u64, u64),
    st.builds(ops.LandlockRule, path, u64, st.sampled_from([0, ops.OPTIONAL])),
    st.builds(ops.LandlockEnforce),
    st.builds(ops.Seccomp, st.lists(st.binary(min_size=8, max_size=8), min_size=1, max_size=20).map(b"".join)),
)
plan = st.lists(operation, max_size=12)


def read_plan(data: bytes) -> tuple[int, list[ops.Op]]:
    """(descriptors, operations) of plan bytes, by the offsets of protocol.h."""
    magic, version, size, count, fds, arena, arena_size = struct.unpack_from("=8s6I", data)
    assert (magic, version, size, arena + arena_size) == (b"LEMNIPLN", 1, len(data), len(data))
    return fds, [_read(struct.unpack_from("=12I3Q", data, 32 + 72 * i), data[arena:]) for i in range(count)]


def _read(record: tuple[Any, ...], arena: bytes) -> ops.Op:
    kind, flags, fd0, fd1, fd2, perm, uid, gid, path_at, path_size, data_at, data_size, a, b, c = record
    at = arena[path_at : path_at + path_size]
    data = arena[data_at : data_at + data_size]
    who = (-1 if uid == NOTHING else uid, -1 if gid == NOTHING else gid)
    readers: dict[int, Any] = {
        1: lambda: ops.CgroupJoin(fd0),
        2: lambda: ops.UnshareCgroup(),
        3: lambda: ops.TakeIds(uid, gid, bool(flags & 64)),
        4: lambda: ops.NewRoot(a, b),
        5: lambda: ops.Dir(at, perm, *who),
        6: lambda: ops.File(at, data, perm, *who),
        7: lambda: ops.Symlink(at, data),
        8: lambda: ops.Bind(data, at, flags),
        9: lambda: ops.MoveMount(fd0, at, flags),
        10: lambda: ops.Tmpfs(at, a, b, perm, flags, *who),
        11: lambda: ops.Proc(at),
        12: lambda: ops.DevPts(at),
        13: lambda: ops.Mqueue(at),
        14: lambda: ops.Overlay(at, fd0, fd1, fd2, bool(flags & 128), bool(flags & 256)),
        15: lambda: ops.ReadOnly(at, flags),
        16: lambda: ops.HandOver(a),
        17: lambda: ops.Pivot(),
        18: lambda: ops.Hostname(data),
        19: lambda: ops.LoopbackUp(),
        20: lambda: ops.Keyring(),
        21: lambda: ops.Rlimit(a, b, c),
        22: lambda: ops.OpenNetlink(),
        23: lambda: ops.OpenWorkdir(at),
        24: lambda: ops.CommandIds(uid, gid),
        25: lambda: ops.NonDumpable(),
        26: lambda: ops.DropCaps(a),
        27: lambda: ops.NoNewPrivs(),
        28: lambda: ops.LandlockRuleset(a, b, c),
        29: lambda: ops.LandlockRule(at, a, flags),
        30: lambda: ops.LandlockEnforce(),
        31: lambda: ops.Seccomp(data),
        32: lambda: ops.OpenBelow(fd0, fd1, at),
        33: lambda: ops.BeginOverlays(),
        34: lambda: ops.AdoptRoot(fd0),
        35: lambda: ops.DropBounding(),
    }
    found: ops.Op = readers[kind]()
    return found
