"""Which sandboxes keep to a part of the CPUs, and that nothing inside can change it."""
from __future__ import annotations

import os
from dataclasses import replace

import pytest

from profiles.lint import lint
from profiles.load import shipped
from supervisor.sandbox import share
from supervisor.sandbox.groups import CgroupHost
from supervisor.sandbox.spec import Limits
from support.drafts import HOST


@pytest.fixture
def four(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, list[int]]]:
    """A machine of four CPUs, of which 2, 3, 5 and 7 are ours; and what was put where."""
    put: list[tuple[int, list[int]]] = []
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {2, 3, 5, 7})
    monkeypatch.setattr(os, "sched_setaffinity", lambda pid, cpus: put.append((pid, list(cpus))))
    return put


@pytest.mark.usefixtures("four")
def test_it_is_kept_where_no_group_throttles_and_there_is_something_to_keep() -> None:
    throttled = replace(HOST, cgroups=CgroupHost(1, (("cpu", "/sys/fs/cgroup/cpu/x"),)))
    without = replace(HOST, cgroups=CgroupHost(1, (("memory", "/x"), ("pids", "/y"))))
    for host, cpus, expected in (
        (HOST, 3.0, True), (HOST, 3.5, False), (HOST, 4.0, False), (HOST, 8.0, False), (without, 1.0, True),
        (throttled, 1.0, False),
    ):
        assert share.kept(host, replace(Limits(), cpus=cpus)) is expected


def test_sandboxes_are_spread_and_each_has_its_number(four: list[tuple[int, list[int]]]) -> None:
    for pid in range(100, 104):
        share.keep(pid, replace(Limits(), cpus=2.0))
    share.keep(7, replace(Limits(), cpus=0.5))
    assert four == [(100, [2, 3]), (101, [5, 7]), (102, [2, 3]), (103, [5, 7]), (7, [7])]


def test_the_profile_of_a_share_refuses_what_would_widen_it_and_nothing_else() -> None:
    profile = shipped()
    found = share.profile_of(profile)
    assert share.profile_of(profile) is found
    assert lint(found) == []
    assert {rule.call for rule in profile.seccomp.allow_if} - {rule.call for rule in found.seccomp.allow_if} == {
        "sched_setaffinity"
    }
    assert found.seccomp.allow == profile.seccomp.allow
