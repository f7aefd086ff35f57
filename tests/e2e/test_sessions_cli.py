"""What ``lemni sessions``, ``diff`` and ``apply`` say of every kind of end, and not only of the one with a diff."""
from __future__ import annotations

import json
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.lemni import ARGV, Ended, environment, lemni

pytestmark = [pytest.mark.kernel, pytest.mark.needs("userns", "overlay", "git", "bash")]


def run(repo: Path, home: Path, script: str) -> tuple[Ended, dict[str, Any]]:
    """``lemni exec`` of a script, and the session that it left."""
    ended = lemni("exec", "--", "sh", "-c", script, cwd=repo, home=home)
    return ended, latest(repo, home)


def latest(repo: Path, home: Path) -> dict[str, Any]:
    newest: dict[str, Any] = json.loads(lemni("sessions", "--json", cwd=repo, home=home).out)[0]
    return newest


def killed(repo: Path, home: Path, script: str) -> dict[str, Any]:
    """The session of a ``lemni exec`` that was killed while its command ran; the script says ``ready`` on the way."""
    with subprocess.Popen(
        [*ARGV, "exec", "--", "sh", "-c", f"{script}; echo ready; sleep 1000"], cwd=repo, env=environment(home),
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=20)
    return latest(repo, home)


@pytest.mark.parametrize("script", ["true", "exit 7", "no-such-command"])
def test_a_session_that_changed_nothing_says_so(repo: Path, home: Path, script: str) -> None:
    _, session = run(repo, home, script)
    diff = lemni("diff", session["id"], cwd=repo, home=home)
    assert (diff.code, diff.out) == (0, "")
    assert "changed nothing" in diff.err
    patch = lemni("diff", session["id"], "--patch", cwd=repo, home=home)
    assert (patch.code, patch.out) == (0, "")
    assert json.loads(lemni("diff", session["id"], "--json", cwd=repo, home=home).out)["entries"] == []
    apply = lemni("apply", session["id"], cwd=repo, home=home, stdin=b"y\n")
    assert (apply.code, apply.out) == (0, "")
    assert "nothing to apply" in apply.err
    assert "Apply" not in apply.err  # nothing is asked
    assert "no changes" in lemni("sessions", cwd=repo, home=home).out


@pytest.mark.parametrize("words", [("diff",), ("diff", "--json"), ("apply",)])
def test_a_killed_session_says_that_its_changes_were_not_collected(repo: Path, home: Path, words: tuple[str, ...]) -> None:
    session = killed(repo, home, "echo new > README")
    ended = lemni(*words, session["id"], cwd=repo, home=home, stdin=b"y\n")
    assert (ended.code, ended.out) == (1, "")
    assert "[changes_not_collected]" in ended.err
    assert "killed" in ended.err
    assert "  remedy  " in ended.err
    assert (session["collected"], session["exit"]) == (False, None)
    assert "changes not collected" in lemni("sessions", cwd=repo, home=home).out


@pytest.mark.needs("seccomp")
def test_a_refused_session_says_that_its_changes_were_not_collected(repo: Path, home: Path) -> None:
    filtered = (
        "import os, sys, pyseccomp\nrules = pyseccomp.SyscallFilter(pyseccomp.ALLOW)\n"
        "rules.add_rule(pyseccomp.ERRNO(38), 'clone3')\nrules.load()\nos.execv(sys.argv[1], sys.argv[1:])"
    )
    refused = subprocess.run(
        [sys.executable, "-c", filtered, *ARGV, "exec", "--", "true"], cwd=repo, env=environment(home),
        stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=60,
    )
    session = latest(repo, home)
    assert (refused.returncode, session["exit"], session["collected"]) == (125, 125, False)
    ended = lemni("diff", session["id"], cwd=repo, home=home)
    assert ended.code == 1
    assert "[changes_not_collected]" in ended.err


def test_a_missing_file_of_changes_is_damage(repo: Path, home: Path) -> None:
    _, session = run(repo, home, "echo new > README")
    (home / ".local/state/lemniscate/sessions" / session["id"] / "changes.json").unlink()
    ended = lemni("diff", session["id"], cwd=repo, home=home)
    assert ended.code == 1
    assert "[changes_damaged]" in ended.err


@pytest.mark.parametrize("script", ["exit 0", "exit 7", "kill -9 $$", "exec no-such-command", "exec sudo id"])
def test_a_session_is_listed_with_what_lemni_returned(repo: Path, home: Path, script: str) -> None:
    ended, session = run(repo, home, script)
    assert session["exit"] == ended.code
    assert f"exit {ended.code}" in lemni("sessions", cwd=repo, home=home).out


def test_a_refused_command_is_listed_as_refused(repo: Path, home: Path) -> None:
    ended = lemni("exec", "--", "sudo", "id", cwd=repo, home=home)
    assert (ended.code, ended.out) == (125, "")
    assert ended.err.count("refused: ") == 1
    assert ended.err.count("privilege elevation") == 1
    assert "retry" not in ended.err  # a person is not told what a model is
    assert latest(repo, home)["exit"] == 125


@pytest.mark.parametrize(("number", "code"), [
    (signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGQUIT, 131),
])
def test_a_command_that_a_signal_to_lemni_ended_is_listed_so(
    repo: Path, home: Path, number: signal.Signals, code: int
) -> None:
    with subprocess.Popen(
        ["env", "--default-signal=HUP,INT,QUIT,TERM", *ARGV, "exec", "--", "sh", "-c", "echo ready; sleep 1000"],
        cwd=repo, env=environment(home), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(number)
        _, err = process.communicate(timeout=20)
    assert (process.returncode, latest(repo, home)["exit"]) == (code, code)
    assert f"none kept: ended by {number.name}".encode() in err


def test_a_project_that_another_directory_replaced_takes_nothing(repo: Path, home: Path, public_tmp: Path) -> None:
    _, session = run(repo, home, "echo new > nine")
    repo.rename(public_tmp / "moved")
    repo.mkdir()
    elsewhere = public_tmp / "elsewhere"
    elsewhere.mkdir()
    refused = lemni("apply", session["id"], cwd=elsewhere, home=home, stdin=b"y\n")
    assert refused.code != 0
    assert "another directory" in refused.err
    assert list(repo.iterdir()) == []
    repo.rmdir()
    (public_tmp / "moved").rename(repo)  # the same one is back
    assert lemni("apply", session["id"], cwd=elsewhere, home=home, stdin=b"y\n").code == 0
    assert (repo / "nine").read_text() == "new\n"


def test_a_patch_holds_binary_files_and_goes_back_and_forth(repo: Path, home: Path, public_tmp: Path) -> None:
    (repo / "old").write_bytes(b"\0old")
    (repo / "gone").write_bytes(b"\0gone")
    subprocess.run(["cp", "-a", repo, public_tmp / "clone"], check=True)
    run(repo, home, r"printf '\000more' >> old; rm gone; printf '\000new' > 'n w'; touch empty")
    with (public_tmp / "patch").open("wb") as file:
        done = subprocess.run([*ARGV, "diff", "--patch"], cwd=repo, env=environment(home), stdout=file, check=False)
    assert done.returncode == 0
    assert lemni("apply", cwd=repo, home=home, stdin=b"y\n").code == 0
    for words, same in ((["apply"], True), (["apply", "--reverse"], False)):
        subprocess.run(["git", *words, public_tmp / "patch"], cwd=public_tmp / "clone", check=True)
        compared = subprocess.run(["diff", "-r", "-x", ".git", repo, public_tmp / "clone"], capture_output=True, check=False)
        assert (compared.returncode == 0) is same, compared.stdout


def test_a_patch_that_is_not_all_says_so(repo: Path, home: Path) -> None:
    run(repo, home, "mkdir alone; echo x > README")
    ended = lemni("diff", "--patch", cwd=repo, home=home)
    assert (ended.code, "+x" in ended.out) == (1, True)
    assert "not in the patch: alone: " in ended.err


@pytest.mark.parametrize("words", [("diff",), ("diff", "--json"), ("diff", "--patch"), ("sessions",), ("sessions", "--json")])
def test_a_full_disk_under_any_answer_is_said(repo: Path, home: Path, words: tuple[str, ...]) -> None:
    run(repo, home, "echo x > README; head -c 100000 /dev/urandom > new")
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [*ARGV, *words], cwd=repo, env=environment(home), stdin=subprocess.DEVNULL, stdout=full, stderr=subprocess.PIPE,
            check=False,
        )
    assert (done.returncode, done.stderr.splitlines()[0]) == (1, b"lemni: write to standard output: ENOSPC")
    assert b"bug" not in done.stderr


@pytest.mark.parametrize(
    ("words", "exit"), [("policy show", 1), ("--help", 1), ("exec -- echo lost", 125), ("exec -- true", 0)]
)
def test_a_closed_output_is_a_lost_answer(repo: Path, home: Path, words: str, exit: int) -> None:
    line = f"exec {shlex.join(ARGV)} {words} >&-"
    done = subprocess.run(
        ["sh", "-c", line], cwd=repo, env=environment(home), stdin=subprocess.DEVNULL, stderr=subprocess.PIPE,
        check=False,
    )
    assert done.returncode == exit
    assert (b"lemni: write to standard output: EBADF" in done.stderr) is bool(exit)
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize("start", ["exec", "apply"])
def test_a_killed_application_is_undone_by_the_next_start(repo: Path, home: Path, start: str) -> None:
    """A few hundred files, ``kill -9`` while they are applied and while that is undone, in whatever step it is then."""
    many = 400
    _, session = run(repo, home, f"for i in $(seq {many}); do echo new > new-$i; done; rm README")
    before = sorted(repo.iterdir())
    records = next((home / ".local/state/lemniscate").glob("sessions")).parent / "applying"

    def kill_at(seen: Callable[[], bool], *words: str) -> None:
        with subprocess.Popen(
            [*ARGV, *words], cwd=repo, env=environment(home), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as process:
            assert process.stdin is not None
            process.stdin.write(b"y\n")
            process.stdin.close()
            while not seen() and process.poll() is None:
                pass
            process.kill()

    kill_at(lambda: len(list(repo.glob("new-*"))) > many // 2, "apply", session["id"])
    assert list(records.glob("*/*.json"))
    kill_at(lambda: len(list(repo.glob("new-*"))) < many // 3, "apply", session["id"])
    kill_at(lambda: not list(records.glob("*/*.json")), "exec", "--", "true")
    ended = lemni(*(("exec", "--", "true") if start == "exec" else ("apply", session["id"])), cwd=repo, home=home)
    assert ended.code == 0
    assert sorted(repo.iterdir()) == before
    assert list(records.glob("*/*")) == []
    assert lemni("apply", session["id"], cwd=repo, home=home, stdin=b"y\n").code == 0
    assert len(list(repo.iterdir())) == len(before) + many - 1


def test_debris_alone_is_named_and_taken_only_when_asked_for(repo: Path, home: Path) -> None:
    (repo / ".gitignore").write_text("*.o\n")
    _, session = run(repo, home, "touch a.o b.o")
    without = lemni("apply", session["id"], cwd=repo, home=home, stdin=b"y\n")
    assert without.code == 0
    assert "nothing to apply: 2 files of build debris" in without.err
    assert "--debris" in without.err
    assert "nothing proposed" in lemni("sessions", cwd=repo, home=home).out
    taken = lemni("apply", session["id"], "--debris", cwd=repo, home=home, stdin=b"y\n")
    assert (taken.code, (repo / "a.o").exists()) == (0, True)
    assert "applied to 2 files" in taken.err


def test_directories_are_not_counted_as_files(repo: Path, home: Path) -> None:
    ended, session = run(repo, home, "mkdir -p new/deep && touch new/deep/one new/deep/two")
    assert session["files"] == 2
    assert "2 files and 2 directories, " in ended.err
    assert "applied to 2 files and 2 directories;" in lemni("apply", cwd=repo, home=home, stdin=b"y\n").err


def test_a_directory_alone_can_be_applied(repo: Path, home: Path) -> None:
    _, session = run(repo, home, "mkdir new")
    assert (session["files"], session["decision"]) == (0, "undecided")
    assert "directories only" in lemni("sessions", cwd=repo, home=home).out
    assert "applied to 1 directory;" in lemni("apply", cwd=repo, home=home, stdin=b"y\n").err
    assert (repo / "new").is_dir()
