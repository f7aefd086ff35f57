"""``lemni -p`` as a person and a script meet it: a real sandbox, a real journal, a scripted model."""
from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.lemni import ARGV, environment, lemni
from support.screen import on_screen
from support.scripted import FREE, call, configure

pytestmark = [pytest.mark.kernel, pytest.mark.needs("userns", "overlay", "git", "bash")]

SEVEN = """python3 -c 'print("b"); raise SystemExit(7)'"""
EDIT: list[dict[str, Any]] = [
    {"text": "Looking.\n", "calls": [call("Read", path="src/a.py"), call("List", path="."), call("Search", pattern="'a'")]},
    {"calls": [call("Edit", path="src/a.py", old="'a'", new="'b'"), call("Bash", command=SEVEN)]},
    {"text": "Changed a to b."},
]


def git(repo: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=repo, check=True, capture_output=True, text=True).stdout


def test_a_task_ends_in_a_diff_that_is_applied(repo: Path, home: Path) -> None:
    configure(home, EDIT)
    ended = lemni("-p", "a becomes b", cwd=repo, home=home)
    assert (ended.code, ended.out) == (0, "Changed a to b.\n"), ended.err
    assert "▸ Edit src/a.py" in ended.err
    assert "│ b\n" in ended.err
    assert "exit 7" in ended.err
    assert git(repo, "status", "--porcelain") == ""

    diff = lemni("diff", cwd=repo, home=home)
    assert diff.code == 0, diff.err
    assert "-print('a')\n+print('b')\n" in diff.out

    patch = lemni("diff", "--patch", cwd=repo, home=home)
    subprocess.run(["git", "apply", "--check"], cwd=repo, input=patch.out.encode(), check=True)

    listed = json.loads(lemni("diff", "--json", cwd=repo, home=home).out)
    assert [entry["path"] for entry in listed["entries"]] == ["src/a.py"]

    refused = lemni("apply", listed["session"][:20], cwd=repo, home=home, stdin=b"no\n")
    assert refused.code == 0
    assert git(repo, "status", "--porcelain") == ""

    applied = lemni("apply", listed["session"], cwd=repo, home=home, stdin=b"oui\n")
    assert applied.code == 0, applied.err
    assert (repo / "src/a.py").read_text() == "print('b')\n"
    assert git(repo, "log", "--format=%an") == "Test\n"

    again = lemni("apply", listed["session"], cwd=repo, home=home, stdin=b"y\n")
    assert again.code == 1
    assert "already_applied" in again.err

    sessions = json.loads(lemni("sessions", "--json", cwd=repo, home=home).out)
    assert [(one["id"], one["exit"], one["decision"]) for one in sessions] == [(listed["session"], 0, "applied")]

    verified = lemni("journal", "verify", cwd=repo, home=home)
    assert verified.code == 0, verified.out + verified.err


@pytest.mark.parametrize("answer", [b"", b"\n", b"n\n", b"maybe\n", b"yes please\n", b"Y E S\n"])
def test_anything_but_a_yes_refuses(repo: Path, home: Path, answer: bytes) -> None:
    configure(home, [{"calls": [call("Write", path="new", content="x")]}, {"text": "done"}])
    assert lemni("-p", "x", cwd=repo, home=home).code == 0
    ended = lemni("apply", cwd=repo, home=home, stdin=answer)
    assert ended.code == 0
    assert "refused" in ended.err
    assert not (repo / "new").exists()


def test_a_repository_that_changed_underneath_is_left_alone(repo: Path, home: Path) -> None:
    configure(home, [*EDIT[:2], {"text": "done"}])
    assert lemni("-p", "x", cwd=repo, home=home).code == 0
    (repo / "src/a.py").write_text("print('mine')\n")
    ended = lemni("apply", cwd=repo, home=home, stdin=b"y\n")
    assert ended.code == 1, ended.err
    assert (repo / "src/a.py").read_text() == "print('mine')\n"


def test_without_a_policy_calls_are_refused_and_the_way_out_is_named(repo: Path, home: Path) -> None:
    configure(home, [{"calls": [call("Bash", command="touch x")]}, {"text": "I may not."}], tools=None)
    ended = lemni("-p", "x", cwd=repo, home=home)
    assert (ended.code, ended.out) == (0, "I may not.\n"), ended.err
    assert "lemni policy init" in ended.err
    assert "refused" in ended.err
    assert lemni("policy", "init", cwd=repo, home=home).code == 0
    assert lemni("policy", "check", cwd=repo, home=home).code == 0
    shown = lemni("policy", "show", "--json", cwd=repo, home=home)
    assert json.loads(shown.out)["origin"] == "user"


@pytest.mark.parametrize(
    ("turns", "policy", "reason"),
    [
        ([{"calls": [call("List", path=".")]}] * 5 + [{"text": "never"}], {}, "loop"),
        (
            [{"calls": [call("Read", path="README", offset=n)]} for n in range(1, 6)] + [{"text": "summary"}],
            {"budgets": {"actions": 3}},
            "bound",
        ),
    ],
    ids=["loop", "bound"],
)
def test_a_guardrail_exits_3(repo: Path, home: Path, turns: list[Any], policy: dict[str, Any], reason: str) -> None:
    configure(home, turns, **policy)
    ended = lemni("-p", "x", "--json", cwd=repo, home=home)
    result = json.loads(ended.out.splitlines()[-1])
    assert (ended.code, result["exit"], result["type"]) == (3, 3, "result"), ended.err
    assert result["reason"].startswith(reason)


def test_events_are_json_and_the_last_is_the_result(repo: Path, home: Path) -> None:
    configure(home, [*EDIT[:2], {"text": "Done \u202e\x1b[2J."}])
    ended = lemni("-p", "x", "--json", cwd=repo, home=home)
    assert ended.code == 0, ended.err
    assert ended.out.isascii()
    assert "\x1b" not in ended.out
    events = [json.loads(line) for line in ended.out.splitlines()]
    kinds = [event["type"] for event in events]
    opened = events[kinds.index("opened")]
    assert {"turn", "text", "call", "state", "output", "done"} <= set(kinds)
    assert kinds.count("result") == 1
    result = events[-1]
    assert result["answer"] == "Done \u202e\x1b[2J."
    assert result["session"] == opened["session"]
    assert result["changes"]["files"] == 1
    executions = [event["execution"] for event in events if event["type"] == "done" and event["tool"] == "Bash"]
    assert executions[0]["code"] == 7


def test_nothing_of_a_model_reaches_the_screen_as_it_is(repo: Path, home: Path) -> None:
    hostile = "\x1b]52;c;aGk=\x07\u202e\u200b"
    configure(home, [
        {"text": hostile, "calls": [call("Bash", command=f"printf '\\033[31m\\233' # {hostile}"), call("Read", path=hostile)]},
        {"text": hostile},
    ])
    ended = lemni("-p", "x", cwd=repo, home=home)
    assert ended.code == 0, ended.err
    for text in (ended.out, ended.err):
        assert not {"\x1b", "\x07", "\u202e", "\u200b", "\x9b"} & set(text)
        assert "<U+001B>]52;c;aGk=<U+0007><U+202E><U+200B>" in text
    assert "<U+001B>[31m<0x9B>" in ended.err


@pytest.mark.parametrize("colour", [True, False], ids=["colour", "NO_COLOR"])
def test_on_a_terminal_the_answer_is_seen_once(repo: Path, home: Path, colour: bool) -> None:
    configure(home, EDIT)
    env = {**environment(home), "TERM": "xterm", "COLUMNS": "100", **({} if colour else {"NO_COLOR": "1"})}
    code, shown = on_screen([*ARGV, "-p", "x"], cwd=repo, env=env)
    assert code == 0, shown
    assert shown.count(b"Changed a to b.") == 1
    assert (b"\x1b[" in shown.replace(b"\r\x1b[K", b"")) == colour  # the status line is erased without colour too


def test_a_script_that_runs_out_is_an_error(repo: Path, home: Path) -> None:
    configure(home, [{"calls": [call("List", path=".")]}])
    ended = lemni("-p", "x", cwd=repo, home=home)
    assert (ended.code, ended.out) == (1, "")
    assert "script_exhausted" in ended.err
    assert "remedy" in ended.err


def test_a_missing_model_is_an_error_before_anything_starts(repo: Path, home: Path) -> None:
    ended = lemni("-p", "x", "--json", cwd=repo, home=home)
    assert ended.code == 1
    error, result = map(json.loads, ended.out.splitlines())
    assert (error["type"], error["code"]) == ("error", "model_missing")
    assert (result["type"], result["exit"], result["session"], result["answer"]) == ("result", 1, None, None)
    assert "model_missing" in ended.err


def test_a_bare_repository_is_refused(public_tmp: Path, home: Path) -> None:
    subprocess.run(["git", "init", "-q", "--bare", "bare"], cwd=public_tmp, check=True)
    configure(home, [{"text": "x"}])
    ended = lemni("-p", "x", cwd=public_tmp / "bare", home=home)
    assert ended.code == 1
    assert "bare_repository" in ended.err


FOREVER = """python3 -uc 'import time; print("up"); time.sleep(1000)'"""
PROMPT = ("-p", "x", "--json")
EXEC = ("exec", "--", "sh", "-c", "echo up; sleep 1000")


ENDS = [(signal.SIGINT, 130), (signal.SIGQUIT, 131), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]

# Whatever the test run was started with (nohup, a shell's "&"), the process starts with the signals of a terminal.
DEFAULTS = ["env", "--default-signal=HUP,INT,QUIT,TERM"]


@contextlib.contextmanager
def started(home: Path, repo: Path, *arguments: str, nohup: bool = False) -> Iterator[subprocess.Popen[bytes]]:
    """``lemni`` with a command that never ends, once that command runs. Killed at the end, if it is still there."""
    calls = [call("Write", path="w", content="x"), call("Bash", command=FOREVER)]
    configure(home, [{"calls": calls}, {"text": "x"}])
    with subprocess.Popen(
        [*DEFAULTS, *(["nohup"] if nohup else []), *ARGV, *arguments], cwd=repo, env=environment(home),
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if b'"output"' in line or line == b"up\n":
                    break
            else:
                raise AssertionError(process.communicate())
            yield process
        finally:
            process.kill()


def descendants(pid: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split() if entry.name.isdigit() else []
        except OSError:
            continue
        if fields and int(fields[1]) == pid:
            found += [int(entry.name), *descendants(int(entry.name))]
    return found


def alive(pids: list[int]) -> list[int]:
    return [pid for pid in pids if Path(f"/proc/{pid}").exists()]


@pytest.mark.parametrize(("number", "code"), ENDS)
@pytest.mark.parametrize("arguments", [PROMPT, EXEC], ids=["prompt", "exec"])
def test_a_signal_ends_everything(
    repo: Path, home: Path, number: signal.Signals, code: int, arguments: tuple[str, ...]
) -> None:
    with started(home, repo, *arguments) as process:
        inside = descendants(process.pid)
        assert inside
        process.send_signal(number)
        out, err = process.communicate(timeout=20)
        assert process.returncode == code, err
        assert alive(inside) == []
        assert b"Traceback" not in err
    if "--json" in arguments:
        assert json.loads(out.splitlines()[-1])["exit"] == code
    assert json.loads(lemni("sessions", "--json", cwd=repo, home=home).out)[0]["files"] == 0
    assert not (repo / "w").exists()


@pytest.mark.parametrize(("number", "code"), ENDS)
@pytest.mark.parametrize("arguments", [PROMPT, EXEC], ids=["prompt", "exec"])
def test_a_signal_again_and_again_is_one_signal(
    repo: Path, home: Path, number: signal.Signals, code: int, arguments: tuple[str, ...]
) -> None:
    with started(home, repo, *arguments) as process:
        while process.poll() is None:
            process.send_signal(number)
            select.select([], [], [], 0.005)
        _, err = process.communicate(timeout=20)
    assert process.returncode == code, err
    assert b"Traceback" not in err
    assert lemni("journal", "verify", cwd=repo, home=home).code == 0


@pytest.mark.parametrize(("key", "code"), [(b"\x03", 130), (b"\x1c", 131)], ids=["Ctrl-C", "Ctrl-backslash"])
@pytest.mark.parametrize("arguments", [("-p", "x"), EXEC], ids=["prompt", "exec"])
def test_a_key_that_ends_the_run_leaves_a_sealed_journal(
    repo: Path, home: Path, key: bytes, code: int, arguments: tuple[str, ...]
) -> None:
    configure(home, [{"calls": [call("Write", path="w", content="x"), call("Bash", command=FOREVER)]}, {"text": "x"}])
    ended, shown = on_screen(
        [*DEFAULTS, *ARGV, *arguments], cwd=repo, env=environment(home), press=(b"up\r\n", key),
    )
    assert ended == code, shown
    assert b"Traceback" not in shown
    (session,) = json.loads(lemni("sessions", "--json", cwd=repo, home=home).out)
    assert (session["exit"], session["files"]) == (code, 0)
    verified = lemni("journal", "verify", cwd=repo, home=home)
    assert verified.code == 0, verified.out


def test_a_hangup_that_the_caller_ignores_is_ignored(repo: Path, home: Path) -> None:
    with started(home, repo, *PROMPT, nohup=True) as process:
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=20)
    assert process.returncode == 143


def test_a_killed_lemni_takes_the_sandbox_with_it(repo: Path, home: Path) -> None:
    with started(home, repo, *PROMPT) as process:
        inside = descendants(process.pid)
        watched = [os.pidfd_open(pid) for pid in inside]
        process.kill()
        process.wait()
        for descriptor in watched:  # a pidfd is readable once its process has ended
            assert wait_readable(descriptor, 10)
            os.close(descriptor)
    assert lemni("exec", "--", "true", cwd=repo, home=home).code == 0  # the next start sweeps
    state = home / ".local/state/lemniscate/scratch"
    assert not state.exists() or list(state.iterdir()) == []


def wait_readable(descriptor: int, seconds: float) -> bool:
    return bool(select.select([descriptor], [], [], seconds)[0])


def test_a_reader_that_leaves_is_no_drama(repo: Path, home: Path) -> None:
    configure(home, EDIT)
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [*ARGV, "-p", "x", "--json"], cwd=repo, env=environment(home), stdin=subprocess.DEVNULL, stdout=writer,
            stderr=subprocess.PIPE, check=False, timeout=60,
        )
    finally:
        os.close(writer)
    assert done.returncode == 141
    assert b"Traceback" not in done.stderr


def test_an_answer_that_nobody_reads_leaves_the_rest_in_order(repo: Path, home: Path) -> None:
    configure(home, EDIT)
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [*ARGV, "-p", "x"], cwd=repo, env=environment(home), stdin=subprocess.DEVNULL, stdout=writer,
            stderr=subprocess.PIPE, check=False, timeout=60,
        )
    finally:
        os.close(writer)
    assert done.returncode == 141
    assert b"lemni apply " in done.stderr
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize("arguments", [(), ("--json",)])
def test_a_full_disk_under_the_answer_is_said(repo: Path, home: Path, arguments: tuple[str, ...]) -> None:
    configure(home, EDIT)
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [*ARGV, "-p", "x", *arguments], cwd=repo, env=environment(home), stdin=subprocess.DEVNULL, stdout=full,
            stderr=subprocess.PIPE, check=False, timeout=60,
        )
    assert done.returncode == 1, done.stderr
    assert b"write to standard output: ENOSPC" in done.stderr
    assert b"bug" not in done.stderr
    assert (b"lemni apply " in done.stderr) is not bool(arguments)


def test_steps_that_cannot_be_shown_stop_nothing(repo: Path, home: Path) -> None:
    configure(home, EDIT)
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [*ARGV, "-p", "x"], cwd=repo, env=environment(home), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=full, check=False, timeout=60,
        )
    assert (done.returncode, done.stdout) == (0, b"Changed a to b.\n")


def test_a_full_disk_under_the_output_of_exec_is_said(repo: Path, home: Path) -> None:
    configure(home, EDIT)
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [*ARGV, "exec", "--", "sh", "-c", "echo out; touch made"], cwd=repo, env=environment(home),
            stdin=subprocess.DEVNULL, stdout=full, stderr=subprocess.PIPE, check=False, timeout=60,
        )
    assert done.returncode == 125, done.stderr
    assert b"ENOSPC" in done.stderr
    assert b"lemni apply " in done.stderr


def test_plan_mode_only_reads(repo: Path, home: Path) -> None:
    configure(home, [
        {"calls": [call("Read", path="README"), call("Write", path="x", content="y"), call("Bash", command="touch z")]},
        {"text": "planned"},
    ])
    ended = lemni("-p", "x", "--mode", "plan", "--json", cwd=repo, home=home)
    events = [json.loads(line) for line in ended.out.splitlines()]
    states = [event["state"] for event in events if event["type"] == "done"]
    assert ended.code == 0, ended.err
    assert states[0] == "done"
    assert "done" not in states[1:]
    assert events[-1]["changes"]["files"] == 0


def test_an_excluded_tool_is_refused_and_the_session_goes_on(repo: Path, home: Path) -> None:
    configure(home, [{"calls": [call("Bash", command="true")]}, {"text": "on"}], tools={**FREE, "Bash": "exclude"})
    ended = lemni("-p", "x", cwd=repo, home=home)
    assert "the policy excludes Bash" in ended.err
    assert (ended.code, ended.out) == (0, "on\n"), ended.err
    assert "refused" in ended.err
