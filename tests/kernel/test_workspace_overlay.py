"""Working copies over real repositories, edited through a real overlay: what is seen, what comes out, what never does."""
from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from supervisor.errors import WorkspaceError
from supervisor.workspace.apply import Applied, Conflict
from supervisor.workspace.changes import ChangeSet, Kind, Operation
from supervisor.workspace.copy import make_copy
from supervisor.workspace.diff import render
from supervisor.workspace.exclusions import Exclusions
from supervisor.workspace.open import open_workspace, sweep_scratch
from supervisor.workspace.overlay import Seeds
from supervisor.workspace.project import find_project
from supervisor.workspace.trees import remove_tree
from support.overlays import applied, inside, session, tree

pytestmark = [pytest.mark.kernel, pytest.mark.needs("overlay", "git")]


@pytest.fixture
def repository(tmp_path: Path) -> Iterator[Path]:
    """A git repository with one commit and some uncommitted work. Taken away by ours: pytest's own removal recurses."""
    root = tmp_path / "project"
    root.mkdir()
    git(root, "init", "-q", "-b", "main")
    (root / "a.txt").write_text("one\ntwo\n")
    (root / "src").mkdir()
    (root / "src/b.py").write_text("print(1)\n")
    git(root, "add", ".")
    git(root, "commit", "-qm", "first")
    (root / "untracked").write_text("mine\n")
    yield root
    here = os.open(tmp_path, os.O_RDONLY)
    remove_tree(here, b"project")
    os.close(here)


def git(directory: Path | str, *words: str) -> str:
    identity = {"GIT_AUTHOR_NAME": "n", "GIT_AUTHOR_EMAIL": "e", "GIT_COMMITTER_NAME": "n", "GIT_COMMITTER_EMAIL": "e"}
    environment = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1"} | identity
    command = ["git", "-c", "protocol.file.allow=always", *words]
    return subprocess.run(command, cwd=directory, env=environment, check=True, capture_output=True, text=True).stdout


def shell(script: str) -> Callable[[], object]:
    return lambda: subprocess.run(["sh", "-ec", script], check=True, env={"PATH": os.environ["PATH"], "HOME": "/nonexistent"})


def paths(changes: ChangeSet) -> dict[bytes, Operation]:
    return {entry.path: entry.operation for entry in changes.entries}


def test_copied_up_but_unchanged_is_no_change(repository: Path, tmp_path: Path) -> None:
    script = "touch a.txt; cp -p src/b.py x; cat x > src/b.py; rm x; mv untracked u2; mv u2 untracked"
    changes, _ = session(repository, tmp_path / "state", shell(script))
    assert changes.entries == ()


def test_git_works_inside_and_nothing_of_it_comes_out(repository: Path, tmp_path: Path) -> None:
    before = git(repository, "rev-parse", "HEAD"), git(repository, "status", "--porcelain")
    script = """git config user.name n; git config user.email e; git add -A; git commit -qm x; git switch -qc y
        echo z >> a.txt; git stash -q; git tag t; git gc -q; mkdir -p vendor/s && git init -q vendor/s; echo hi > vendor/s/file
        mkdir -p deep/.GIT deep/.Git; echo evil > deep/.GIT/config; echo evil > deep/.Git/x; echo evil > '.git '
        mkdir git~1; echo evil > git~1/config"""
    changes, blobs = session(repository, tmp_path / "state", shell(script))
    assert set(paths(changes)) == {b"vendor", b"vendor/s", b"vendor/s/file", b"deep"}
    assert isinstance(applied(repository, tmp_path / "state", changes, blobs), Applied)
    assert (git(repository, "rev-parse", "HEAD"), git(repository, "status", "--porcelain")) != before
    assert git(repository, "rev-parse", "HEAD") == before[0]
    assert not list(repository.glob("vendor/s/.git"))
    assert git(repository, "fsck") == ""


def test_status_inside_equals_the_developers(repository: Path, tmp_path: Path) -> None:
    (repository / "a.txt").write_text("dirty\n")
    (repository / "staged").write_text("s\n")
    git(repository, "add", "staged")
    expected = git(repository, "status", "--porcelain")
    seen = tmp_path / "seen"
    session(repository, tmp_path / "state", shell(f"git status --porcelain > {seen}"))
    assert seen.read_text() == expected


def test_excluded_paths_are_absent_and_never_reported_as_deleted(repository: Path, tmp_path: Path) -> None:
    (repository / ".env.local").write_text("SECRET=1\n")
    (repository / "conf/secrets").mkdir(parents=True)
    (repository / "conf/secrets/k").write_text("k\n")
    (repository / "conf/KEY.PEM").write_text("pem\n")
    (repository / "fixtures/private").mkdir(parents=True)
    (repository / "fixtures/private/x").write_text("x\n")
    before = tree(repository)
    script = """test -z "$(find . -name '.env*' -o -name secrets -o -name '*.PEM' -o -path './fixtures/private/*')"
        ! cat .env.local; ! cat conf/secrets/k"""
    changes, _ = session(repository, tmp_path / "state", shell(script), policy=("fixtures/private/**",))
    assert changes.entries == ()
    script = "echo A=2 > .env.local; mkdir conf/secrets; echo agent > conf/secrets/k; echo new > new.key"
    changes, blobs = session(repository, tmp_path / "s2", shell(script), policy=("fixtures/private/**",))
    assert changes.proposed == ()
    assert {entry.path for entry in changes.refused} == {b".env.local", b"conf/secrets", b"conf/secrets/k", b"new.key"}
    assert isinstance(applied(repository, tmp_path / "s2", changes, blobs), Applied)
    assert tree(repository) == before


def test_deleting_a_directory_spares_what_the_session_did_not_see(repository: Path, tmp_path: Path) -> None:
    (repository / "conf").mkdir()
    (repository / "conf/seen").write_text("s\n")
    (repository / "conf/x.pem").write_text("pem\n")
    changes, blobs = session(repository, tmp_path / "state", shell("rm -r conf src"))
    assert paths(changes) == dict.fromkeys([b"conf/seen", b"src", b"src/b.py"], Operation.DELETE)
    assert any("conf" in notice for notice in changes.notices)
    assert isinstance(applied(repository, tmp_path / "state", changes, blobs), Applied)
    assert (repository / "conf/x.pem").exists()
    assert not (repository / "src").exists()


@pytest.mark.parametrize("want_copy", [False, True], ids=["overlay", "copy"])
def test_what_the_developer_changed_meanwhile_is_a_conflict(repository: Path, tmp_path: Path, want_copy: bool) -> None:
    (repository / "gone").write_text("g\n")

    def meanwhile() -> None:
        (repository / "a.txt").write_text("developer\n")
        (repository / "src/b.py").write_text("developer\n")
        (repository / "both").write_text("developer\n")
        (repository / "gone").unlink()
        (repository / "free").write_text("developer\n")

    script = "echo agent >> a.txt; rm src/b.py; echo agent > both; echo agent >> gone; echo agent > new"
    changes, blobs = session(repository, tmp_path / "state", shell(script), meanwhile=meanwhile, want_copy=want_copy)
    assert {entry.path for entry in changes.conflicts} == {b"a.txt", b"src/b.py", b"both", b"gone"}
    assert paths(changes)[b"new"] is Operation.ADD
    before = tree(repository)
    assert isinstance(applied(repository, tmp_path / "state", changes, blobs), Conflict)
    assert tree(repository) == before


def test_a_renamed_file_is_no_conflict(repository: Path, tmp_path: Path) -> None:
    script = "mv a.txt c.txt; echo more >> c.txt; git mv src/b.py src/c.py"
    changes, blobs = session(repository, tmp_path / "state", shell(script))
    assert changes.conflicts == ()
    assert b"has the bytes of src/b.py" in render(changes, blobs.read)
    assert isinstance(applied(repository, tmp_path / "state", changes, blobs), Applied)
    assert (repository / "c.txt").read_text() == "one\ntwo\nmore\n"


def test_linked_worktree_works_inside_and_the_repository_outside_is_untouched(repository: Path, tmp_path: Path) -> None:
    worktree = tmp_path / "wt"
    git(repository, "worktree", "add", "-q", str(worktree), "-b", "side")
    before = subprocess.run(["find", repository / ".git", "-type", "f", "-exec", "sha256sum", "{}", "+"],
                            check=True, capture_output=True).stdout
    script = """git status > /dev/null; echo x >> a.txt; git -c user.name=n -c user.email=e commit -qam x
        echo y >> a.txt; git stash -q; git log -1 > /dev/null; git worktree list > /dev/null
        test -n "$(git branch --list side)" """
    # At /workspace in a sandbox; here the overlays stand below /mnt, so the pointers are followed by hand
    script = "export GIT_DIR=/mnt/gitdir/worktrees/wt GIT_WORK_TREE=.; " + script
    pointers = "grep -qx 'gitdir: /gitdir/worktrees/wt' .git; grep -qx /workspace/.git /mnt/gitdir/worktrees/wt/gitdir; "
    script = pointers + script
    changes, _ = session(worktree, tmp_path / "state", shell(script))
    assert paths(changes) == {b"a.txt": Operation.EDIT} or changes.entries == ()
    after = subprocess.run(["find", repository / ".git", "-type", "f", "-exec", "sha256sum", "{}", "+"],
                           check=True, capture_output=True).stdout
    assert after == before
    assert git(worktree, "status", "--porcelain") == ""


def test_submodule_as_root(repository: Path, tmp_path: Path) -> None:
    library = tmp_path / "library"
    library.mkdir()
    git(library, "init", "-q")
    (library / "l").write_text("l\n")
    git(library, "add", ".")
    git(library, "commit", "-qm", "l")
    git(repository, "submodule", "-q", "add", str(library), "vendor/lib")
    script = "grep -qx 'gitdir: /gitdir' .git; grep -q 'worktree = /workspace$' /mnt/gitdir/config; echo x >> l"
    changes, _ = session(repository / "vendor/lib", tmp_path / "state", shell(script))
    assert paths(changes) == {b"l": Operation.EDIT}
    assert git(repository / "vendor/lib", "status", "--porcelain") == ""


def test_the_state_directory_beneath_the_project_is_hidden(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / ".local/state/lemniscate/sessions").mkdir(parents=True)
    (home / "notes").write_text("n\n")
    script = """test -d .local/state; test ! -e .local/state/lemniscate
        mkdir .local/state/lemniscate; echo x > .local/state/lemniscate/x"""
    changes, _ = session(home, home / ".local/state/lemniscate", shell(script))
    assert changes.entries == ()


@pytest.mark.parametrize("want_copy", [False, True], ids=["overlay", "copy"])
def test_hostile_trees(repository: Path, tmp_path: Path, want_copy: bool) -> None:
    """Everything a session can leave that must neither hang, nor escape, nor be carried over."""
    def act() -> None:
        os.mkfifo("pipe")
        with open("hole", "wb") as file:
            file.truncate(1 << 40)
        os.symlink("/etc/passwd", "absolute")
        os.symlink("../../x", "climbing")
        os.symlink("src", "fine")
        os.makedirs("x/y/z")
        os.symlink("../../..", "x/y/z/s")
        os.symlink("s/../..", "x/y/z/t")  # looks as if it stayed inside
        os.symlink(".git/hooks", "hooks")
        for name in (b"new\nline", b"\xff\xfe", b"--help", b"-rf"):
            with open(name, "wb") as file:
                file.write(b"x")
        os.chmod("src", 0)
        with open("unreadable", "w") as file:
            file.write("u\n")
        os.chmod("unreadable", 0)
        here = os.getcwd()
        for _ in range(1000):
            os.mkdir("d")
            os.chdir("d")
        os.chdir(here)
        os.link("a.txt", "hard")
        with open("hard", "a") as file:
            file.write("x\n")
        os.chmod("untracked", 0o4755)
        os.unlink("a.txt")
        os.mkfifo("a.txt")

    changes, blobs = session(repository, tmp_path / "state", act, want_copy=want_copy)
    refused = {entry.path for entry in changes.refused}
    assert refused == {b"hole", b"absolute", b"climbing", b"x/y/z/t", b"hooks"}
    assert {b"pipe", b"a.txt"}.isdisjoint(paths(changes))
    assert len([path for path in paths(changes) if path.startswith(b"d")]) == 1000
    assert sum("FIFO" in notice for notice in changes.notices) == 2
    assert paths(changes)[b"untracked"] is Operation.MODE
    assert isinstance(applied(repository, tmp_path / "state", changes, blobs), Applied)
    assert stat.S_IMODE((repository / "unreadable").stat().st_mode) == 0
    (repository / "unreadable").chmod(0o600)
    (repository / "src").chmod(0o755)
    found = tree(repository)
    assert found[b"untracked"][1] == 0o755
    assert found[b"a.txt"][2] == b"one\ntwo\n"
    assert found[b"hard"][2] == b"one\ntwo\nx\n"


def test_build_debris_is_listed_apart(repository: Path, tmp_path: Path) -> None:
    (repository / ".gitignore").write_text("*.log\n!keep.log\n/out/\n")
    git(repository, "add", ".gitignore")
    script = """mkdir -p src/__pycache__ node_modules/x out sub/out
        echo c > src/__pycache__/b.pyc; echo n > node_modules/x/i.js; echo l > a.log
        echo k > keep.log; echo o > out/o; echo o > sub/out/o; echo '*' > .gitignore
        """
    changes, blobs = session(repository, tmp_path / "state", shell(script))
    assert {e.path for e in changes.proposed} == {b".gitignore", b"keep.log", b"sub", b"sub/out", b"sub/out/o"}
    assert {e.path for e in changes.debris} >= {b"src/__pycache__/b.pyc", b"node_modules/x/i.js", b"a.log", b"out/o"}
    assert isinstance(applied(repository, tmp_path / "state", changes, blobs), Applied)
    assert not (repository / "node_modules").exists()
    assert (repository / "keep.log").exists()


async def test_scratch_goes_and_leftovers_are_swept(repository: Path, tmp_path: Path) -> None:
    scratch = tmp_path / "state/scratch"
    project = find_project(bytes(repository / "src"))
    assert (project.root, project.start) == (bytes(repository), b"src")
    async with open_workspace(project, Exclusions.parse(), scratch / "one", os.geteuid(), os.getegid()) as workspace:
        inside(workspace, shell("mkdir -p k; chmod 000 k; mkdir l; chmod 500 l"))
        leftover = scratch / "two"
        leftover.mkdir()
        (leftover / "work").mkdir(mode=0o000)
        assert sweep_scratch(scratch) == 1
        assert (scratch / "one").exists()
        with pytest.raises(WorkspaceError):
            async with open_workspace(project, Exclusions.parse(), scratch / "one", os.geteuid(), os.getegid()):
                pass
    assert list(scratch.iterdir()) == []


def test_type_changes(repository: Path, tmp_path: Path) -> None:
    (repository / "tool").symlink_to("a.txt")
    script = """rm a.txt; mkdir a.txt; echo x > a.txt/x; rm -r src; echo s > src; rm tool; echo t > tool; chmod +x tool
        rm untracked; ln -s src untracked"""
    changes, blobs = session(repository, tmp_path / "state", shell(script))
    kinds = {entry.path: entry.after.kind for entry in changes.entries if entry.after}
    assert kinds == {
        b"a.txt": Kind.DIRECTORY, b"a.txt/x": Kind.FILE, b"src": Kind.FILE, b"tool": Kind.FILE, b"untracked": Kind.SYMLINK,
    }
    assert isinstance(applied(repository, tmp_path / "state", changes, blobs), Applied)
    found = tree(repository)
    assert found[b"src"] == ("file", 0o644, b"s\n")
    assert found[b"untracked"] == ("link", 0, b"src")


def test_many_that_cannot_be_copied_are_told_in_a_few_lines(repository: Path, tmp_path: Path) -> None:
    for number in range(50):
        os.mkfifo(repository / f"pipe{number}")
    ids = (os.geteuid(), os.getegid())
    done = make_copy(bytes(repository), bytes(tmp_path / "copy"), ids, Seeds(), limit=1 << 30, inodes=1000)
    assert len(done.notices) == 21
    assert "30 more" in done.notices[-1]


MOUNTED = """
import os, sys, trio
from pathlib import Path
from supervisor.errors import WorkspaceError
from supervisor.workspace.apply import apply_changes
from supervisor.workspace.blobs import Blobs
from supervisor.workspace.exclusions import Exclusions
from supervisor.workspace.open import open_workspace
from supervisor.workspace.overlay import OverlayLayers
from supervisor.workspace.project import find_project

root, state = Path(sys.argv[1]), Path(sys.argv[2])

async def main():
    project = find_project(bytes(root))
    async with open_workspace(project, Exclusions.parse(), state / "scratch", os.geteuid(), os.getegid()) as workspace:
        copy = Path(os.fsdecode(workspace.copies[0].path))
        assert (copy / "m n/mounted").read_text() == "m"
        assert not (copy / ".env").exists()
        assert any("m n" in notice for notice in workspace.notices), workspace.notices
        assert os.stat(copy / "a.txt").st_ino != os.stat(root / "a.txt").st_ino
        with (copy / "m n/mounted").open("a") as file:
            file.write("ore")
        (copy / "src/b.py").unlink()
        (copy / "m n/new").mkdir()
        (copy / "m n/new/file").touch()
        found = workspace.collect(Blobs(state / "blobs"))
        assert [entry.path for entry in found.entries] == [b"m n/mounted", b"m n/new", b"m n/new/file", b"src/b.py"], found
    # Nothing can be moved across mounts: all of it is undone, and the way out is named
    before = sorted(root.rglob("*"))
    try:
        apply_changes(bytes(root), found, Blobs(state / "blobs"), state / "apply.json")
    except WorkspaceError as error:
        assert error.code == "apply_failed", error
        assert "nothing was changed" in str(error), error
    else:
        raise AssertionError
    assert sorted(root.rglob("*")) == before
    assert (root / "m n/mounted").read_text() == "m"
    assert not (state / "apply.json").exists()

trio.run(main)
"""


@pytest.mark.needs("userns")
@pytest.mark.parametrize("options", ["rw", "ro"])
def test_a_mount_beneath_the_project_makes_a_plain_copy(repository: Path, tmp_path: Path, options: str) -> None:
    (repository / "m n").mkdir()
    (repository / ".env").write_text("SECRET=1\n")
    (tmp_path / "script.py").write_text(MOUNTED)
    # bind: the mount's own flags alone. Beside them mount(8) would repeat uid=, which means nobody in the namespace.
    command = (
        'mount -t tmpfs none "$1/m n" && printf m > "$1/m n/mounted" && mount -o "remount,bind,$5" "$1/m n"'
        ' && exec "$3" "$4" "$1" "$2"'
    )
    script = str(tmp_path / "script.py")
    words = ["sh", "-ec", command, "sh", str(repository), str(tmp_path / "state"), sys.executable, script, options]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    subprocess.run(["unshare", "-Urm", *words], check=True, env=environment)
