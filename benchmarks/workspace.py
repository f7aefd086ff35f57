"""A working copy: what opening and collecting cost over 10 and over 100 000 files, and the exclusions' walk beside find(1)."""
from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import trio

from benchmarks.measure import Row, compare, interleave
from supervisor.workspace.blobs import Blobs
from supervisor.workspace.exclusions import Exclusions
from supervisor.workspace.open import open_workspace
from supervisor.workspace.project import find_project
from supervisor.workspace.walk import find_excluded

MANY = 100_000
A_DIRECTORY = 100  # files


def rows(quick: bool) -> list[Row]:
    rounds = 10 if quick else 60
    with tempfile.TemporaryDirectory(prefix="lemni-bench-", dir="/var/tmp") as directory:
        few, many, state = (Path(directory, name) for name in ("few", "many", "state"))
        _fill(few, 10)
        _fill(many, MANY)
        return [*_opening(few, many, state, rounds), _walking(many, rounds)]


def _fill(root: Path, count: int) -> None:
    """Files of a repository's shape: a hundred a directory, ten directories a directory."""
    for start in range(0, count, A_DIRECTORY):
        number = start // A_DIRECTORY
        directory = root / f"part{number // 10}" / f"module{number % 10}"
        directory.mkdir(parents=True)
        for index in range(min(A_DIRECTORY, count - start)):
            (directory / f"source_file_{index}.py").touch()


def _opening(few: Path, many: Path, state: Path, rounds: int) -> list[Row]:
    nothing = Exclusions.parse(built_in=False)  # the walk is counted apart, below

    def opened(root: Path) -> Callable[[], object]:
        project = find_project(os.fsencode(root))

        async def once() -> None:
            async with open_workspace(project, nothing, state / "scratch", os.geteuid(), os.getegid()) as workspace:
                workspace.collect(Blobs(state / "blobs"))

        return lambda: trio.run(once)

    sides = interleave({"few": opened(few), "many": opened(many)}, rounds)
    return [compare(f"working copy of {MANY} files, opened and collected", sides["many"], sides["few"], "one of 10 files", 1.5)]


def _walking(many: Path, rounds: int) -> Row:
    exclusions = Exclusions.parse(["fixtures/private/**"])
    root = os.open(many, os.O_RDONLY | os.O_DIRECTORY)
    sides: dict[str, Callable[[], object]] = {"walk": lambda: find_excluded(root, exclusions)}
    if shutil.which("find"):
        sides["find"] = lambda: subprocess.run(["find", many], stdout=subprocess.DEVNULL, check=True)
    taken = interleave(sides, rounds)
    os.close(root)
    return compare(f"names-only walk of {MANY} files", taken["walk"], taken.get("find"), "find on the same tree", 1.5)
