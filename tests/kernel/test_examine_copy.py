"""The trial of ``doctor`` where no overlay can be mounted: a session copies the project then, and so does the trial."""
from __future__ import annotations

import errno
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from supervisor.errors import LaunchFailed
from supervisor.sandbox import examine
from supervisor.sandbox.failures import OVERLAY_REFUSED
from supervisor.sandbox.life import Sandbox

pytestmark = [pytest.mark.kernel, pytest.mark.needs("userns", "seccomp")]


async def test_a_refused_overlay_is_a_layer_that_is_off_and_sandboxes_open_all_the_same(
    public_tmp: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = examine.scratch_sandbox

    @asynccontextmanager
    async def refusing(*given: Any, plain: bool = False) -> AsyncIterator[Sandbox]:
        if not plain:
            raise LaunchFailed("mounting the working copy", errno=errno.EINVAL, code=OVERLAY_REFUSED)
        async with real(*given, plain=True) as box:
            yield box

    monkeypatch.setattr(examine, "scratch_sandbox", refusing)
    layers = {layer.name: layer for layer in await examine.examine(public_tmp / "state")}
    overlay = layers["overlay"]
    assert (overlay.on, overlay.required, overlay.fact) == (False, False, "mounting the working copy: EINVAL")
    assert "modprobe overlay" in overlay.remedy
    assert layers[examine.TRIAL].on, layers[examine.TRIAL]
