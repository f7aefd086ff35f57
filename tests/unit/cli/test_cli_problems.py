"""Every way to fail has its exit code and its words; none is a bare traceback (B67)."""
from __future__ import annotations

import click
import pytest

from agent.cli.problems import run
from agent.cli.root import lemni
from supervisor.errors import Fault, HostUnfit, LemniError, PolicyError


def failing(error: BaseException) -> click.Command:
    @click.command("failing")
    def command() -> int:
        raise error

    return command


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "interactive sessions are not there yet"),
        (["nope"], "No such command"),
        (["--nope"], "No such option"),
        (["-p"], "requires an argument"),
        (["exec"], "Missing argument"),
        (["exec", "--timeout", "0", "--", "true"], "0"),
        (["diff", "a", "b"], "unexpected extra argument"),
        (["diff", "--patch", "--json"], "exclude each other"),
        (["-p", "x", "diff"], "exclude each other"),
        (["completion", "tcsh"], "tcsh"),
        (["--mode", "yolo", "-p", "x"], "yolo"),
    ],
)
def test_usage_errors_exit_2(arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(lemni, arguments) == 2
    captured = capsys.readouterr()
    assert says in captured.err
    assert captured.out == ""


@pytest.mark.parametrize("arguments", [["journal", "verify", "--nope"], ["journal", "nope"], ["journal", "--nope"]])
def test_usage_errors_of_the_journal_exit_3(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(lemni, arguments) == 3
    assert "No such" in capsys.readouterr().err


def test_a_problem_is_told_with_fault_and_remedy(capsys: pytest.CaptureFixture[str]) -> None:
    error = HostUnfit(
        "opening a sandbox", on="user namespaces", errno=1, code="no_userns",
        remedy="sysctl kernel.unprivileged_userns_clone=1\nor ask",
    )
    assert run(failing(error), []) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "opening a sandbox (user namespaces): EPERM" in shown.err
    assert "this machine's" in shown.err
    assert "[no_userns]" in shown.err
    assert "remedy  sysctl kernel.unprivileged_userns_clone=1\n          or ask\n" in shown.err


def test_a_problem_cannot_write_on_the_screen(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(failing(PolicyError("reading \x1b[2J", why="\u202e")), []) == 1
    shown = capsys.readouterr().err
    assert "\x1b" not in shown
    assert "<U+001B>[2J" in shown
    assert "<U+202E>" in shown


@pytest.mark.parametrize("fault", list(Fault))
def test_every_fault_has_words(fault: Fault, capsys: pytest.CaptureFixture[str]) -> None:
    error = LemniError("x")
    error.fault = fault
    assert run(failing(error), []) == 1
    assert "fault   " in capsys.readouterr().err


def test_a_bug_is_told_as_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(failing(ZeroDivisionError("by \x07")), []) == 1
    shown = capsys.readouterr().err
    assert "ZeroDivisionError: by <U+0007>" in shown
    assert "this is a bug" in shown


def test_a_group_is_told_by_its_most_telling_member(capsys: pytest.CaptureFixture[str]) -> None:
    group = ExceptionGroup("many", [ValueError("a"), ExceptionGroup("inner", [PolicyError("the one")])])
    assert run(failing(group), []) == 1
    assert capsys.readouterr().err.startswith("lemni: the one\n")
    assert run(failing(BaseExceptionGroup("many", [ValueError("a"), KeyboardInterrupt()])), []) == 130


def test_an_interrupt_and_a_gone_reader_are_quiet(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(failing(KeyboardInterrupt()), []) == 130
    assert run(failing(click.Abort()), []) == 130
    captured = capfd.readouterr()
    assert captured.out == ""
    assert captured.err.strip() == ""  # click ends the line that ^C was typed on
