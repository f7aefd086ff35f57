"""Real sandboxes for tests: a project, its scratch, a claim, an open sandbox; all under one directory that goes with them."""
from __future__ import annotations

import functools
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from profiles.load import shipped
from profiles.model import Profile
from supervisor.sandbox import environment, facts
from supervisor.sandbox.claims import claim
from supervisor.sandbox.examine import overlay_copy, remove
from supervisor.sandbox.life import Sandbox, open_sandbox
from supervisor.sandbox.machine import HostFacts
from supervisor.sandbox.spec import Command, Limits, SandboxSpec
from supervisor.types import Execution


@functools.cache
def host() -> HostFacts:
    """The facts of this machine, read once."""
    return facts.read(shipped())


@asynccontextmanager
async def open_box(
    limits: Limits | None = None,
    files: Mapping[str, str] | None = None,
    *,
    profile: Profile | None = None,
    loopback: bool = False,
    where: Path | None = None,
) -> AsyncIterator[Sandbox]:
    """An open sandbox over a fresh project with these files."""
    scratch = Path(tempfile.mkdtemp(prefix="lemni-box-", dir=where or "/var/tmp"))
    scratch.chmod(0o755)
    project = scratch / "project"
    project.mkdir(mode=0o755)
    for name, content in (files or {}).items():
        path = project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    chosen = profile or shipped()
    machine = host() if chosen is shipped() else facts.read(chosen)
    try:
        with claim(machine, scratch / "state", os.fsencode(project), os.geteuid(), os.getegid()) as taken:
            spec = SandboxSpec(
                (overlay_copy(project, scratch, taken),),
                limits or Limits(),
                environment=environment.build(None, None, (), {}),
                files=environment.HOME_FILES,
                loopback=loopback,
            )
            async with open_sandbox(spec, machine, taken, chosen) as box:
                yield box
    finally:
        shutil.rmtree(scratch / "state", ignore_errors=True)
        remove(scratch)


def bash(script: str, *, timeout: float = 30.0, keep: int = 1 << 20, cwd: bytes = b".") -> Command:
    """A command as the Bash tool makes it."""
    argv = (b"/bin/bash", b"--noprofile", b"--norc", b"-c", script.encode())
    return Command(argv, timeout=timeout, keep=keep, cwd=cwd)


async def output(box: Sandbox, script: str, *, timeout: float = 30.0) -> str:
    """What a script prints on both streams, stripped."""
    execution = await box.run(bash(script, timeout=timeout))
    return text(execution)


def text(execution: Execution) -> str:
    """Both streams as text, stripped."""
    return (execution.stdout + execution.stderr).decode("utf-8", "backslashreplace").strip()


def processes_of(marker: str) -> list[int]:
    """Pids of this machine whose command line has ``marker``: a word that the test alone uses."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdecimal() and int(name) != os.getpid():
            try:
                with open(f"/proc/{name}/cmdline", "rb") as file:
                    if marker.encode() in file.read():
                        found.append(int(name))
            except OSError:
                continue
    return found
