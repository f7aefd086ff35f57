"""Finding the project in every layout that git makes, without git; git itself only prepares them here."""
from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from supervisor.errors import ProjectError
from supervisor.workspace.project import GitKind, find_project

pytestmark = pytest.mark.needs("git")

LAYOUTS = """
export GIT_AUTHOR_NAME=n GIT_AUTHOR_EMAIL=e GIT_COMMITTER_NAME=n GIT_COMMITTER_EMAIL=e HOME=/nonexistent
git init -q main; cd main; echo a > a; git add .; git commit -qm i; mkdir -p x/y; git worktree add -q ../wt; cd ..
git init -q lib; cd lib; echo l > l; git add .; git commit -qm l; cd ..
git -C main -c protocol.file.allow=always submodule -q add ../lib vendor/lib
git init -q --bare bare.git; git init -q --separate-git-dir sepgit sep; mkdir plain plain/.git; ln -s main/x link
mkdir hub; git clone -q --bare main hub/.bare; echo 'gitdir: ./.bare' > hub/.git; git -C hub worktree add -q tree 2> /dev/null
mkdir away; mv lib/.git away/libgit; ln -s ../away/libgit lib/.git
mkdir stolen taken twin sunk; echo 'gitdir: ../main/.git' > stolen/.git; ln -s ../main/.git taken/.git
echo 'gitdir: ../main/.git/worktrees/wt' > twin/.git; echo 'gitdir: ../main/.git/modules/vendor/lib' > sunk/.git
mkdir broken; echo 'gitdir: nowhere' > broken/.git; mkdir odd; echo hello > odd/.git
"""


@pytest.fixture
def made(tmp_path: Path) -> Path:
    subprocess.run(["sh", "-ec", LAYOUTS], cwd=tmp_path, check=True, env={"PATH": os.environ["PATH"]})
    return tmp_path


@pytest.mark.parametrize(("start", "root", "within", "kind", "common"), [
    ("main", "main", b".", GitKind.DIRECTORY, "main/.git"),
    ("main/x/y", "main", b"x/y", GitKind.DIRECTORY, "main/.git"),
    ("link/y", "main", b"x/y", GitKind.DIRECTORY, "main/.git"),
    ("wt", "wt", b".", GitKind.WORKTREE, "main/.git"),
    ("main/vendor/lib", "main/vendor/lib", b".", GitKind.SUBMODULE, "main/.git/modules/vendor/lib"),
    ("sep", "sep", b".", GitKind.SUBMODULE, "sepgit"),
    ("lib", "lib", b".", GitKind.SUBMODULE, "away/libgit"),
    ("hub/tree", "hub/tree", b".", GitKind.WORKTREE, "hub/.bare"),
    ("plain", "plain", b".", None, ""),
    ("plain/.git", "plain/.git", b".", None, ""),
])
def test_layouts(made: Path, start: str, root: str, within: bytes, kind: GitKind | None, common: str) -> None:
    found = find_project(os.fsencode(made / start))
    assert (found.root, found.start) == (os.fsencode(made / root), within)
    if kind is None:
        assert found.git is None
    else:
        assert found.git is not None
        assert (found.git.kind, found.git.common) == (kind, os.fsencode(made / common))


@pytest.mark.parametrize(("start", "code"), [
    ("bare.git", "bare_repository"), ("bare.git/refs", "bare_repository"), ("main/.git", "inside_git_directory"),
    ("main/.git/objects", "inside_git_directory"), ("hub", "bare_repository"), ("broken", "git_pointer_broken"),
    ("odd", "git_pointer_broken"), ("missing", "project_unreadable"), ("main/a", "project_unreadable"),
    ("/", "project_refused"), ("stolen", "git_pointer_foreign"), ("taken", "git_pointer_foreign"),
    ("twin", "git_pointer_foreign"), ("sunk", "git_pointer_foreign"),
])
def test_refusals(made: Path, start: str, code: str) -> None:
    with pytest.raises(ProjectError) as caught:
        find_project(os.fsencode(made / start))
    assert caught.value.code == code
