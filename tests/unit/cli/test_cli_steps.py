"""What a person sees of a session: each step in full, nothing that the model or a command smuggles in."""
from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from agent.cli import steps
from agent.cli.flow import HEAD_LINES, LINE_BYTES, TAIL_LINES, Output, Words
from agent.cli.numbers import milliseconds, size
from agent.cli.steps import Steps
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
HIDDEN = "! characters that a terminal does not show are written <U+…>"


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
        (ReadCall("a\nb\x1b"), "Read", ["▸ Read a<U+000A>b<U+001B>", HIDDEN]),
        (BashCall("echo \u202e"), "Bash", ["▸ Bash echo <U+202E>", HIDDEN]),
    ],
)
def test_a_call_is_described_in_full(action: Action, tool: str, lines: list[str], shown: Shown) -> None:
    Steps().proposed(proposal(action, tool))
    assert shown().splitlines() == lines


@pytest.mark.parametrize("raw", ['{"command": "ls\u200b"}', r'{"command": "ls\u200b"}'])
def test_hidden_characters_are_warned_about_however_the_model_wrote_them(raw: str, shown: Shown) -> None:
    Steps().proposed(proposal(BashCall("ls\u200b"), raw=raw))
    assert "does not show" in shown()


def test_nothing_is_warned_about_where_nothing_is_hidden(shown: Shown) -> None:
    Steps().proposed(proposal(WriteCall("é", "\tx\n"), "Write"))
    assert "does not show" not in shown()


def test_a_malformed_call_says_what_is_wrong(shown: Shown) -> None:
    Steps().proposed(Proposal("c1", "Re\x07ad", "{", None, Reason.MALFORMED, "the arguments are cut"))
    assert shown() == "✗ Re<U+0007>ad: malformed\n  │ the arguments are cut\n"


def test_what_is_wrong_with_a_call_is_said_once(shown: Shown) -> None:
    step, faulty = Steps(), Proposal("c1", "Read", "{", None, Reason.MALFORMED, "the arguments are cut")
    step.proposed(faulty)
    step.result(faulty, Result("c1", CallState.ERRORED, "the arguments are cut", Reason.MALFORMED))
    assert shown().count("the arguments are cut") == 1
    step.result(faulty, Result("c1", CallState.CANCELED, "blocked for repetition", Reason.LOOP))
    assert "refused [loop] blocked for repetition" in shown()


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
    assert shown() == "  │ é<0xFF>\n  └ exit 7 · 1.5 ms · CPU 0.9 ms · 1.0 MiB resident\n"


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


@pytest.mark.parametrize("piece", [1, 2, 3, 5, 64, 4096, 100_000])
def test_what_is_shown_of_an_output_does_not_depend_on_how_it_came(piece: int, shown: Shown) -> None:
    data = b"".join(b"%d\n" % number for number in range(1000)) + "é".encode() * 600 + b"\n\xc3"
    output = Output()
    for at in range(0, len(data), piece):
        output.write(1, data[at : at + piece])
    output.end()
    *head, left, one, two, long, last = shown().splitlines()
    assert head == [f"  │ {number}" for number in range(HEAD_LINES)]
    assert left == f"  │ … {1002 - HEAD_LINES - TAIL_LINES} more lines"
    assert (one, two, last) == ("  │ 998", "  │ 999", "  │ <0xC3>")
    assert long == "  │ " + "é" * 500 + " … 200 more bytes"


def test_a_line_without_end_is_shown_by_its_start(shown: Shown) -> None:
    output = Output()
    for _ in range(100):
        output.write(2, b"\0" * 65536)
    output.end()
    assert shown() == "  ┃ " + "<U+0000>" * LINE_BYTES + f" … {6_553_600 - LINE_BYTES} more bytes\n"


def test_a_character_that_the_bound_cuts_is_not_shown_in_part(shown: Shown) -> None:
    output = Output()
    output.write(1, b"x" * (LINE_BYTES - 1) + "é\n".encode())
    assert shown() == "  │ " + "x" * (LINE_BYTES - 1) + " … 2 more bytes\n"


def test_a_flood_costs_little(shown: Shown) -> None:
    output = Output()
    began = time.process_time()
    for _ in range(160):  # 10 MiB in the shortest lines there are
        output.write(1, b"y\n" * 32768)
    output.end()
    assert time.process_time() - began < 2, "each line is looked at"
    assert f"{160 * 32768 - HEAD_LINES - TAIL_LINES} more lines" in shown()


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
        (Result("c1", CallState.DONE, "[no match]"), "└ no match\n"),
        (Result("c1", CallState.DONE, "[a]\n"), "└ 1 line\n"),
    ],
)
def test_a_result_says_what_came_of_it(result: Result, says: str, shown: Shown) -> None:
    Steps().result(proposal(ReadCall("x"), "Read"), result)
    assert shown().endswith(says)


@pytest.mark.parametrize(
    ("action", "text"), [(WriteCall("a", "x"), "wrote 1 byte"), (EditCall("a", "o", "n", True), "2 replacements")]
)
def test_a_change_says_what_it_did(action: Action, text: str, shown: Shown) -> None:
    Steps().result(proposal(action, "Write"), Result("c1", CallState.DONE, text))
    assert shown() == f"  └ {text}\n"


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
