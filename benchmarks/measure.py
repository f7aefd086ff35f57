"""How everything here is measured: rounds in turn with the peer, median and 95th percentile, one row an answer.

Interleaving is what makes a ratio mean something on a machine that others use: both sides of it see the same noise.
"""
from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table. ``ratio`` is median / the peer's median in the same run; ``target`` is its upper bound.

    ``against`` names the peer, or says which peer is missing (then ``ratio`` is None).
    """

    name: str
    median: float
    p95: float
    unit: str  # "µs", "MiB", "1/s", …
    against: str = ""
    ratio: float | None = None
    target: float | None = None


@dataclass(frozen=True, slots=True)
class Samples:
    """Measured durations of one side, in microseconds."""

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def p95(self) -> float:
        return sorted(self.values)[min(len(self.values) - 1, int(len(self.values) * 0.95))]


def interleave(sides: dict[str, Callable[[], object]], rounds: int, warm: int = 3) -> dict[str, Samples]:
    """Run each side once a round, in rotating order, and return its durations."""
    taken: dict[str, list[float]] = {name: [] for name in sides}
    names = list(sides)
    for i in range(rounds + warm):
        for name in names[i % len(names):] + names[: i % len(names)]:
            began = time.perf_counter_ns()
            sides[name]()
            took = (time.perf_counter_ns() - began) / 1000
            if i >= warm:
                taken[name].append(took)
    return {name: Samples(tuple(values)) for name, values in taken.items()}


def compare(name: str, ours: Samples, peer: Samples | None, against: str, target: float | None) -> Row:
    """The row of two interleaved sides; a missing peer is named, never guessed. Without ``against`` there is none."""
    if peer is None:
        return Row(name, ours.median, ours.p95, "µs", f"{against}: missing" if against else "", None, target)
    return Row(name, ours.median, ours.p95, "µs", against, ours.median / peer.median, target)
