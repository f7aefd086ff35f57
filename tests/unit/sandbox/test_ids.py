"""Ids: nobody is the host's root, the owner is who ``id -u`` says, and two sandboxes share nothing."""
from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.sandbox.ids import END_HOST_ID, FIRST_HOST_ID, SLOTS, holding, ordinary, privileged

IDS = st.integers(0, FIRST_HOST_ID - 1)


def test_an_ordinary_user_is_itself() -> None:
    plan = ordinary(1000, 100)
    assert (plan.uid_map, plan.gid_map) == (b"1000 1000 1\n", b"100 100 1\n")
    assert plan.shared
    assert plan.setgroups_denied
    assert not plan.idmapped


def test_a_root_that_maps_itself_only_is_no_root_inside() -> None:
    plan = ordinary(0, 0)
    assert (plan.command_uid, plan.uid_map) == (1000, b"1000 0 1\n")


@given(slot=st.integers(0, SLOTS - 1), uid=IDS, gid=IDS, offered=st.booleans())
def test_root_never_gives_its_own_id_away(slot: int, uid: int, gid: int, offered: bool) -> None:
    plan = privileged(slot, uid, gid, offered)
    assert plan.command_host_uid != 0
    assert plan.command_host_gid != 0
    assert plan.init_host_uid != plan.command_host_uid
    assert plan.init_uid != plan.command_uid
    assert plan.init_gid != plan.command_gid
    assert plan.command_uid == (uid or 1000)
    assert not plan.shared
    assert plan.idmapped is offered
    if offered:
        assert plan.command_host_uid == FIRST_HOST_ID + 2 * slot
    elif uid:
        assert plan.command_host_uid == uid


def test_slots_do_not_overlap() -> None:
    holder = holding(True, 0, 0)
    taken = {holder.init_host_uid}
    for slot in range(SLOTS):
        plan = privileged(slot, 0, 0, True)
        mine = {plan.command_host_uid, plan.init_host_uid}
        assert not taken & mine
        taken |= mine
    assert min(taken) == FIRST_HOST_ID
    assert max(taken) < END_HOST_ID


def test_a_holder_of_templates_is_the_caller_or_nobody() -> None:
    assert holding(False, 1000, 100) == ordinary(1000, 100)
    plan = holding(True, 0, 0)
    assert plan.init_host_uid == plan.init_host_gid != 0
    assert plan.uid_map == b"%d %d 1\n" % (plan.init_uid, plan.init_host_uid)


@pytest.mark.parametrize("slot", [-1, SLOTS])
def test_a_slot_out_of_range_is_an_error(slot: int) -> None:
    with pytest.raises(ValueError, match="out of range"):
        privileged(slot, 0, 0, True)
