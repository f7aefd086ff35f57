"""The house as it stands is the house as it is drawn: sizes, head docstrings, the map, the changelog, the licence."""
from __future__ import annotations

import ast
import hashlib
import re
from pathlib import Path

import pytest

from supervisor.version import VERSION
from support import drawing
from support.lemni import ROOT
from support.source import CODE, parsed, project_files, python_files

MANY_LINES = 600
LONG: dict[str, str] = {  # file over MANY_LINES: why it is one file
}
SOURCES = [path for path in project_files() if path.suffix in {".py", ".pyx", ".c", ".h"} and path.parts[0] in CODE]
UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
EUPL_WORDS = "b265314fe0920ed66121307961dabb70eb3c26c508d2362783e821bbb4a0e16c"  # SHA-256 of the licence's words


def test_no_file_is_longer_than_a_person_can_hold() -> None:
    long = {str(path) for path in SOURCES if (ROOT / path).read_text().count("\n") > MANY_LINES}
    assert long == set(LONG)


@pytest.mark.parametrize("path", list(python_files(*CODE)), ids=str)
def test_every_file_says_why_it_exists(path: Path) -> None:
    assert ast.get_docstring(parsed(path)), f"{path} has no head docstring"


def test_the_drawn_tree_is_the_real_one() -> None:
    """``make tree`` redraws it."""
    assert drawing.drawn() == drawing.real()


def test_nothing_is_left_unfinished() -> None:
    for path in project_files():
        if path.parts[0] in {"tests", "LICENCE"} or path.suffix not in {".py", ".pyx", ".c", ".h", ".toml", ".yaml", ".md", ""}:
            continue
        for number, line in enumerate((ROOT / path).read_text(errors="replace").splitlines(), 1):
            assert not UNFINISHED.search(line), f"{path}:{number}: {line.strip()}"


def test_the_changelog_keeps_its_form() -> None:
    """Keep a Changelog 1.1.0: releases newest first with ISO dates, the six kinds of change and no others."""
    lines = (ROOT / "CHANGELOG.md").read_text().splitlines()
    assert lines[0] == "# Changelog"
    releases = [line for line in lines if line.startswith("## ")]
    assert releases[0] == "## [Unreleased]"
    dated = [re.fullmatch(r"## \[(\d+\.\d+\.\d+)\] - (\d{4}-\d{2}-\d{2})", line) for line in releases[1:]]
    assert all(dated), releases
    dates = [match[2] for match in dated if match]
    assert dates == sorted(dates, reverse=True)
    assert not dated or (dated[0] and dated[0][1] == VERSION)
    kinds = {line.removeprefix("### ") for line in lines if line.startswith("### ")}
    assert kinds <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


def test_the_licence_is_the_official_text() -> None:
    words = " ".join((ROOT / "LICENCE").read_text().split())
    assert words.startswith("EUROPEAN UNION PUBLIC LICENCE v. 1.2 EUPL © the European Union 2007, 2016")
    assert words.endswith("All other changes or additions to this Appendix require the production of a new EUPL version.")
    assert hashlib.sha256(words.encode()).hexdigest() == EUPL_WORDS
