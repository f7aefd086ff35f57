"""The downgrade to each ABI, as a table."""
from __future__ import annotations

import pytest

from profiles.landlock import FS_RIGHTS, compile_rules, known_fs, lost
from profiles.load import shipped

PROFILE = shipped().landlock
REFER, TRUNCATE, IOCTL = FS_RIGHTS["refer"], FS_RIGHTS["truncate"], FS_RIGHTS["ioctl_dev"]


def test_bits_are_those_of_the_kernel() -> None:
    assert FS_RIGHTS["execute"] == 1
    assert FS_RIGHTS["make_sym"] == 1 << 12
    assert (REFER, TRUNCATE, IOCTL) == (1 << 13, 1 << 14, 1 << 15)


@pytest.mark.parametrize(
    ("abi", "rights", "net", "scoped"),
    [(2, 14, 0, 0), (3, 15, 0, 0), (4, 15, 3, 0), (5, 16, 3, 0), (6, 16, 3, 3), (7, 16, 3, 3), (99, 16, 3, 3)],
)
def test_each_abi_handles_what_it_knows_and_nothing_else(abi: int, rights: int, net: int, scoped: int) -> None:
    made = compile_rules(PROFILE, abi, ["/workspace"])
    assert made is not None
    assert made.handled_fs == (1 << rights) - 1
    assert (made.handled_net, made.scoped) == (net, scoped)
    assert all(access & ~made.handled_fs == 0 for _, access in made.rules)


@pytest.mark.parametrize("abi", [0, 1])
def test_without_refer_the_layer_is_left_out(abi: int) -> None:
    assert compile_rules(PROFILE, abi, ["/workspace"]) is None
    assert lost(PROFILE, abi) == ("all",)


def test_the_working_copy_may_be_written_and_the_root_may_not() -> None:
    made = compile_rules(PROFILE, 7, ["/workspace", "/gitdir"])
    assert made is not None
    rules = dict(made.rules)
    assert rules["/"] == FS_RIGHTS["execute"] | FS_RIGHTS["read_file"] | FS_RIGHTS["read_dir"]
    assert rules["/workspace"] & FS_RIGHTS["write_file"]
    assert rules["/workspace"] == rules["/gitdir"] == rules["/tmp"]
    assert not rules["/workspace"] & (FS_RIGHTS["make_char"] | FS_RIGHTS["make_block"])


def test_loopback_leaves_tcp_to_the_namespace() -> None:
    made = compile_rules(PROFILE, 7, [], loopback=True)
    assert made is not None
    assert made.handled_net == 0


def test_what_is_lost_is_named() -> None:
    assert lost(PROFILE, 7) == ()
    assert lost(PROFILE, 4) == ("abstract_unix_socket", "ioctl_dev", "signal")
    assert "truncate" in lost(PROFILE, 2)
    assert known_fs(0) == 0
