"""What a person sees of a session: each step in full, nothing that the model or a command smuggles in."""
from __future__ import annotations

from collections.abc import Callable

import pytest

from agent.cli import steps
from agent.cli.numbers import milliseconds, size
from agent.cli.steps import HEAD_LINES, TAIL_LINES, Output, Steps, Words
from supervisor.types import (
    Action,
    BashCall,
    CallState,
    EditCall,
    Execution,
    Layer,
    ListCall,
    Proposal,
    ReadCall,
    Reason,
    Result,
    SearchCall,
    WriteCall,
)

Shown = Callable[[], str]


@pytest.fixture
def shown(capsys: pytest.CaptureFixture[str]) -> Shown:
    """Standard error since the last call; standard output stays empty, it is for answers."""

    def read() -> str:
        captured = capsys.readouterr()
        assert captured.out == ""
        return captured.err

    return read


def proposal(action: Action, tool: str = "Bash", raw: str = "{}") -> Proposal:
    return Proposal("c1", tool, raw, action)


def execution(code: int | None = 0, **more: int | bool | None) -> Execution:
    fields = {"signal": None, "dropped_stdout": 0, "dropped_stderr": 0, "duration_us": 1500, "cpu_us": 900, "max_rss": 1 << 20}
    return Execution(code=code, stdout=b"", stderr=b"", **{**fields, **more})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("action", "tool", "lines"),
    [
        (ReadCall("a.py", 10), "Read", ["▸ Read a.py from line 10"]),
        (ListCall("."), "List", ["▸ List ."]),
        (SearchCall('de"f', "src", "*.py"), "Search", ['▸ Search "de"f" in src in names like *.py']),
        (WriteCall("a", "x\ny\n"), "Write", ["▸ Write a", "  + x", "  + y"]),
        (EditCall("a", "old\n", "new", True), "Edit", ["▸ Edit a everywhere", "  - old", "  + new"]),
        (BashCall("make\ntest"), "Bash", ["▸ Bash make", "  test"]),
        (ReadCall("a\nb\x1b"), "Read", ["▸ Read a<U+000A>b<U+001B>"]),
        (BashCall("echo \u202e"), "Bash", ["▸ Bash echo <U+202E>"]),
    ],
)
def test_a_call_is_described_in_full(action: Action, tool: str, lines: list[str], shown: Shown) -> None:
    Steps().proposed(proposal(action, tool))
    assert shown().splitlines() == lines


def test_hidden_characters_are_warned_about(shown: Shown) -> None:
    Steps().proposed(proposal(BashCall("ls\u200b"), raw='{"command": "ls\u200b"}'))
    assert "does not show" in shown()


def test_a_malformed_call_says_what_is_wrong(shown: Shown) -> None:
    Steps().proposed(Proposal("c1", "Re\x07ad", "{", None, Reason.MALFORMED, "the arguments are cut"))
    assert shown() == "✗ Re<U+0007>ad: malformed\n  │ the arguments are cut\n"


def test_a_long_edit_shows_both_ends(shown: Shown) -> None:
    Steps().proposed(proposal(WriteCall("a", "".join(f"{n}\n" for n in range(1000))), "Write"))
    lines = shown().splitlines()
    assert len(lines) == 1 + HEAD_LINES + 1 + TAIL_LINES
    assert lines[HEAD_LINES + 1] == f"  … {1000 - HEAD_LINES - TAIL_LINES} more lines"
    assert lines[-1] == "  + 999"


def test_output_is_shown_as_it_comes_and_ends_with_its_cost(shown: Shown) -> None:
    step = Steps()
    step.output("c1", 1, b"one\ntw")
    assert shown() == "  │ one\n"
    step.output("c1", 1, b"o\n\xc3")
    step.output("c1", 2, b"bad\x1b[2J\n")
    step.output("c1", 1, b"\xa9\xff")
    assert shown() == "  │ two\n  ┃ bad<U+001B>[2J\n"
    step.result(proposal(BashCall("x")), Result("c1", CallState.DONE, "", execution=execution(7)))
    assert shown() == "  │ é<0xFF>\n  └ exit 7 · 1.5 ms · CPU 0.9 ms · 1.0 MiB\n"


def test_a_flood_is_shown_by_its_ends(shown: Shown) -> None:
    output = Output()
    for number in range(10_000):
        output.write(1, b"%d\n" % number)
    output.write(1, b"x" * 1_000_000)
    output.end()
    lines = shown().splitlines()
    assert len(lines) == HEAD_LINES + 1 + TAIL_LINES
    assert "more lines" in lines[HEAD_LINES]
    assert max(map(len, lines)) < 5000


@pytest.mark.parametrize(
    ("ended", "says"),
    [
        (execution(None, signal=9), "signal 9"),
        (execution(None, signal=9, timed_out=True), "timed out"),
        (execution(0, dropped_stdout=3 << 20), "3.0 MiB of output dropped"),
    ],
)
def test_how_a_command_ended(ended: Execution, says: str) -> None:
    assert says in steps.ended(ended)


@pytest.mark.parametrize(
    ("result", "says"),
    [
        (Result("c1", CallState.CANCELED, "not here\nmore", Reason.PERIMETER), "refused [perimeter] not here\n"),
        (Result("c1", CallState.ERRORED, "no \x1b file", Reason.FAILED), "failed [failed] no <U+001B> file\n"),
        (Result("c1", CallState.DONE, "a\nb\n"), "└ 2 lines\n"),
        (Result("c1", CallState.DONE, "a"), "└ 1 line\n"),
        (Result("c1", CallState.DONE, ""), "└ 0 lines\n"),
    ],
)
def test_a_result_says_what_came_of_it(result: Result, says: str, shown: Shown) -> None:
    Steps().result(proposal(ReadCall("x"), "Read"), result)
    assert shown().endswith(says)


def test_words_stream_and_a_mark_cut_in_two_is_still_a_mark(shown: Shown) -> None:
    words = Words()
    for fragment in ("so \x1b", "<", "U+1> a <", "b", " <0"):
        words.write(fragment)
    words.end()
    assert shown() == "so <U+001B><U+003C>U+1> a <b <0\n"


def test_a_session_opens_with_its_layers(shown: Shown) -> None:
    layers = (Layer("seccomp", True, "ok"), Layer("landlock", False, "ENOSYS"))
    Steps().opened("01abc", b"/x", 3100, layers)
    assert shown() == "session 01abc  sandbox opened in 3.1 ms, 1 layer on; off: landlock\n"


def test_a_notice_ends_the_line_that_was_open(shown: Shown) -> None:
    step = Steps()
    step.text("thinking")
    step.notice("code", "two\nlines")
    assert shown() == "thinking\n! two<U+000A>lines [code]\n"


def test_nothing_is_rewritten_in_place_where_no_terminal_is(shown: Shown) -> None:
    step = Steps()
    step.turn(1, summary=False)
    step.arguments("c1", "Bash", '{"comm')
    step.tick()
    step.close()
    assert shown() == ""


@pytest.mark.parametrize(("us", "text"), [(0, "0.0 ms"), (3141, "3.1 ms"), (999_949, "999.9 ms"), (2_450_000, "2.45 s")])
def test_durations(us: int, text: str) -> None:
    assert milliseconds(us) == text


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (5 << 30, "5.0 GiB"), (5 << 40, "5120.0 GiB")]
)
def test_sizes(count: int, text: str) -> None:
    assert size(count) == text
