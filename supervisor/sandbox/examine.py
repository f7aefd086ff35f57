"""Does the default profile open here? The only full answer is to open one sandbox and look from inside.

``lemni doctor`` shows the layers of ``facts`` and this trial beside them: user namespaces that can be made and not used (a
switch of AppArmor), a file system that refuses overlays, a covered /proc, all fail at a step of the plan and are named.
"""
from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from profiles.load import shipped
from profiles.model import Profile
from supervisor.errors import LemniError
from supervisor.sandbox import facts
from supervisor.sandbox.capacity import capacity
from supervisor.sandbox.claims import Claim, claim
from supervisor.sandbox.life import Sandbox, open_sandbox
from supervisor.sandbox.machine import HostFacts
from supervisor.sandbox.spec import WORKDIR, Command, Limits, OverlayCopy, SandboxSpec
from supervisor.types import Layer

TRIAL = "trial"


async def examine(state: Path, profile: Profile | None = None) -> tuple[Layer, ...]:
    """Every layer, and last the trial. Never raises for what this machine lacks."""
    chosen = profile or shipped()
    host = facts.read(chosen)
    try:
        async with scratch_sandbox(host, state, chosen) as box:
            status = (await box.run(Command((b"/bin/true",), timeout=10))).status
        fact = f"opened in {box.opened_us / 1000:.1f} ms, /bin/true gave {status}"
        trial = Layer(TRIAL, status == 0, fact, required=True)
    except (LemniError, OSError) as error:
        remedy = error.remedy if isinstance(error, LemniError) else None
        trial = Layer(TRIAL, False, str(error), remedy or "", required=True)
    return (*host.layers, capacity(Limits()), trial)


@asynccontextmanager
async def scratch_sandbox(
    host: HostFacts, state: Path, profile: Profile, limits: Limits | None = None
) -> AsyncIterator[Sandbox]:
    """A sandbox over an empty project of its own, in a scratch directory that goes with it."""
    state.mkdir(mode=0o700, parents=True, exist_ok=True)  # noqa: ASYNC240  (one call each: a thread would cost more)
    scratch = Path(tempfile.mkdtemp(prefix="trial-", dir=state))
    try:
        project = scratch / "project"
        project.mkdir(mode=0o755)
        with claim(host, state, os.fsencode(project), host.uid, host.gid) as taken:
            copy = overlay_copy(project, scratch, taken)
            async with open_sandbox(SandboxSpec((copy,), limits or Limits()), host, taken, profile) as box:
                yield box
    finally:
        remove(scratch)


def overlay_copy(project: Path, scratch: Path, taken: Claim) -> OverlayCopy:
    """An overlay over ``project``, its upper layer made in ``scratch`` for the commands' host ids."""
    layers = [scratch / "upper", scratch / "work"]
    for layer in layers:
        layer.mkdir(mode=0o755)
        if os.geteuid() == 0:
            os.chown(layer, taken.ids.command_host_uid, taken.ids.command_host_gid)
    owner = project.stat()
    upper, work = (os.fsencode(layer) for layer in layers)
    return OverlayCopy(os.fsencode(project), upper, work, WORKDIR, owner.st_uid, owner.st_gid)


def remove(scratch: Path) -> None:
    """Remove a scratch directory: the overlay, and commands, leave directories that their owner may not enter."""
    for directory, names, _ in os.walk(scratch):
        for name in names:
            path = os.path.join(directory, name)
            if not os.path.islink(path):
                os.chmod(path, 0o700)
    shutil.rmtree(scratch)
