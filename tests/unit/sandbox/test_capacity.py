"""The host's capacity beside the caps."""
from __future__ import annotations

import psutil

from supervisor.sandbox.capacity import capacity
from supervisor.sandbox.spec import Limits


def test_a_cap_within_the_host_is_fine() -> None:
    layer = capacity(Limits(memory=1 << 20))
    assert layer.on
    assert f"{psutil.cpu_count()} CPUs" in layer.fact
    assert not layer.remedy


def test_a_cap_above_the_host_is_said_with_its_remedy() -> None:
    layer = capacity(Limits(memory=psutil.virtual_memory().total + 1))
    assert not layer.on
    assert not layer.required
    assert "limits" in layer.remedy
