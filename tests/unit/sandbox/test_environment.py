"""The environment of commands is built from nothing."""
from __future__ import annotations

import pytest

from supervisor.errors import SettingError
from supervisor.sandbox.environment import build


def test_nothing_of_the_outside_comes_by_itself() -> None:
    outside = {"SECRET": "hunter2", "PATH": "/evil", "HOME": "/root", "LD_PRELOAD": "/x.so", "BASH_ENV": "/x"}
    made = dict(build("fr_FR.UTF-8", "xterm", (), outside))
    assert made[b"LANG"] == b"fr_FR.UTF-8"
    assert made[b"TERM"] == b"xterm"
    assert made[b"HOME"] == b"/home/agent"
    assert b"/evil" not in made[b"PATH"]
    assert not {b"SECRET", b"LD_PRELOAD", b"BASH_ENV"} & made.keys()


def test_what_the_policy_lists_comes_when_it_is_there() -> None:
    made = dict(build(None, None, ("CI", "ABSENT", "BYTES"), {"CI": "1", "BYTES": "\udcff"}))
    assert made[b"CI"] == b"1"
    assert made[b"BYTES"] == b"\xff"
    assert b"ABSENT" not in made
    assert (made[b"LANG"], made[b"TERM"]) == (b"C.UTF-8", b"dumb")


@pytest.mark.parametrize(
    "name", ["LD_PRELOAD", "BASH_ENV", "ENV", "SHELLOPTS", "BASH_FUNC_x%%", "GIT_SSH_COMMAND", "A=B", "", "1A", "A B", "PS4"]
)
def test_a_name_that_runs_code_is_refused(name: str) -> None:
    with pytest.raises(SettingError):
        build(None, None, (name,), {name: "x"})


def test_the_order_is_always_the_same() -> None:
    made = build(None, None, ("Z", "A"), {"A": "1", "Z": "2"})
    assert list(made) == sorted(made)
