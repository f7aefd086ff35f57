"""The process that holds the model's key and the journal is closed to its neighbours of the same user."""
from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from support.lemni import ARGV, environment

pytestmark = [pytest.mark.kernel, pytest.mark.needs("userns", "overlay", "git", "bash")]


@pytest.mark.needs("unprivileged")
def test_another_process_of_the_user_cannot_look_into_it(repo: Path, home: Path) -> None:
    with subprocess.Popen(
        [*ARGV, "exec", "--", "sh", "-c", "echo inside; sleep 60"], cwd=repo, env=environment(home),
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    ) as running:
        try:
            assert running.stdout is not None
            assert running.stdout.readline() == b"inside\n"
            for entry in ("environ", "mem", "fd", "maps"):
                with pytest.raises(PermissionError):
                    os.close(os.open(f"/proc/{running.pid}/{entry}", os.O_RDONLY))
        finally:
            running.kill()
