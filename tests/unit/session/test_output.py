"""What the model reads of an output: the status always, both streams apart, head and tail with exact counts, no control."""
from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.session.output import HEAD, TAIL, describe, excerpt, visible
from supervisor.types import Execution

RAN = Execution(0, None, b"", b"", 0, 0, 1_200_000, 0, 0)


def test_the_status_is_always_there() -> None:
    assert describe(RAN, 600) == "exit status 0 after 1.2 s\nno output"
    assert describe(replace(RAN, code=7, stderr=b"no\n"), 600) == "exit status 7 after 1.2 s\nstderr:\nno\n"
    assert describe(replace(RAN, code=None, signal=9), 600).startswith("killed by signal 9 after 1.2 s (exit status 137)")
    timed_out = describe(replace(RAN, code=None, signal=9, timed_out=True, stdout=b"half"), 2)
    assert timed_out.startswith("timed out after 2 s")
    assert timed_out.endswith("stdout:\nhalf")


def test_streams_stay_apart() -> None:
    assert describe(replace(RAN, stdout=b"a\n", stderr=b"b\n"), 1) == "exit status 0 after 1.2 s\nstdout:\na\n\nstderr:\nb\n"


def test_what_fits_is_shown_whole_and_the_rest_by_head_tail_and_count() -> None:
    whole = b"x" * (HEAD + TAIL)
    assert excerpt(whole, 0) == whole.decode()
    cut = excerpt(b"H" * HEAD + b"m" * 100 + b"T" * TAIL, 5)
    line = f"\n[100 bytes are not shown here; {HEAD + TAIL + 100} bytes kept, 5 more were dropped]\n"
    assert cut == "H" * HEAD + line + "T" * TAIL
    assert excerpt(b"abc\n", 4) == "abc\n[4 bytes kept, 4 more were dropped]"
    assert excerpt(b"", 9) == "\n[0 bytes kept, 9 more were dropped]"


def test_a_cut_divides_no_character() -> None:
    text = "é€😀" * 8000
    shown = excerpt(text.encode(), 0)
    assert "\\x" not in shown


@pytest.mark.parametrize(("data", "shown"), [
    (b"a\x1b[31mb", "a\\x1b[31mb"), (b"a\r\nb", "a\nb"), (b"50%\r100%", "50%\\x0d100%"), (b"\xff\xfe", "\\xff\\xfe"),
    ("a\u202eb".encode(), "a\\u202eb"), ("\u200b".encode(), "\\u200b"), (b"\0", "\\x00"), ("é€😀\t\n".encode(), "é€😀\t\n"),
    (b"\x9b31m", "\\x9b31m"), ("\u009b31m".encode(), "\\x9b31m"), ("\U000e0041".encode(), "\\U000e0041"),
])
def test_nothing_acts_on_a_screen(data: bytes, shown: str) -> None:
    assert visible(data) == shown


@given(st.binary(max_size=300), st.integers(0, 3))
def test_any_bytes_are_shown_safely(data: bytes, dropped: int) -> None:
    shown = excerpt(data, dropped)
    assert all(char.isprintable() or char in "\n\t" for char in shown)
    shown.encode()
