"""The scanner against bash itself: where it claims to know every word of a plain command, bash sees the same words.

Texts are made of characters that can name no program, and bash runs with an empty PATH in an empty directory, so that a text
which the scanner misjudges does nothing worse than fail the test.
"""
from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from supervisor.settings.scanner import scan

BASH = shutil.which("bash") or "bash"
TEXTS = st.text(alphabet="xyz =-,:@%+^_.!#$`'\"\\~{}()<>|&;*?[]\n\t0129é", max_size=24)
pytestmark = pytest.mark.needs("bash")


def known_words(text: str) -> list[str] | None:
    """The words, where the scanner says that the text is one plain command without anything to expand."""
    found = scan(text.strip(" \t\n"))
    if found.opaque or found.unterminated or found.operators or len(found.pieces) != 1:
        return None
    piece = found.pieces[0]
    if piece.redirections or any(not word.known or word.globs or word.expands for word in piece.words):
        return None
    return [word.text for word in piece.words]


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(TEXTS)
def test_bash_sees_the_words_that_the_scanner_sees(tmp_path: Path, text: str) -> None:
    words = known_words(text)
    if words is None:
        return
    script = f"set -- {text.strip(chr(10) + ' ' + chr(9))}\nprintf '%s\\0' \"$#\" \"$@\""
    ran = subprocess.run(
        [BASH, "--noprofile", "--norc", "-c", script], cwd=tmp_path, env={"PATH": "", "LC_ALL": "C.UTF-8"},
        stdin=subprocess.DEVNULL, capture_output=True, check=False,
    )
    seen = ran.stdout.decode().split("\0")[:-1]
    assert seen == [str(len(words)), *words], ran.stderr


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(alphabet="xuU0123489aAbcefnrtv?\\\\\"é ", max_size=12))
def test_bash_reads_the_escapes_of_a_dollar_quote_alike(tmp_path: Path, body: str) -> None:
    text = f"x $'{body}'"
    found = scan(text)
    (piece,) = found.pieces
    if len(piece.words) != 2 or not piece.words[1].known or body.endswith("\\"):
        return
    ran = subprocess.run(
        [BASH, "--noprofile", "--norc", "-c", f"printf '%s\\0' $'{body}'"], cwd=tmp_path, env={"PATH": "", "LC_ALL": "C.UTF-8"},
        stdin=subprocess.DEVNULL, capture_output=True, check=False,
    )
    assert ran.stdout.decode("utf-8", "surrogateescape") == piece.words[1].text + "\0"
