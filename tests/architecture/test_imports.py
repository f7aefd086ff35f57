"""The layers hold: every module is placed, none imports upwards, the functional core reaches nothing."""
from __future__ import annotations

import subprocess
import sys

from support.lemni import ROOT


def test_the_contracts_of_importlinter_are_kept() -> None:
    code = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(no_cache=True))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
