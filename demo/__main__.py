"""``make demo``: copy the project into a repository of its own, let the scripted model work on it, show what came of it.

Everything happens below one temporary directory, with a HOME of its own: no file, setting or session of the person who
watches is read or written. Each command is printed before it runs, so that a person can type the same ones.
"""
from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from agent.cli.numbers import milliseconds, size
from agent.cli.terminal import BOLD, DIM, GREEN, RED, err, paint

HERE = Path(__file__).parent
PROMPT = "The test suite fails. Find out why and repair the code."
CONFIGURATION = """\
models:
  - name: demo
    provider: scripted      # plays demo/script.yaml; a real server: provider: openai, apiBase, model
    script: {script}
"""


def main() -> int:
    """Run the demo; 0 when the agent repaired the project and the journal is intact."""
    started = time.monotonic()
    place = Path(tempfile.mkdtemp(prefix="lemni-demo-"))
    project, home = place / "timesheet", place / "home"
    prepare(project, home)
    environment = {
        "HOME": str(home), "PATH": os.environ.get("PATH", os.defpath), "LANG": os.environ.get("LANG", "C.UTF-8"),
        "TERM": os.environ.get("TERM", "dumb"), "PYTHONPATH": str(HERE.parent),
        **{name: os.environ[name] for name in ("NO_COLOR", "COLUMNS") if name in os.environ},
    }

    def lemni(*arguments: str) -> int:
        err(paint("\n$ lemni " + " ".join(json.dumps(a) if " " in a else a for a in arguments), BOLD))
        return subprocess.run(
            [sys.executable, "-m", "agent.cli", *arguments], cwd=project, env=environment, stdin=subprocess.DEVNULL, check=False
        ).returncode

    err(f"A copy of demo/project, with a test that fails, is in {project}")
    codes = {
        "the starter policy": lemni("policy", "init"),
        "the agent": lemni("-p", PROMPT),
        "the diff": lemni("diff"),
        "the journal": lemni("journal", "verify"),
    }
    failed = [what for what, code in codes.items() if code != 0]
    if not failed:
        cost(home, time.monotonic() - started)
    if repository_changed(project):
        failed.append("the repository, which changed before anybody accepted anything")
    if failed:
        err(paint("\nthe demo failed at: " + ", ".join(failed), RED))
        return 1
    err(paint("\nThe repository itself is untouched: nothing leaves the sandbox but the diff. To accept it:", GREEN))
    err(f"    cd {project} && HOME={home} {Path(sys.executable).parent / 'lemni'} apply")
    return 0


def prepare(project: Path, home: Path) -> None:
    """A git repository with the demo project, and a HOME with a configuration that names the scripted model."""
    shutil.copytree(HERE / "project", project, ignore=shutil.ignore_patterns("__pycache__"))
    identity = ("-c", "user.name=Demo", "-c", "user.email=demo@example.invalid")
    for arguments in (("init", "-q", "-b", "main"), ("add", "."), (*identity, "commit", "-q", "-m", "Timesheet 1.2.0")):
        subprocess.run(["git", *arguments], cwd=project, check=True, stdin=subprocess.DEVNULL)
    settings = home / ".lemniscate"
    settings.mkdir(parents=True, mode=0o700)
    (settings / "config.yaml").write_text(CONFIGURATION.format(script=json.dumps(str(HERE / "script.yaml"))))


def repository_changed(project: Path) -> bool:
    """Whether git sees any change: before an acceptance there must be none."""
    status = subprocess.run(
        ["git", "status", "--porcelain"], cwd=project, capture_output=True, check=True, stdin=subprocess.DEVNULL
    )
    return bool(status.stdout)


def cost(home: Path, seconds: float) -> None:
    """What the sandbox cost, read back from the journal of the session."""
    journals = sorted((home / ".local/state/lemniscate/journal").glob("[0-9]*.jsonl"))
    entries = [json.loads(line) for line in journals[-1].read_text().splitlines()]

    def of(event: str, field: str) -> list[int]:
        return [entry[field] for entry in entries if entry.get("ev") == event]

    commands = of("call.executed", "duration_us")
    rows = [
        ("sandbox opened in", " ".join(map(milliseconds, of("sandbox.opened", "duration_us")))),
        ("commands", ", ".join(map(milliseconds, commands))),
        ("peak memory", " ".join(map(size, of("sandbox.destroyed", "memory_peak")))),
        ("journal", f"{len(entries)} entries, {size(journals[-1].stat().st_size)}"),
        ("the whole demo", f"{seconds:.1f} s"),
    ]
    err(paint("\nwhat it cost", BOLD))
    for name, value in rows:
        err(f"  {paint(f'{name:<18}', DIM)} {value}")


if __name__ == "__main__":
    sys.exit(main())
