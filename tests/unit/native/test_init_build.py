"""What the init is made of: no libc, nothing to relocate, the flags of setup.py under which every warning is an error."""
from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from support import needs

ROOT = Path(__file__).parents[3]
INIT = ROOT / "native/lemni-init"


def output(*argv: str | Path) -> str:
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout


@pytest.fixture(autouse=True)
def binutils() -> None:
    needs.require("cc")
    assert INIT.exists(), "build first: setup.py build_ext --inplace"


def test_no_symbol_is_left_to_a_library() -> None:
    assert output("nm", "-u", INIT) == ""


def test_it_is_executable_and_needs_no_interpreter() -> None:
    assert INIT.stat().st_mode & stat.S_IXUSR
    headers = output("readelf", "-lW", INIT)
    assert "INTERP" not in headers
    assert "NEEDED" not in output("readelf", "-dW", INIT)


def test_it_can_relocate_itself() -> None:
    relocations = [line for line in output("readelf", "-rW", INIT).splitlines() if " R_" in line]
    assert all("_RELATIVE" in line for line in relocations), relocations


def test_its_stack_is_not_executable() -> None:
    (line,) = [line for line in output("readelf", "-lW", INIT).splitlines() if "GNU_STACK" in line]
    assert "RWE" not in line


def test_it_is_small() -> None:
    assert INIT.stat().st_size < 64 * 1024


def test_run_by_itself_it_ends_at_once() -> None:
    with open(os.devnull, "rb") as null:
        done = subprocess.run([INIT], stdin=null, capture_output=True, timeout=10, check=False)
    assert done.returncode == 0  # no channel is the end of the channel


def test_it_builds_for_arm_too(tmp_path: Path) -> None:
    needs.require("aarch64_cc")
    argv = [sys.executable, "setup.py", "-q", "build_init", "--build-lib", str(tmp_path)]
    subprocess.run(argv, check=True, cwd=ROOT, env={**os.environ, "CC": "aarch64-linux-gnu-gcc"})
    built = tmp_path / "native/lemni-init"
    assert "AArch64" in output("readelf", "-hW", built)
    assert output("nm", "-u", built) == ""
    assert all("_RELATIVE" in line for line in output("readelf", "-rW", built).splitlines() if " R_" in line)
