"""What a machine offers to sandboxes, as values: read by ``facts``, used by ``plan``. Pure and hashable."""
from __future__ import annotations

from dataclasses import dataclass

from supervisor.sandbox.groups import CgroupHost
from supervisor.types import Layer


@dataclass(frozen=True, slots=True)
class Entry:
    """One path of the host that the view takes over: a link with this ``target``, a copy of this ``content``, or a bind."""

    path: bytes
    source: bytes = b""
    target: bytes | None = None
    content: bytes | None = None


@dataclass(frozen=True, slots=True)
class HostView:
    """The host's side of a profile's view: what is there to be bound, linked and masked."""

    trees: tuple[Entry, ...]
    etc: tuple[Entry, ...]
    devices: tuple[bytes, ...]
    masked_files: tuple[bytes, ...]
    masked_directories: tuple[bytes, ...]
    read_only: tuple[bytes, ...]


@dataclass(frozen=True, slots=True, eq=False)  # by identity: read once, and the key of cached plans
class HostFacts:
    """The machine as this process sees it."""

    uid: int
    gid: int
    privileged: bool  # may map host ids of its own choice
    machine: str
    kernel: str
    namespaces_missing: tuple[str, ...]
    switches: tuple[tuple[str, int], ...]
    proc_covered: tuple[str, ...]  # mounts on top of /proc: a fresh proc is refused then
    seccomp: bool
    landlock_abi: int
    apparmor: bool
    cgroups: CgroupHost
    hard_limits: tuple[tuple[int, int], ...]
    view: HostView
    layers: tuple[Layer, ...]

    def hard_limit(self, which: int) -> int:
        """The hard limit of this resource for this process; 2**64 − 1 is none."""
        return dict(self.hard_limits)[which]
