"""Run the real ``lemni`` as a person or a script would: another process, closed input, its own HOME."""
from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ARGV = (sys.executable, "-m", "agent.cli")  # the console script says the same, but needs an installation


@dataclass(frozen=True, slots=True)
class Ended:
    """How a run ended; streams are decoded as UTF-8 with surrogate escapes."""

    code: int  # negative: the signal that ended it
    out: str
    err: str


def environment(home: Path, more: Mapping[str, str] | None = None) -> dict[str, str]:
    """The whole environment of a run: nothing of the caller but PATH."""
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "PYTHONPATH": str(ROOT),
        "PYTHONWARNINGS": "error",
        **(more or {}),
    }


def lemni(
    *arguments: str | bytes,
    cwd: Path,
    home: Path,
    stdin: bytes | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float = 120,
    argv: Sequence[str] = ARGV,
) -> Ended:
    """Run ``lemni ARGUMENTS`` to its end; standard input is a pipe, empty by default. Raises TimeoutExpired."""
    done = subprocess.run(
        [*argv, *arguments],
        cwd=cwd,
        env=environment(home, env),
        timeout=timeout,
        input=stdin or b"",
        capture_output=True,
        check=False,
    )
    return Ended(done.returncode, _text(done.stdout), _text(done.stderr))


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")
