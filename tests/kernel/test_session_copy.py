"""Where no overlay can be mounted, the working copy is a plain copy: announced, and the session is as good."""
from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from support.lemni import ARGV, environment

pytestmark = [pytest.mark.kernel, pytest.mark.needs("userns", "overlay", "git", "bash", "root")]

# The state directory on an overlay of its own: the kernel takes none as another overlay's upper layer. In a private mount
# namespace, which goes with the shell.
SCRIPT = """
mkdir -p "$HOME/l" "$HOME/u" "$HOME/w" "$HOME/state"
mount -t overlay -o "lowerdir=$HOME/l,upperdir=$HOME/u,workdir=$HOME/w" none "$HOME/state"
export XDG_STATE_HOME="$HOME/state"
"$@" exec -- sh -c 'git status --short && git commit -q --allow-empty -m x && echo new >> README && rm src/a.py'
"$@" diff
echo y | "$@" apply
"""


def test_a_state_directory_that_can_hold_no_overlay(repo: Path, home: Path) -> None:
    done = subprocess.run(
        ["unshare", "--mount", "--propagation", "private", "bash", "-euc", SCRIPT, "bash", *ARGV],
        cwd=repo, env=environment(home), stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert "the working copy is a plain copy" in done.stderr
    assert "+new" in done.stdout
    assert "deleted file" in done.stdout
    assert ".git" not in done.stdout
    assert not (repo / "src/a.py").exists()
    assert (repo / "README").read_text().endswith("new\n")
    assert (repo / ".git/HEAD").exists()
