"""Compiled filters, kept: by content in memory and in the user's cache directory.

Compiling costs 13 ms and the import of pyseccomp 30–40 ms; loading a cached program costs neither. The file is named by a
digest of everything that goes into it (profile, compiler, architecture) and begins with a digest of the program, so that a
torn or foreign file is compiled anew. A cache directory that others may write is not used.
"""
from __future__ import annotations

import functools
import hashlib
import os
import stat
from pathlib import Path
from typing import Any

from profiles import seccomp
from profiles.model import Profile, ProfileError
from supervisor.errors import HostUnfit


@functools.cache
def program(profile: Profile, machine: str) -> bytes:
    """The BPF program of this profile. Raises ``HostUnfit`` where it cannot be compiled."""
    key = hashlib.sha256(f"{seccomp.VERSION}\0{machine}\0{profile.seccomp!r}".encode()).hexdigest()
    path = cache_directory() / f"seccomp-{key}.bpf"
    cached = _load(path)
    if cached is not None:
        return cached
    try:
        compiled = seccomp.compile_filter(profile, machine, _export)
    except (ProfileError, ImportError, OSError) as error:
        raise HostUnfit("compiling the seccomp profile", on=profile.name, why=str(error)) from error
    _save(path, compiled)
    return compiled


def _export(filter_: Any) -> bytes:
    with os.fdopen(os.memfd_create("bpf", os.MFD_CLOEXEC), "w+b") as file:
        filter_.export_bpf(file)
        file.seek(0)
        return file.read()


def cache_directory() -> Path:
    """Where compiled filters are kept; no session may see or change it."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "lemniscate"


def _load(path: Path) -> bytes | None:
    try:
        parent = path.parent.stat()
        content = path.read_bytes()
    except OSError:
        return None
    if parent.st_uid != os.geteuid() or parent.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return None
    digest, compiled = content[:32], content[32:]
    return compiled if hashlib.sha256(compiled).digest() == digest else None


def _save(path: Path, compiled: bytes) -> None:
    partial = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        partial.write_bytes(hashlib.sha256(compiled).digest() + compiled)
        partial.replace(path)
    except OSError:  # read-only home, full disk: the next process compiles again
        partial.unlink(missing_ok=True)
