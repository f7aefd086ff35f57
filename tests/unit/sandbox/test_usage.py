"""What the watcher makes of a machine whose memory goes where no process shows it."""
from __future__ import annotations

import os
import subprocess

import pytest

from supervisor.sandbox import usage

GIB = 1 << 30


def watched(monkeypatch: pytest.MonkeyPatch, before: int, now: int, total: int = 8 * GIB) -> usage.Watched:
    """A watcher over a process that sleeps, on a machine whose available memory went from ``before`` to ``now``."""
    monkeypatch.setattr(usage, "_host", lambda: (0, before, total))
    found = usage.Watched()
    found.launched(os.getpid())
    monkeypatch.setattr(usage, "_host", lambda: (0, now, total))
    return found


def test_what_is_missing_counts_when_the_host_comes_near_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    assert watched(monkeypatch, 6 * GIB, GIB // 4).sample().memory == 6 * GIB - GIB // 4


def test_a_host_with_enough_left_blames_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    assert watched(monkeypatch, 6 * GIB, 2 * GIB).sample().memory < GIB


def test_a_large_host_keeps_more_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    assert watched(monkeypatch, 60 * GIB, 3 * GIB, 64 * GIB).sample().memory == 57 * GIB


def test_nothing_is_held_where_nothing_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    found = watched(monkeypatch, 6 * GIB, GIB // 4)
    with subprocess.Popen(["true"]) as child:
        pass
    found.launched(child.pid)
    assert found.sample().memory == 0
