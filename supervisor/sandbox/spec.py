"""What a caller asks of a sandbox: a value, decided outside, without a kernel in sight."""
from __future__ import annotations

from dataclasses import dataclass, field

WORKDIR = b"/workspace"  # where the working copy stands inside; fixed, so that no host path shows in mountinfo
HOME = b"/home/agent"
GITDIR = b"/gitdir"  # where a linked worktree's common git directory stands inside


@dataclass(frozen=True, slots=True)
class Limits:
    """Caps of the whole sandbox (O-03). Bytes, counts, seconds. All enforced from outside or refused."""

    memory: int = 4 << 30
    cpus: float = 2.0
    processes: int = 512
    cpu_seconds: int = 1800
    disk: int = 4 << 30  # working copy + tmpfs
    inodes: int = 500_000
    wall_seconds: int = 45 * 60
    open_files: int = 4096
    file_size: int = 4 << 30


@dataclass(frozen=True, slots=True)
class OverlayCopy:
    """A working copy as overlay: read-only ``lower`` (host path), ``upper`` and ``work`` of one scratch file system.

    ``target`` is the path inside. ``owner_uid``/``owner_gid`` are the on-disk owner of ``lower``'s root.
    """

    lower: bytes
    upper: bytes
    work: bytes
    target: bytes
    owner_uid: int
    owner_gid: int


@dataclass(frozen=True, slots=True)
class PlainCopy:
    """A working copy as plain directory of the scratch, already filled and owned by the command's host uid."""

    path: bytes
    target: bytes


@dataclass(frozen=True, slots=True)
class SandboxSpec:
    """One sandbox. ``environment`` is the whole environment of its commands (built from nothing by the caller)."""

    copies: tuple[OverlayCopy | PlainCopy, ...]  # the first stands at WORKDIR
    limits: Limits
    profile: str = "default"
    required_limits: bool = False  # limitsEnforcement: required (server) or auto (workstation)
    environment: tuple[tuple[bytes, bytes], ...] = ()
    files: tuple[tuple[bytes, bytes], ...] = ()  # extra files (path inside, content), e.g. HOME/.gitconfig
    loopback: bool = False


@dataclass(frozen=True, slots=True)
class Command:
    """One command: ``argv[0]`` is an absolute path inside; ``cwd`` is relative to the working copy's root.

    ``timeout`` in seconds, ``math.inf`` for none of its own; ``keep`` is the number of bytes kept of each stream (CB-03).
    ``relay``: every byte goes to the caller's ``on_output`` as it comes and none is kept (``lemni exec``).
    """

    argv: tuple[bytes, ...]
    cwd: bytes = b"."
    environment: tuple[tuple[bytes, bytes], ...] = field(default=())  # added to the sandbox's
    timeout: float = 600.0
    keep: int = 10 << 20
    relay: bool = False
