"""Where ``lemni`` starts. ``--version`` answers at once; every other command is imported only when it is called."""
from __future__ import annotations

import sys

from supervisor.version import VERSION


def entry() -> None:
    """The console script. Never returns: exits with the code of the command."""
    if sys.argv[1:] == ["--version"]:  # before click, whose import alone costs three interpreters
        try:
            print(f"lemni {VERSION}", flush=True)
        except OSError as failed:  # a full disk; a reader that has gone
            from agent.cli.problems import gone
            from agent.cli.terminal import OutputGone, silence

            silence(sys.stdout)  # or its last flush would fail once more
            sys.exit(gone(OutputGone(failed.errno)))
        sys.exit(0)
    from agent.cli.problems import run
    from agent.cli.root import lemni

    sys.exit(run(lemni, sys.argv[1:]))
