"""Whatever plan or command the supervisor writes, the init reads the same and accepts it."""
from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from supervisor.sandbox import ops, wire
from support import checker, plans

strings = st.lists(plans.text, min_size=1, max_size=8)
pairs = st.lists(st.tuples(plans.text.filter(lambda t: b"=" not in t), plans.text), max_size=6)
limits = st.lists(st.tuples(st.integers(0, 15), plans.u64, plans.u64), max_size=16)


@given(plans.plan)
@settings(max_examples=300, deadline=None)
def test_a_plan_comes_back_as_it_went(plan: list[ops.Op]) -> None:
    data = wire.encode_plan(plan, plans.FDS)
    assert plans.read_plan(data) == (plans.FDS, plan)
    assert checker.check_plan(data, plans.FDS) == (0, None)


@given(plans.plan, st.data())
@settings(max_examples=300, deadline=None)
def test_a_truncated_or_extended_plan_is_refused(plan: list[ops.Op], data: st.DataObject) -> None:
    whole = wire.encode_plan(plan, plans.FDS)
    cut = data.draw(st.integers(0, len(whole) - 1))
    assert checker.check_plan(whole[:cut], plans.FDS)[0] == wire.PlanFault.HEADER
    assert checker.check_plan(whole + b"\0", plans.FDS)[0] == wire.PlanFault.HEADER
    assert checker.check_plan(whole, plans.FDS - 1)[0] == wire.PlanFault.HEADER


@given(strings, pairs, plans.text, limits)
@settings(max_examples=200, deadline=None)
def test_every_command_is_accepted(
    argv: list[bytes], environment: list[tuple[bytes, bytes]], cwd: bytes, caps: list[tuple[int, int, int]]
) -> None:
    payload = wire.encode_run(argv, environment, cwd, caps)
    assert checker.check_run(payload) == 0
    assert checker.check_run(payload[:-1]) != 0  # the last string has lost its end
    assert checker.check_run(payload + b"\0") != 0


@given(st.binary(max_size=200))
@settings(max_examples=300, deadline=None)
def test_foreign_bytes_are_a_fault_and_no_accident(data: bytes) -> None:
    assert checker.check_plan(data, 0)[0] != 0
