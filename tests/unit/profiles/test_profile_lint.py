"""What the lint refuses, one mistake at a time, in the shipped profile's own text."""
from __future__ import annotations

from importlib import resources

import pytest

from profiles.lint import lint
from profiles.load import parse, shipped
from profiles.model import ProfileError

TEXT = resources.files("profiles").joinpath("data", "default.toml").read_text("utf-8")


def changed(old: str, new: str) -> str:
    assert old in TEXT
    return TEXT.replace(old, new, 1)


def test_the_shipped_profile_has_no_finding() -> None:
    assert lint(shipped()) == []


@pytest.mark.parametrize(
    ("old", "new", "finding"),
    [
        ('"accept",', '"accept", "ptrace",', "ptrace is never allowed"),
        ('"accept",', '"accept", "socket",', "the conditions would be dropped in silence"),
        ('"accept",', '"accept", "setns",', "setns is never allowed"),
        ('"accept",', '"accept", "accept",', "accept stands twice"),
        ('"execve", ', "", "execve is needed"),
        ('absent = ["clone3", ', 'absent = ["clone3", "read", ', "read is both allowed and absent"),
        ("mask = 0x7e020000", "mask = 0x7e000000", "a flag of a new namespace"),
        ("values = [1] }", "values = [1, 2] }", "only AF_UNIX"),
        ("values = [0x5412, 0x541c, 0x5423]", "values = [0x5412]", "TIOCLINUX"),
        ('errno = "EAFNOSUPPORT"', 'errno = "EWHATEVER"', "is not an errno"),
        ("mask = 0xf000, values = [0, 0x1000", "mask = 0xf000, values = [1, 0x1000", "outside its mask"),
        ('trees = ["/usr"', 'trees = ["/home", "/usr"', "/home is never shared"),
        ('"alternatives",', '"alternatives", "shadow",', "/etc/shadow is never shared"),
        ('"alternatives",', '"alternatives", "../root",', "not relative to /etc"),
        ('devices = ["full"', 'devices = ["kmsg", "full"', "the device kmsg"),
        ('rights = ["execute", "read_file", "read_dir"]', 'rights = ["execute", "write_file"]', "the root may be read"),
        ('"make_sym", "refer"', '"make_sim", "refer"', "make_sim is not a right"),
        ("newest = 469", "newest = 460", "lies above newest"),
        ("size = 536870912", "size = 0", "needs a size"),
    ],
)
def test_each_mistake_is_found(old: str, new: str, finding: str) -> None:
    with pytest.raises(ProfileError) as caught:
        parse(changed(old, new))
    assert finding in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("newest = 469", "newest = 469\nnewset = 1", "unknown key newset"),
        ("newest = 469", "newest = true", "int expected"),
        ("newest = 469", "", "newest: missing"),
        ('hostname = "lemni"', "hostname = 3", "str expected"),
        ('rights = ["@work"]', 'rights = ["@wrok"]', "no set is called wrok"),
        ('name = "default"', 'name = "default', "not TOML"),
    ],
)
def test_what_cannot_be_read_names_the_key(old: str, new: str, words: str) -> None:
    with pytest.raises(ProfileError) as caught:
        parse(changed(old, new))
    assert words in str(caught.value)


def test_a_misspelt_call_is_found_where_names_are_known() -> None:
    profile = parse(changed('"accept",', '"accept", "acept",'))
    assert lint(profile, lambda name: name != "acept") == ["acept is not a system call"]


@pytest.mark.parametrize("name", ["none", "../default", "default.toml", ""])
def test_only_shipped_names_are_shipped(name: str) -> None:
    with pytest.raises(ProfileError):
        shipped(name)
