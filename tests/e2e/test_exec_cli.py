"""``lemni exec``: the command's output and status are ours, and nothing else is the command's."""
from __future__ import annotations

import errno
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.lemni import ARGV, environment, lemni
from support.screen import on_screen

pytestmark = [pytest.mark.kernel, pytest.mark.needs("userns", "overlay", "git", "bash")]


@pytest.mark.parametrize(("script", "code"), [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 137), ("kill -15 $$", 143)])
def test_the_status_is_the_commands(repo: Path, home: Path, script: str, code: int) -> None:
    ended = lemni("exec", "--", "sh", "-c", script, cwd=repo, home=home)
    assert ended.code == code, ended.err


def test_the_streams_are_the_commands_byte_for_byte(repo: Path, home: Path) -> None:
    code = "import os; os.write(1, bytes(range(256)) * 8192); os.write(2, b'\\xff\\x1b[31m')"
    done = subprocess.run(
        [*ARGV, "exec", "--", "python3", "-c", code], cwd=repo, env=environment(home), stdin=subprocess.DEVNULL,
        capture_output=True, check=False, timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert hashlib.sha256(done.stdout).digest() == hashlib.sha256(bytes(range(256)) * 8192).digest()
    assert done.stderr.startswith(b"\xff\x1b[31m") or b"\xff\x1b[31m" in done.stderr


def test_a_terminal_is_protected_from_the_command(repo: Path, home: Path) -> None:
    code, shown = on_screen(
        [*ARGV, "exec", "--", "printf", r"\033]0;title\007"], cwd=repo,
        env={**environment(home), "TERM": "xterm", "NO_COLOR": "1"}, only_stdout=True,
    )
    assert code == 0
    assert shown == b"<U+001B>]0;title<U+0007>"


@pytest.mark.parametrize("asked", [(), ("--timeout", "3600")])
def test_the_bound_of_a_command_holds_for_it_too(repo: Path, home: Path, asked: tuple[str, ...]) -> None:
    ended = lemni("exec", *asked, "--", "sleep", "50", cwd=repo, home=home, env={"LEMNISCATE_COMMAND_MAX_SECONDS": "1"})
    assert ended.code == 137
    assert "longer than allowed" in ended.err
    assert ("3600 s is above the bound" in ended.err) == bool(asked)


def test_changes_are_kept_and_their_id_is_told(repo: Path, home: Path) -> None:
    ended = lemni("exec", "--", "sh", "-c", "echo new > README; rm src/a.py", cwd=repo, home=home)
    assert (ended.code, ended.out) == (0, "")
    (session,) = json.loads(lemni("sessions", "--json", cwd=repo, home=home).out)
    assert f"lemni diff {session['id']}" in ended.err
    assert (session["kind"], session["files"], session["decision"]) == ("exec", 2, "undecided")
    assert (repo / "README").read_text() == "a repository\n"
    assert lemni("apply", cwd=repo, home=home, stdin=b"y\n").code == 0
    assert (repo / "README").read_text() == "new\n"
    assert not (repo / "src/a.py").exists()
    assert lemni("journal", "verify", cwd=repo, home=home).code == 0


def test_the_command_sees_nothing_of_the_caller(repo: Path, home: Path) -> None:
    secret = {"LEMNI_API_KEY": "hunter2", "AWS_SECRET_ACCESS_KEY": "hunter2"}
    ended = lemni("exec", "--", "sh", "-c", "env; pwd; ls -A /; cat /proc/self/mountinfo", cwd=repo, home=home, env=secret)
    assert ended.code == 0, ended.err
    assert "hunter2" not in ended.out
    assert str(repo) not in ended.out
    assert str(home) not in ended.out
    assert "\n/workspace\n" in ended.out


@pytest.mark.parametrize("words", [("--nope",), ("--timeot", "5", "--", "true"), ("-x", "true"), ()])
def test_an_unknown_option_before_the_command_is_a_usage_error(repo: Path, home: Path, words: tuple[str, ...]) -> None:
    ended = lemni("exec", *words, cwd=repo, home=home)
    assert (ended.code, ended.out) == (2, ""), ended.err


@pytest.mark.parametrize(("words", "out"), [
    (("echo", "--nope", "--timeout", "--", "-h"), "--nope --timeout -- -h\n"),
    (("--", "echo", "--nope"), "--nope\n"),
    (("--timeout", "60", "echo", "-x"), "-x\n"),
])
def test_what_follows_the_command_belongs_to_it(repo: Path, home: Path, words: tuple[str, ...], out: str) -> None:
    ended = lemni("exec", *words, cwd=repo, home=home)
    assert (ended.code, ended.out) == (0, out), ended.err


def test_a_command_may_look_like_an_option_behind_the_two_dashes(repo: Path, home: Path) -> None:
    assert lemni("exec", "--", "--nope", cwd=repo, home=home).code == 127


def test_standard_input_is_empty(repo: Path, home: Path) -> None:
    ended = lemni("exec", "--", "cat", cwd=repo, home=home, stdin=b"not for it")
    assert (ended.code, ended.out) == (0, "")


def test_a_missing_command_is_the_shells_127_or_our_125(repo: Path, home: Path) -> None:
    ended = lemni("exec", "--", "no-such-command", cwd=repo, home=home)
    assert ended.code in {125, 127}
    assert "no-such-command" in ended.err


def test_outside_what_is_authorised_lemni_fails_with_125(public_tmp: Path, home: Path) -> None:
    subprocess.run(["git", "init", "-q", "--bare", "bare"], cwd=public_tmp, check=True)
    ended = lemni("exec", "--", "true", cwd=public_tmp / "bare", home=home)
    assert ended.code == 125
    assert "bare_repository" in ended.err


def test_a_command_whose_reader_has_enough_ends_as_it_would_outside(repo: Path, home: Path) -> None:
    line = 'echo new > README; yes; echo $? >&2'
    done = subprocess.run(
        ["bash", "-c", '"$@" | head -1', "bash", *ARGV, "exec", "--", "sh", "-c", line], cwd=repo, env=environment(home),
        stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=60,
    )
    assert done.stdout == b"y\n"
    assert b"\n141\n" in done.stderr
    assert b"Traceback" not in done.stderr
    assert lemni("apply", cwd=repo, home=home, stdin=b"y\n").code == 0


@pytest.mark.parametrize("why", ["conflict", "failure"])
def test_what_could_not_be_applied_is_recorded_and_stays_open(repo: Path, home: Path, why: str) -> None:
    assert lemni("exec", "--", "sh", "-c", "echo new > README", cwd=repo, home=home).code == 0
    (session,) = json.loads(lemni("sessions", "--json", cwd=repo, home=home).out)
    moved = repo.with_name("moved")
    if why == "conflict":
        (repo / "README").write_text("mine\n")
    else:
        repo.rename(moved)
    ended = lemni("apply", session["id"], cwd=home, home=home, stdin=b"y\n")
    assert ended.code == 1, ended.err
    assert "Traceback" not in ended.err
    assert lemni("journal", "verify", cwd=home, home=home).code == 0  # sealed, whatever came in between
    if why == "conflict":
        assert (repo / "README").read_text() == "mine\n"
        (repo / "README").write_text("a repository\n")
    else:
        moved.rename(repo)
    assert lemni("apply", cwd=repo, home=home, stdin=b"y\n").code == 0
    assert (repo / "README").read_text() == "new\n"


@pytest.mark.parametrize(("words", "code"), [
    (("exec", "--", "true"), 125), (("-p", "x"), 1), (("diff",), 1), (("apply",), 1), (("sessions",), 1),
    (("policy", "show"), 1), (("policy", "init"), 1), (("doctor",), 0), (("journal", "verify"), 0),
])
def test_a_directory_that_was_removed_is_no_bug_of_ours(home: Path, tmp_path: Path, words: tuple[str, ...], code: int) -> None:
    done = subprocess.run(
        ["sh", "-c", 'mkdir gone && cd gone && rmdir ../gone && exec "$@"', "sh", *ARGV, *words], cwd=tmp_path, text=True,
        env=environment(home), stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=60,
    )
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    assert code == 0 or "project_unreadable" in done.stderr


FILTERED = """
import os, sys, pyseccomp
rules = pyseccomp.SyscallFilter(pyseccomp.ALLOW)
rules.add_rule(pyseccomp.ERRNO(int(sys.argv[2])), sys.argv[1])
rules.load()
os.execv(sys.argv[3], sys.argv[3:])
"""


@pytest.mark.parametrize(("call", "code"), [
    ("clone3", errno.ENOSYS), ("open_tree", errno.ENOSYS), ("fsopen", errno.ENOSYS), ("move_mount", errno.ENOSYS),
    *((call, errno.EPERM) for call in ("fsopen", "fsconfig", "fsmount", "move_mount", "mount", "pivot_root")),
    ("openat2", errno.ENOSYS), ("openat2", errno.EPERM),
])
@pytest.mark.needs("seccomp")
def test_a_machine_that_refuses_what_a_sandbox_needs_runs_nothing(repo: Path, home: Path, call: str, code: int) -> None:
    """As a container's own filter does. Never a fallback: the command does not run."""
    words = ["exec", "--", "sh", "-c", "echo ran; touch ran"]
    done = subprocess.run(
        [sys.executable, "-c", FILTERED, call, str(code), *ARGV, *words], cwd=repo, env=environment(home), text=True,
        stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=60,
    )
    assert (done.returncode, done.stdout) == (125, ""), done.stderr
    assert "[sandbox_unavailable]" in done.stderr
    assert "  remedy  " in done.stderr
    assert "seccomp filter" in done.stderr
    assert not (repo / "ran").exists()


@pytest.mark.parametrize(("call", "layer"), [("fsopen", "trial"), ("openat2", "openat2")])
@pytest.mark.needs("seccomp")
def test_doctor_has_a_remedy_where_a_filter_stands_in_the_way(repo: Path, home: Path, call: str, layer: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FILTERED, call, str(errno.EPERM), *ARGV, "doctor", "--json"], cwd=repo, env=environment(home),
        text=True, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=60,
    )
    assert done.returncode == 1, done.stderr
    found = {one["name"]: one for one in json.loads(done.stdout)["layers"]}
    assert (found[layer]["on"], "seccomp filter" in found[layer]["remedy"]) == (False, True)
    assert found["trial"]["remedy"]


@pytest.mark.needs("root")
@pytest.mark.parametrize(("words", "code"), [(("exec", "--", "true"), 125), (("doctor",), 1)])
def test_a_machine_without_proc_is_refused_by_name(repo: Path, home: Path, words: tuple[str, ...], code: int) -> None:
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", 'mount -t tmpfs none /proc && exec "$@"', "sh", *ARGV, *words], cwd=repo, text=True,
        env=environment(home), stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=60,
    )
    assert done.returncode == code, done.stderr
    assert "(/proc)" in done.stderr
    assert "[sandbox_unavailable]" in done.stderr
    assert "mount -t proc" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_timeout_ends_the_command(repo: Path, home: Path) -> None:
    ended = lemni("exec", "--timeout", "0.2", "--", "sleep", "1000", cwd=repo, home=home)
    assert ended.code == 137, ended.err
    assert "longer than allowed" in ended.err


def test_doctor_says_whether_it_would_open(repo: Path, home: Path) -> None:
    ended = lemni("doctor", cwd=repo, home=home)
    assert ended.code == 0, ended.out + ended.err
    assert "seccomp" in ended.out
    report = json.loads(lemni("doctor", "--json", cwd=repo, home=home).out)
    assert report["fit"] is True
    assert all(layer["on"] for layer in report["layers"] if layer["required"])
    names = {layer["name"] for layer in report["layers"]}
    assert names >= {"openat2", "overlay", "trial"}
    assert ("idmapped mounts" in names) == (os.geteuid() == 0)
    assert all(set(layer) == {"name", "on", "required", "fact", "remedy"} for layer in report["layers"])


def test_a_refusal_is_not_the_end_of_a_diff(repo: Path, home: Path) -> None:
    lemni("exec", "--", "sh", "-c", "echo new > README", cwd=repo, home=home)
    (session,) = json.loads(lemni("sessions", "--json", cwd=repo, home=home).out)
    refused = lemni("apply", cwd=repo, home=home, stdin=b"")
    assert (refused.code, (repo / "README").read_text()) == (0, "a repository\n")
    assert f"lemni apply {session['id']}" in refused.err
    assert lemni("apply", session["id"], cwd=repo, home=home, stdin=b"y\n").code == 0
    assert (repo / "README").read_text() == "new\n"
