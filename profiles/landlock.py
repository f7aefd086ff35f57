"""Landlock: names to bits, and the downgrade to the kernel's ABI, as tables and pure functions.

Each ABI adds rights. A ruleset must not name a right that the kernel does not know (EINVAL), and a right that is not handled
is not restricted; so the downgrade drops what is unknown and nothing else. One exception: before ABI 2 the right to rename
across directories (``refer``) does not exist and every such rename is refused with EXDEV, which breaks every build; there the
layer is left out whole and announced, since the mounts already say the same.

Source: linux/landlock.h; Documentation/userspace-api/landlock.rst, "Compatibility".
"""
from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from profiles.model import LandlockProfile

FS_RIGHTS: dict[str, int] = {
    name: 1 << bit
    for bit, name in enumerate(
        """
        execute write_file read_file read_dir remove_dir remove_file make_char make_dir make_reg make_sock make_fifo make_block
        make_sym refer truncate ioctl_dev
        """.split()  # noqa: SIM905  (in the order of their bits)
    )
}
NET_RIGHTS = {"bind_tcp": 1, "connect_tcp": 2}
SCOPES = {"abstract_unix_socket": 1, "signal": 2}

MINIMUM_ABI = 2  # refer
_FS_BY_ABI = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 4: (1 << 15) - 1, 5: (1 << 16) - 1}  # 5 and later
_FILE_RIGHTS = frozenset({"execute", "write_file", "read_file", "truncate", "ioctl_dev"})


@dataclass(frozen=True, slots=True)
class Compiled:
    """A ruleset for one kernel: masks for landlock_create_ruleset(2), and (path, access) for each path-beneath rule."""

    handled_fs: int
    handled_net: int
    scoped: int
    rules: tuple[tuple[str, int], ...]


def known_fs(abi: int) -> int:
    """The mask of file system rights that a kernel of this ABI knows; 0 where there is no Landlock."""
    return 0 if abi < 1 else _FS_BY_ABI[min(abi, 5)]


def compile_rules(profile: LandlockProfile, abi: int, work: Iterable[str], loopback: bool = False) -> Compiled | None:
    """The ruleset for a kernel of this ABI; None where Landlock cannot serve (absent, or older than ``MINIMUM_ABI``).

    Every file system right that the kernel knows is handled, so that what no rule grants is refused. ``work`` are the working
    copies' paths inside. With ``loopback`` TCP is left to the network namespace, which has no other link.
    """
    if abi < MINIMUM_ABI:
        return None
    handled = known_fs(abi)
    rules = [(rule.path, _mask(rule.rights) & handled) for rule in profile.rules]
    rules += [(path, _mask(profile.work) & handled) for path in work]
    net = sum(NET_RIGHTS[n] for n in profile.net) if abi >= 4 and not loopback else 0
    scoped = sum(SCOPES[n] for n in profile.scopes) if abi >= 6 else 0
    return Compiled(handled, net, scoped, tuple((path, access) for path, access in rules if access))


def lost(profile: LandlockProfile, abi: int) -> tuple[str, ...]:
    """What the profile asks for and a kernel of this ABI does not do, by name; to be announced."""
    if abi < MINIMUM_ABI:
        return ("all",)
    wanted = set(profile.net if abi < 4 else ()) | set(profile.scopes if abi < 6 else ())
    handled = known_fs(abi)
    return tuple(sorted(wanted | {name for name, bit in FS_RIGHTS.items() if not bit & handled}))


def _mask(rights: Iterable[str]) -> int:
    mask = 0
    for name in rights:
        mask |= FS_RIGHTS[name]
    return mask
