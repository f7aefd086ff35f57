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
from supervisor.errors import LaunchFailed, LemniError, WorkspaceError
from supervisor.sandbox import facts, layers
from supervisor.sandbox.capacity import capacity
from supervisor.sandbox.claims import Claim, claim, idmap_offered
from supervisor.sandbox.failures import OVERLAY_REFUSED
from supervisor.sandbox.life import Sandbox, open_sandbox
from supervisor.sandbox.machine import HostFacts
from supervisor.sandbox.spec import WORKDIR, Command, Limits, OverlayCopy, PlainCopy, SandboxSpec
from supervisor.types import Layer

TRIAL = "trial"


async def examine(state: Path, profile: Profile | None = None) -> tuple[Layer, ...]:
    """Every layer, and last the trial. Never raises for what this machine lacks but for HostUnfit without a /proc."""
    chosen = profile or shipped()
    host = facts.read(chosen)
    found = list(host.layers)
    try:
        try:
            trial = await _trial(host, state, chosen)
            found.append(layers.overlay(""))
        except LaunchFailed as refused:
            if refused.code != OVERLAY_REFUSED:
                raise
            found.append(layers.overlay(str(refused)))
            trial = await _trial(host, state, chosen, plain=True)  # as a session does
    except (LemniError, OSError) as error:
        failed = error if isinstance(error, LemniError) else WorkspaceError(
            "making a scratch project", on=error.filename, errno=error.errno, remedy=f"check that {state} can be written"
        )
        trial = Layer(TRIAL, False, str(failed), failed.remedy or "", required=True)
        found = layers.refused_namespaces(found, failed)
    if host.privileged and state.is_dir():  # noqa: ASYNC240  (one call)
        found.append(layers.idmapped(idmap_offered(os.fsencode(state))))
    return (*found, capacity(Limits()), trial)


async def _trial(host: HostFacts, state: Path, profile: Profile, *, plain: bool = False) -> Layer:
    async with scratch_sandbox(host, state, profile, plain=plain) as box:
        status = (await box.run(Command((b"/bin/true",), timeout=10))).status
    return Layer(TRIAL, status == 0, f"opened in {box.opened_us / 1000:.1f} ms, /bin/true gave {status}", required=True)


@asynccontextmanager
async def scratch_sandbox(
    host: HostFacts, state: Path, profile: Profile, limits: Limits | None = None, *, plain: bool = False
) -> AsyncIterator[Sandbox]:
    """A sandbox over an empty project of its own (``plain``: a copy of it), in a scratch directory that goes with it."""
    state.mkdir(mode=0o700, parents=True, exist_ok=True)  # noqa: ASYNC240  (one call each: a thread would cost more)
    scratch = Path(tempfile.mkdtemp(prefix="trial-", dir=state))
    try:
        project = scratch / "project"
        project.mkdir(mode=0o755)
        with claim(host, state, os.fsencode(project), host.uid, host.gid) as taken:
            copy = plain_copy(scratch, taken) if plain else overlay_copy(project, scratch, taken)
            async with open_sandbox(SandboxSpec((copy,), limits or Limits()), host, taken, profile) as box:
                yield box
    finally:
        remove(scratch)


def plain_copy(scratch: Path, taken: Claim) -> PlainCopy:
    """The copy of an empty project, for the commands' host ids."""
    copy = scratch / "copy"
    copy.mkdir(mode=0o755)
    if os.geteuid() == 0:
        os.chown(copy, taken.ids.command_host_uid, taken.ids.command_host_gid)
    return PlainCopy(os.fsencode(copy), WORKDIR)


def overlay_copy(project: Path, scratch: Path, taken: Claim) -> OverlayCopy:
    """An overlay over ``project``, its upper layer made in ``scratch`` for the commands' host ids."""
    made = [scratch / "upper", scratch / "work"]
    for layer in made:
        layer.mkdir(mode=0o755)
        if os.geteuid() == 0:
            os.chown(layer, taken.ids.command_host_uid, taken.ids.command_host_gid)
    owner = project.stat()
    upper, work = (os.fsencode(layer) for layer in made)
    return OverlayCopy(os.fsencode(project), upper, work, WORKDIR, owner.st_uid, owner.st_gid)


def remove(scratch: Path) -> None:
    """Remove a scratch directory: the overlay, and commands, leave directories that their owner may not enter."""
    for directory, names, _ in os.walk(scratch):
        for name in names:
            path = os.path.join(directory, name)
            if not os.path.islink(path):
                os.chmod(path, 0o700)
    shutil.rmtree(scratch)
