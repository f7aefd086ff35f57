"""The plan's order and shape: what stands before what, for every kind of sandbox."""
from __future__ import annotations

import os
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiles.landlock import Compiled
from supervisor.sandbox import ops, wire
from supervisor.sandbox.ids import holding, ordinary, privileged
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
    descriptors,
    etc_files,
    late,
    rlimits,
    seal,
    template,
    whole,
)
from supervisor.sandbox.spec import Limits, PlainCopy
from supervisor.sandbox.wire import Request
from support.drafts import DRAFT, HOST

LANDLOCK = Compiled(3, 0, 0, (("/", 1), ("/workspace", 3)))
SECCOMP = b"\x06\x00\x00\x00\x00\x00\xff\x7f"


def build(draft: Draft, landlock: Compiled | None = LANDLOCK, seccomp: bytes = SECCOMP) -> tuple[Op, ...]:
    """Everything that init carries out, both parts."""
    return (*whole(draft, landlock), *seal(draft, landlock, seccomp))


def position(plan: tuple[Op, ...], kind: type[Op]) -> int:
    found = [i for i, op in enumerate(plan) if isinstance(op, kind)]
    assert found, kind
    return found[0]


OVERLAYS = (Layers(b"/workspace", b"u", b"w"), Layers(b"/gitdir", b"u2", b"w2"))
drafts = st.builds(
    lambda root, idmap, joins, loopback, plain, adopted: replace(
        DRAFT,
        ids=privileged(3, 0, 0, idmap) if root else ordinary(1000, 1000),
        joins=joins if root else 0,
        watched=joins == 0 or not root,
        loopback=loopback,
        detached=root,
        adopted=adopted,
        copies=(PlainCopy(b"/scratch/copy", b"/workspace"),) if plain else OVERLAYS,
    ),
    st.booleans(), st.booleans(), st.integers(0, 4), st.booleans(), st.booleans(), st.booleans(),
)  # fmt: skip


@given(drafts)
def test_every_plan_keeps_the_order_that_safety_needs(draft: Draft) -> None:
    plan = build(draft)
    assert isinstance(plan[-1], ops.Seccomp)  # it forbids what stands before it
    root = ops.AdoptRoot if draft.adopted else ops.NewRoot
    assert position(plan, ops.TakeIds) < position(plan, root) < position(plan, ops.Pivot)
    assert position(plan, ops.Pivot) < position(plan, ops.DropCaps)
    # A descriptor is handed over when it is there; the network is looked at while init goes on.
    assert position(plan, ops.OpenWorkdir) < position(plan, ops.HandOver)
    assert position(plan, ops.OpenNetlink) < position(plan, ops.HandOver) < position(plan, ops.NonDumpable)
    assert {op.what for op in plan if isinstance(op, ops.HandOver)} == {Request.HAND_NETLINK, Request.HAND_WORKDIR}
    assert position(plan, ops.NonDumpable) < position(plan, ops.DropCaps) < position(plan, ops.NoNewPrivs)
    assert position(plan, ops.NoNewPrivs) < position(plan, ops.LandlockEnforce)
    # A rule binds what stands at its path: nothing that a rule may name is mounted over it later.
    mounts = (ops.Bind, ops.Tmpfs, ops.Overlay, ops.Proc, ops.DevPts, ops.Mqueue)
    places = [op.target for op in plan[position(plan, ops.LandlockRuleset) :] if isinstance(op, mounts)]
    assert not {os.fsencode(path) for path, _ in LANDLOCK.rules} & set(places)
    assert position(plan, ops.OpenNetlink) < position(plan, ops.DropCaps)
    if draft.joins:
        assert position(plan, ops.CgroupJoin) + draft.joins == position(plan, ops.UnshareCgroup) < position(plan, ops.DropCaps)
    assert any(isinstance(op, ops.LoopbackUp) for op in plan) is draft.loopback
    keep = next(op.keep for op in plan if isinstance(op, ops.DropCaps))
    assert keep == (0 if draft.ids.shared else 0b11100000)


@given(drafts)
def test_every_part_can_be_sent_and_uses_what_travels_with_it(draft: Draft) -> None:
    fds = descriptors(draft)
    first, second = whole(draft, LANDLOCK), seal(draft, LANDLOCK, SECCOMP)
    assert wire.encode_plan(first, fds).startswith(b"LEMNIPLN")
    assert wire.encode_plan(second, draft.joins).startswith(b"LEMNIPLN")
    assert used(first) == set(range(fds))
    assert used(second) == set(range(draft.joins))


def used(plan: tuple[Op, ...]) -> set[int]:
    found = {op.fd for op in plan if isinstance(op, ops.CgroupJoin | ops.MoveMount | ops.AdoptRoot)}
    for op in plan:
        if isinstance(op, ops.Overlay):
            found |= {op.lower, op.upper, op.work}
    return found


@given(drafts)
def test_the_base_needs_no_copy_and_the_rest_comes_late(draft: Draft) -> None:
    draft = replace(draft, adopted=False)
    assert wire.encode_plan(base(draft), 0)
    assert base(draft) == base(replace(draft, copies=(), files=(), joins=0))
    fds = descriptors(draft)
    rest = (*late(draft, LANDLOCK), *seal(draft, LANDLOCK, SECCOMP, first=fds))
    assert used(rest) == set(range(fds + draft.joins))
    both = {*base(draft), *late(draft, LANDLOCK), *seal(draft, LANDLOCK, SECCOMP), ops.BeginOverlays()}
    assert both == set(build(draft))


@given(drafts)
def test_an_adopted_root_is_the_one_that_init_would_build(draft: Draft) -> None:
    made = template(draft, holding(draft.detached, 1000, 1000))
    built = [op for op in build(replace(draft, adopted=False)) if op not in made]
    adopted = [op for op in build(replace(draft, adopted=True)) if not isinstance(op, ops.AdoptRoot)]
    assert built == [op for op in adopted if op not in made]
    places = {op.path for op in made if isinstance(op, ops.Dir)}
    for op in adopted:  # the root is read-only by then: what is mounted in it finds its place there
        if isinstance(op, ops.Overlay | ops.Tmpfs | ops.Proc | ops.DevPts | ops.Mqueue):
            assert op.target in places or op.target.startswith(b"/proc/")


@given(drafts)
def test_who_holds_a_template_is_none_of_those_who_get_it(draft: Draft) -> None:
    ids = holding(draft.detached, 1000, 1000)
    made = template(draft, ids)
    assert isinstance(made[0], ops.TakeIds)
    assert made[0].uid == ids.init_uid
    assert position(made, ops.NewRoot) < position(made, ops.ReadOnly) < position(made, ops.Pivot)
    assert position(made, ops.Pivot) < position(made, ops.NonDumpable)
    assert [op for op in made if isinstance(op, ops.ReadOnly)] == [ops.ReadOnly(b"/")]
    assert (ids.init_host_uid == draft.ids.init_host_uid) is draft.ids.shared
    assert wire.encode_plan(made, 0).startswith(b"LEMNIPLN")


@given(drafts)
def test_nothing_of_the_host_is_writable(draft: Draft) -> None:
    for op in build(replace(draft, adopted=False)):
        if isinstance(op, ops.Bind) and not op.source.startswith((b"/dev/", b"/scratch/")):
            assert op.flags & ops.RO
        if isinstance(op, ops.Bind) and not op.source.startswith(b"/dev/"):
            assert op.flags & ops.NODEV
        if isinstance(op, ops.Bind):
            assert op.flags & ops.NOSUID


def test_a_link_stays_a_link_and_a_small_file_is_copied() -> None:
    plan = build(DRAFT, None)
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
    limits = [op for op in build(replace(DRAFT, host=host), None) if isinstance(op, ops.Rlimit)]
    assert all(op.soft == op.hard <= 100 for op in limits)
