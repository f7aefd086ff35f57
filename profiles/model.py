"""What a sandbox may do, as values: the parsed form of a profile, shared by the loader, the compilers and the lint.

Nothing here reads a file or asks a kernel. A profile is data that an administrator may replace (SB-29), so each field says
what it means in the terms of the kernel, and the lint says which combinations are refused.
"""
from __future__ import annotations

from dataclasses import dataclass, field


class ProfileError(ValueError):
    """A profile that cannot be used. The message names the key, or lists what the lint found."""


@dataclass(frozen=True, slots=True)
class Scratch:
    """A private tmpfs: path inside, bytes, inodes, mode of its root."""

    path: str
    size: int
    inodes: int
    mode: int


@dataclass(frozen=True, slots=True)
class View:
    """The file system that commands see beside the working copy. All paths are absolute but ``etc``, relative to /etc."""

    hostname: str
    trees: tuple[str, ...]
    roots: tuple[str, ...]
    etc: tuple[str, ...]
    devices: tuple[str, ...]
    masked_files: tuple[str, ...]
    masked_directories: tuple[str, ...]
    read_only: tuple[str, ...]
    scratch: tuple[Scratch, ...]


@dataclass(frozen=True, slots=True)
class Test:
    """True when argument ``arg`` (0–5), masked, is one of ``values``."""

    __test__ = False  # not a test case for pytest

    arg: int
    mask: int
    values: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class AllowIf:
    """A call that is allowed when every test holds, and answers EPERM otherwise."""

    call: str
    tests: tuple[Test, ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """A call that answers ``errno`` when its condition holds, whatever the allow-list says.

    The condition is either "the masked argument is one of ``values``" or "the argument is not ``differs_from``" (all 64 bits).
    """

    call: str
    errno: str
    arg: int
    mask: int = 0xFFFFFFFF
    values: tuple[int, ...] = ()
    differs_from: int | None = None


@dataclass(frozen=True, slots=True)
class SeccompProfile:
    """System calls: ``allow`` always, ``allow_if`` on conditions, ``absent`` ENOSYS, the rest as default.toml says."""

    newest: int
    allow: tuple[str, ...]
    absent: tuple[str, ...] = ()
    allow_if: tuple[AllowIf, ...] = ()
    answer: tuple[Answer, ...] = ()
    numbers: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class PathRule:
    """Landlock: these named rights beneath this path of the sandbox's view."""

    path: str
    rights: frozenset[str]


@dataclass(frozen=True, slots=True)
class LandlockProfile:
    """Path rules, and what is handled without any rule (hence refused). ``work`` are the rights on working copies."""

    required: bool
    rules: tuple[PathRule, ...]
    work: frozenset[str]
    net: frozenset[str] = field(default_factory=frozenset)
    scopes: frozenset[str] = field(default_factory=frozenset)


@dataclass(frozen=True, slots=True, eq=False)  # by identity: loaded once, and the key of what is compiled from it
class Profile:
    """One profile, whole."""

    name: str
    view: View
    seccomp: SeccompProfile
    landlock: LandlockProfile
