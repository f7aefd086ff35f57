"""The plan's order and shape: what stands before what, for every kind of sandbox."""
from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiles.landlock import Compiled
from profiles.load import shipped
from supervisor.sandbox import ops, wire
from supervisor.sandbox.groups import CgroupHost
from supervisor.sandbox.ids import ordinary, privileged
from supervisor.sandbox.machine import Entry, HostFacts, HostView
from supervisor.sandbox.ops import Op
from supervisor.sandbox.plan import (
    AS,
    CORE,
    CPU,
    DATA,
    NPROC,
    Draft,
    Layers,
    base,
    build,
    copy_descriptors,
    etc_files,
    rest,
    rlimits,
)
from supervisor.sandbox.spec import Limits, PlainCopy

NONE = 2**64 - 1
HOST = HostFacts(
    uid=1000, gid=1000, privileged=False, machine="x86_64", kernel="6.1", namespaces_missing=(), switches=(), proc_covered=(),
    seccomp=True, landlock_abi=7, apparmor=False, cgroups=CgroupHost(0), hard_limits=tuple((n, NONE) for n in range(16)),
    view=HostView(
        trees=(Entry(b"/bin", target=b"usr/bin"), Entry(b"/usr", b"/usr")),
        etc=(Entry(b"/etc/ssl/certs", b"/etc/ssl/certs"), Entry(b"/etc/timezone", content=b"UTC\n")),
        devices=(b"/dev/null",), masked_files=(b"/proc/keys",), masked_directories=(b"/proc/acpi",), read_only=(b"/proc/sys",),
    ),
    layers=(),
)  # fmt: skip
LANDLOCK = Compiled(3, 0, 0, (("/", 1), ("/workspace", 3)))
DRAFT = Draft(
    host=HOST, profile=shipped(), ids=ordinary(1000, 1000), limits=Limits(), copies=(Layers(b"/workspace", b"upper", b"work"),),
    files=((b"/home/agent/.gitconfig", b"x"),), loopback=False, joins=0, watched=True, detached=False,
)  # fmt: skip


def position(plan: tuple[Op, ...], kind: type[Op]) -> int:
    found = [i for i, op in enumerate(plan) if isinstance(op, kind)]
    assert found, kind
    return found[0]


OVERLAYS = (Layers(b"/workspace", b"u", b"w"), Layers(b"/gitdir", b"u2", b"w2"))
drafts = st.builds(
    lambda root, idmap, joins, loopback, plain: replace(
        DRAFT,
        ids=privileged(3, 0, 0, idmap) if root else ordinary(1000, 1000),
        joins=joins if root else 0,
        watched=joins == 0 or not root,
        loopback=loopback,
        detached=root,
        copies=(PlainCopy(b"/scratch/copy", b"/workspace"),) if plain else OVERLAYS,
    ),
    st.booleans(), st.booleans(), st.integers(0, 4), st.booleans(), st.booleans(),
)  # fmt: skip


@given(drafts)
def test_every_plan_keeps_the_order_that_safety_needs(draft: Draft) -> None:
    plan = build(draft, LANDLOCK, b"\x06\x00\x00\x00\x00\x00\xff\x7f")
    assert isinstance(plan[-1], ops.Seccomp)  # it forbids what stands before it
    assert position(plan, ops.TakeIds) < position(plan, ops.NewRoot) < position(plan, ops.Pivot)
    assert position(plan, ops.Pivot) < position(plan, ops.OpenWorkdir)
    assert position(plan, ops.NonDumpable) < position(plan, ops.DropCaps) < position(plan, ops.NoNewPrivs)
    assert position(plan, ops.NoNewPrivs) < position(plan, ops.LandlockRuleset) < position(plan, ops.LandlockEnforce)
    assert position(plan, ops.OpenNetlink) < len(plan) - 1
    if draft.joins:
        assert position(plan, ops.CgroupJoin) + draft.joins == position(plan, ops.UnshareCgroup) < position(plan, ops.Pivot)
    assert any(isinstance(op, ops.LoopbackUp) for op in plan) is draft.loopback
    keep = next(op.keep for op in plan if isinstance(op, ops.DropCaps))
    assert keep == (0 if draft.ids.shared else 0b11100000)


@given(drafts)
def test_every_plan_can_be_sent(draft: Draft) -> None:
    plan = build(draft, LANDLOCK, b"\x06\x00\x00\x00\x00\x00\xff\x7f")
    fds = draft.joins + sum(copy_descriptors(copy, draft.detached) for copy in draft.copies)
    assert wire.encode_plan(plan, fds).startswith(b"LEMNIPLN")
    used = {op.fd for op in plan if isinstance(op, ops.CgroupJoin | ops.MoveMount)}
    for op in plan:
        if isinstance(op, ops.Overlay):
            used |= {op.lower, op.upper, op.work}
    assert used == set(range(fds))


@given(drafts)
def test_the_base_needs_no_descriptor_and_no_copy(draft: Draft) -> None:
    assert wire.encode_plan(base(draft), 0)
    assert base(draft) == base(replace(draft, copies=(), files=(), joins=0))
    assert (*base(draft), *rest(draft, LANDLOCK, b"")) == build(draft, LANDLOCK, b"")


@given(drafts)
def test_nothing_of_the_host_is_writable(draft: Draft) -> None:
    for op in build(draft, LANDLOCK, b""):
        if isinstance(op, ops.Bind) and not op.source.startswith((b"/dev/", b"/scratch/")):
            assert op.flags & ops.RO
        if isinstance(op, ops.Bind) and not op.source.startswith(b"/dev/"):
            assert op.flags & ops.NODEV
        if isinstance(op, ops.Bind):
            assert op.flags & ops.NOSUID


def test_a_link_stays_a_link_and_a_small_file_is_copied() -> None:
    plan = build(DRAFT, None, b"")
    assert ops.Symlink(b"/bin", b"usr/bin") in plan
    assert ops.File(b"/etc/timezone", b"UTC\n") in plan
    assert not any(isinstance(op, ops.LandlockRuleset) for op in plan)


def test_the_account_is_the_commands_id() -> None:
    files = dict(etc_files(privileged(0, 1234, 55, True), b"box"))
    assert b"agent:x:1234:55:agent:/home/agent:/bin/bash\n" in files[b"passwd"]
    assert b"agent:x:55:\n" in files[b"group"]
    assert files[b"hostname"] == b"box\n"


@pytest.mark.parametrize(("watched", "present"), [(True, True), (False, False)])
def test_resource_limits_stand_in_where_no_group_counts(watched: bool, present: bool) -> None:
    values = dict(rlimits(replace(Limits(), processes=10, memory=1000, cpu_seconds=7), watched))
    assert values[CORE] == 1
    assert (NPROC in values) is present
    if present:
        assert (values[NPROC], values[DATA], values[CPU]) == (12, 1000, 8)
        assert values[AS] > 1 << 39


def test_a_hard_limit_of_the_caller_is_not_exceeded() -> None:
    host = replace(HOST, hard_limits=tuple((n, 100) for n in range(16)))
    limits = [op for op in build(replace(DRAFT, host=host), None, b"") if isinstance(op, ops.Rlimit)]
    assert all(op.soft == op.hard <= 100 for op in limits)
