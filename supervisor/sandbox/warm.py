"""Sandboxes kept warm: everything made but the working copy, each used once.

For servers, where the time to open counts and many sandboxes of one kind follow one another. A warm sandbox has its own
namespaces, group and ids, and has run no foreign code; it is never used twice and never shared. It costs 300 KiB of kernel
memory while it waits. An interactive session does not use this: it opens one sandbox, when it needs it.
"""
from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import trio

from profiles.model import Profile
from supervisor.sandbox import opening
from supervisor.sandbox.claims import Claim, claim
from supervisor.sandbox.life import discard
from supervisor.sandbox.machine import HostFacts
from supervisor.sandbox.opening import Opened
from supervisor.sandbox.spec import Limits, SandboxSpec


@dataclass(frozen=True, slots=True)
class Warm:
    """One warm sandbox: give ``claim`` and ``opened`` to ``open_sandbox``, and close ``held`` afterwards."""

    claim: Claim
    opened: Opened
    held: ExitStack


class WarmPool:
    """Warm sandboxes for projects of one owner on one file system, under one profile and one set of limits."""

    def __init__(
        self, host: HostFacts, state: Path, profile: Profile, limits: Limits, root: bytes, owner_uid: int, owner_gid: int
    ) -> None:
        self._host = host
        self._state = state
        self._profile = profile
        self._spec = SandboxSpec((), limits)
        self._root = (root, owner_uid, owner_gid)
        self._waiting: list[Warm] = []

    async def fill(self, count: int) -> None:
        """Warm sandboxes until ``count`` wait. Raises as ``open_sandbox`` does."""
        while len(self._waiting) < count:
            with ExitStack() as stack:
                taken = stack.enter_context(claim(self._host, self._state, *self._root))
                opened = opening.launch_warm(self._spec, self._host, taken, self._profile)
                self._waiting.append(Warm(taken, opened, stack.pop_all()))
            await opened.ready()

    def take(self) -> Warm | None:
        """A warm sandbox, the caller's from now on; None when none waits."""
        return self._waiting.pop(0) if self._waiting else None

    async def close(self) -> None:
        """Destroy those that wait."""
        with trio.CancelScope(shield=True):
            while self._waiting:
                warm = self._waiting.pop()
                with warm.held:
                    await discard(warm.opened, warm.claim)


@asynccontextmanager
async def warm_pool(
    host: HostFacts, state: Path, profile: Profile, limits: Limits, root: bytes, owner_uid: int, owner_gid: int
) -> AsyncIterator[WarmPool]:
    """A pool that leaves nothing."""
    pool = WarmPool(host, state, profile, limits, root, owner_uid, owner_gid)
    try:
        yield pool
    finally:
        await pool.close()
