"""The demo is a promise made on the first page: it works, and leaves the person's own HOME alone."""
from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from support.lemni import ROOT, environment

pytestmark = [pytest.mark.kernel, pytest.mark.needs("userns", "overlay", "git", "bash")]


def test_the_demo_repairs_the_project(home: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "demo"], cwd=ROOT, env={**environment(home), "TMPDIR": str(tmp_path)}, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, check=False, timeout=120,
    )
    shown = done.stdout + done.stderr
    assert done.returncode == 0, shown
    assert "FAILED (failures=1)" in shown
    assert "\n  │ OK\n" in shown or "┃ OK" in shown
    assert "+    hours, minutes = divmod(round(seconds / 60), 60)" in shown
    assert "sandbox opened in" in shown
    assert "failed [" not in shown
    assert "refused [" not in shown
    assert os.listdir(home) == []
    for line in picture():
        assert _measured(line) in _measured(shown), line


def picture() -> list[str]:
    """The lines of README's picture; of the answer, which is broken there, each part."""
    text = (ROOT / "README.md").read_text("utf-8")
    return text.partition("<!-- picture -->")[2].partition("<!-- end of picture -->")[0].split("```")[1].strip().splitlines()


def _measured(text: str) -> str:
    """The text without what differs from run to run and from machine to machine: ids, numbers with a unit, layers."""
    text = re.sub(r"\b01[0-9a-z]{24}\b", "ID", text)
    text = re.sub(r"\b[0-9]+(\.[0-9]+)? ?(ms|s|B|[KMG]iB|process(es)?|layers?|entries)\b", "N", text)
    return re.sub(r"off: .*|^! .*", "", text, flags=re.MULTILINE)
