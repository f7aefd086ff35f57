"""Git configuration that a session plants must never run on the developer's machine, nor leave the session at all (B14–B16)."""
from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from supervisor.workspace.apply import Applied
from supervisor.workspace.diff import measure, render
from support.overlays import applied, session

pytestmark = [pytest.mark.kernel, pytest.mark.needs("overlay", "git")]

RUN = 'sh -c "echo x >> {mark}; cat"'
HOOKS = "pre-commit post-checkout post-index-change reference-transaction post-applypatch pre-applypatch"
VECTORS = {
    "fsmonitor": "git config core.fsmonitor 'echo x >> {mark}; false'",
    "hooks": f"for h in {HOOKS}; do printf '#!/bin/sh\\necho x >> {{mark}}\\n' > .git/hooks/$h; chmod +x .git/hooks/$h; done",
    "hookspath": f"mkdir hk; for h in {HOOKS}; do printf '#!/bin/sh\\necho x >> {{mark}}\\n' > hk/$h; chmod +x hk/$h; done;"
                 " git config core.hooksPath hk",
    "extdiff": "git config diff.external 'sh -c \"echo x >> {mark}\" --'",
    "textconv": "echo '* diff=ev' > .gitattributes; git config diff.ev.textconv 'sh -c \"echo x >> {mark}\" --'",
    "diffcmd": "echo '* diff=ev' > .gitattributes; git config diff.ev.command 'sh -c \"echo x >> {mark}\" --'",
    "clean": f"echo '* filter=ev' > .gitattributes; git config filter.ev.clean '{RUN}'; git config filter.ev.smudge '{RUN}'",
    "process": "echo '* filter=ev' > .gitattributes; git config filter.ev.process 'sh -c \"echo x >> {mark}\"'",
    "infoattr": f"mkdir -p .git/info; echo '* filter=ev' > .git/info/attributes; git config filter.ev.clean '{RUN}'",
    "wtconf": "git config extensions.worktreeConfig true; echo '* filter=ev' > .gitattributes;"
              " printf '[filter \"ev\"]\\n clean = sh -c \"echo x >> {mark}; cat\"\\n' > .git/config.worktree",
    "include": "printf '[core]\\n fsmonitor = \"echo x >> {mark}; false\"\\n' > evil.inc; git config include.path ../evil.inc",
    "nested": "git init -q sub; (cd sub; echo 1 > s; git config core.fsmonitor 'echo x >> {mark}; false')",
    "other case": "mkdir -p v/.GIT/hooks; printf '#!/bin/sh\\necho x >> {mark}\\n' > v/.GIT/hooks/pre-commit; echo k > v/k",
    "pointer": "git init -q hidden; mv .git old; echo 'gitdir: hidden/.git' > .git;"
               " git config core.fsmonitor 'echo x >> {mark}'",
    "worktree": "git config core.worktree /etc",
    "attributes": "echo '* -diff' > .gitattributes; echo 'f.txt' > .gitignore; git update-index --skip-worktree f.txt",
}


@pytest.mark.parametrize("vector", VECTORS)
def test_nothing_planted_runs_or_comes_out(tmp_path: Path, vector: str) -> None:
    root, mark = tmp_path / "project", tmp_path / "mark"
    root.mkdir()
    environment = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1"}
    environment |= {f"GIT_{who}_{what}": "n" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}

    def git(*words: str) -> None:
        subprocess.run(["git", *words], cwd=root, env=environment, check=True, stdout=subprocess.DEVNULL)

    def shell(script: str) -> Callable[[], object]:
        return lambda: subprocess.run(["sh", "-c", script], env=environment, check=False, capture_output=True)

    git("init", "-q", "-b", "main")
    (root / "f.txt").write_text("a\n")
    git("add", ".")
    git("commit", "-qm", "i")
    planted = VECTORS[vector].format(mark=mark)
    changes, blobs = session(root, tmp_path / "state", shell(planted + "; echo changed >> f.txt"))
    assert b"+changed\n" in render(changes, blobs.read), "the session's work is always shown"
    assert measure(changes, blobs.read)[0] >= 1
    assert not any(part.lower() == b".git" for entry in changes.entries for part in entry.path.split(b"/"))
    mark.unlink(missing_ok=True)  # what ran inside, ran inside
    assert isinstance(applied(root, tmp_path / "state", changes, blobs), Applied)
    assert (root / "f.txt").read_text() == "a\nchanged\n"
    for words in (("status", "--porcelain"), ("diff",), ("add", "-A"), ("commit", "-qm", "mine")):
        git(*words)
    assert not mark.exists(), "the developer's own git ran something of the session's"


BARE = "mkdir -p {d}/objects {d}/refs; echo 'ref: refs/heads/main' > {d}/HEAD"
TRAP = "printf '[core]\\n\\tfsmonitor = \"echo x >> {mark}; false\"\\n\\tworktree = ..\\n' > {d}/config"
LOOKALIKES = {
    "a bare repository": f"{BARE}; {TRAP}",
    "one whose HEAD is a link": f"{BARE}; {TRAP}; ln -sfn refs/heads/main {{d}}/HEAD",
    "one that borrows from another": f"{BARE}; mv {{d}}/objects {{d}}/refs .; echo .. > {{d}}/commondir; {TRAP}",
    "the configuration of one that was there": "printf '[core]\\n\\tfsmonitor = \"echo x >> {mark}\"\\n' > fixture/config",
    "a hook of one that was there": "mkdir -p fixture/hooks; echo 'echo x >> {mark}' > fixture/hooks/post-checkout",
}


@pytest.mark.parametrize("vector", LOOKALIKES)
def test_nothing_enters_what_git_takes_for_a_repository(tmp_path: Path, vector: str) -> None:
    root, mark = tmp_path / "project", tmp_path / "mark"
    for directory in ("fixture/objects", "fixture/refs", "plain"):
        (root / directory).mkdir(parents=True)
    (root / "fixture/HEAD").write_text("ref: refs/heads/main\n")
    (root / "plain/HEAD").write_text("a file of this name alone is nothing\n")
    planted = LOOKALIKES[vector].format(mark=mark, d="deep/er") + "; echo mine > kept; echo mine > plain/HEAD"
    changes, blobs = session(root, tmp_path / "state", lambda: subprocess.run(["sh", "-c", planted], check=True))
    assert isinstance(applied(root, tmp_path / "state", changes, blobs), Applied)
    assert {entry.path for entry in changes.proposed} >= {b"kept", b"plain/HEAD"}
    assert not {b"deep/er/HEAD", b"deep/er/config", b"fixture/config", b"fixture/hooks/post-checkout"} & {
        entry.path for entry in changes.proposed
    }
    for directory in ("deep/er", "fixture"):
        if (root / directory).is_dir():
            subprocess.run(["git", "status"], cwd=root / directory, check=False, capture_output=True)
    assert not mark.exists(), "the developer's own git ran something of the session's"
