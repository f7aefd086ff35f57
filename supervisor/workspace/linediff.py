"""Which lines of two texts are the same: a difference in bounded time, for input that somebody hostile wrote. Pure.

``difflib`` takes hours for two megabytes of repeated lines. Here: equal beginnings and ends are cut off, lines that occur
once on both sides anchor the rest (patience), and between anchors Myers' greedy search runs with a bound on its work; beyond
it, a stretch is shown as replaced as a whole. Always a correct difference, not always the shortest.

E. Myers, "An O(ND) Difference Algorithm and Its Variations", Algorithmica 1 (1986).
"""
from __future__ import annotations

import bisect
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

_WORK: Final = 2_000_000  # steps of the greedy search per comparison of two texts, all stretches together
_EDITS: Final = 600  # edits searched for in one stretch: memory grows with its square


@dataclass(frozen=True, slots=True)
class Change:
    """Lines ``old_from:old_to`` became lines ``new_from:new_to`` (indexes from 0, half open; one side may be empty)."""

    old_from: int
    old_to: int
    new_from: int
    new_to: int


def changes(old: Sequence[bytes], new: Sequence[bytes]) -> list[Change]:
    """The changed stretches, in order and without overlap; everything between them is equal."""
    numbers: dict[bytes, int] = {}
    a = [numbers.setdefault(line, len(numbers)) for line in old]
    b = [numbers.setdefault(line, len(numbers)) for line in new]
    found: list[Change] = []
    work = _WORK
    stack = [(0, len(a), 0, len(b))]
    while stack:
        low_a, high_a, low_b, high_b = stack.pop()
        while low_a < high_a and low_b < high_b and a[low_a] == b[low_b]:
            low_a, low_b = low_a + 1, low_b + 1
        while low_a < high_a and low_b < high_b and a[high_a - 1] == b[high_b - 1]:
            high_a, high_b = high_a - 1, high_b - 1
        if low_a == high_a or low_b == high_b:
            if low_a < high_a or low_b < high_b:
                found.append(Change(low_a, high_a, low_b, high_b))
            continue
        anchors = _anchors(a, b, low_a, high_a, low_b, high_b)
        if anchors:
            edges = [(low_a, low_b), *anchors, (high_a, high_b)]
            # An anchor is equal on both sides, so the next stretch may begin at it: its lines are cut off as equal
            stack += [(p, q, r, s) for (p, r), (q, s) in itertools.pairwise(edges)]
            continue
        pieces, spent = _greedy(a[low_a:high_a], b[low_b:high_b], work)
        work -= spent
        found += [
            Change(low_a + p.old_from, low_a + p.old_to, low_b + p.new_from, low_b + p.new_to) for p in pieces
        ]
    return _joined(sorted(found, key=lambda change: (change.old_from, change.new_from)))


def _joined(found: list[Change]) -> list[Change]:
    """Neighbours that touch become one."""
    out: list[Change] = []
    for change in found:
        last = out[-1] if out else None
        if last is not None and last.old_to == change.old_from and last.new_to == change.new_from:
            out[-1] = Change(last.old_from, change.old_to, last.new_from, change.new_to)
        else:
            out.append(change)
    return out


def _anchors(a: list[int], b: list[int], low_a: int, high_a: int, low_b: int, high_b: int) -> list[tuple[int, int]]:
    """Lines that occur exactly once on both sides, the longest run of them that is in order on both."""
    where_a = _once(a, low_a, high_a)
    where_b = _once(b, low_b, high_b)
    pairs = sorted((at, where_b[line]) for line, at in where_a.items() if line in where_b)
    tops: list[int] = []  # smallest last b-index of an increasing run of each length (patience sorting)
    piles: list[int] = []  # index into pairs of that last element
    before: list[int] = []
    for index, (_, at_b) in enumerate(pairs):
        pile = bisect.bisect_left(tops, at_b)
        before.append(piles[pile - 1] if pile else -1)
        if pile == len(tops):
            tops.append(at_b)
            piles.append(index)
        else:
            tops[pile], piles[pile] = at_b, index
    run: list[tuple[int, int]] = []
    index = piles[-1] if piles else -1
    while index >= 0:
        run.append(pairs[index])
        index = before[index]
    return run[::-1]


def _once(lines: list[int], low: int, high: int) -> dict[int, int]:
    where: dict[int, int] = {}
    for at in range(low, high):
        where[lines[at]] = -1 if lines[at] in where else at
    return {line: at for line, at in where.items() if at >= 0}


def _greedy(a: list[int], b: list[int], work: int) -> tuple[list[Change], int]:
    """Myers' search from the start; the whole stretch as one change when it would take too long."""
    n, m = len(a), len(b)
    reach = {1: 0}  # furthest x on each diagonal
    trail: list[dict[int, int]] = []
    spent = 0
    for edits in range(min(n + m, _EDITS) + 1):
        spent += edits + 1
        if spent > work:
            break
        trail.append(dict(reach))
        for diagonal in range(-edits, edits + 1, 2):
            down = diagonal == -edits or (diagonal != edits and reach[diagonal - 1] < reach[diagonal + 1])
            x = reach[diagonal + 1] if down else reach[diagonal - 1] + 1
            y = x - diagonal
            while x < n and y < m and a[x] == b[y]:
                x, y = x + 1, y + 1
                spent += 1
            reach[diagonal] = x
            if x >= n and y >= m:
                return _walk_back(trail, n, m), spent
    return [Change(0, n, 0, m)], spent


def _walk_back(trail: list[dict[int, int]], x: int, y: int) -> list[Change]:
    found: list[Change] = []
    for edits in range(len(trail) - 1, 0, -1):
        reach = trail[edits]
        diagonal = x - y
        down = diagonal == -edits or (diagonal != edits and reach[diagonal - 1] < reach[diagonal + 1])
        from_diagonal = diagonal + 1 if down else diagonal - 1
        from_x = reach[from_diagonal]
        from_y = from_x - from_diagonal
        found.append(Change(from_x, from_x + (not down), from_y, from_y + down))
        x, y = from_x, from_y
    return found[::-1]
