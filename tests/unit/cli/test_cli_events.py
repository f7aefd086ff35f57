"""``--json``: ASCII lines that any parser reads, whatever bytes they tell of."""
from __future__ import annotations

import json
import os
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.cli.events import Events
from agent.cli.jsontext import dumps
from supervisor.types import BashCall, CallState, Execution, Layer, Proposal, Reason, Result

ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters()) | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters()), inner),
)


@given(ANY)
def test_every_line_is_ascii_and_valid(value: Any) -> None:
    line = dumps(value)
    assert line.isascii()
    assert "\n" not in line
    json.dumps(json.loads(line), ensure_ascii=False).encode()  # it parses, and no lone surrogate comes out of it


def test_bytes_that_are_not_text_are_shown() -> None:
    assert json.loads(dumps({"path": b"a\xff", "text": "b\udc80\ud800"})) == {"path": "a<0xFF>", "text": "b<0x80><U+D800>"}


def test_the_steps_of_a_call(capsys: pytest.CaptureFixture[str]) -> None:
    events = Events(lambda: None)
    proposal = Proposal("c1", "Bash", '{"command":"ls"}', BashCall("ls"))
    ran = Execution(0, None, b"", b"", 0, 0, 10, 5, 4096)
    events.opened("01a", b"/x\xff", 5, (Layer("seccomp", True, "yes"),))
    events.turn(1, summary=False)
    events.proposed(proposal)
    events.state("c1", "Bash", CallState.CALLING)
    events.output("c1", 1, b"\xc3")
    events.output("c1", 1, b"\xa9")
    events.notice("n", "t")
    events.result(proposal, Result("c1", CallState.DONE, "out", execution=ran))
    events.result(proposal, Result("c1", CallState.CANCELED, "no", Reason.POLICY))
    captured = capsys.readouterr()
    assert captured.err == ""
    lines = [json.loads(line) for line in captured.out.splitlines()]
    assert [line["type"] for line in lines] == [
        "opened", "turn", "call", "state", "output", "output", "notice", "done", "done",
    ]
    assert lines[0]["project"] == "/x<0xFF>"
    assert lines[2]["arguments"] == {"command": "ls", "timeout": None}
    assert lines[4]["text"] + lines[5]["text"] == "é"
    assert lines[7]["execution"]["duration_us"] == 10
    assert lines[8]["reason"] == "policy"


def test_a_reader_that_leaves_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = os.pipe()
    told: list[bool] = []
    with open(writer, "w") as stream:
        os.close(reader)
        monkeypatch.setattr(sys, "stdout", stream)
        events = Events(lambda: told.append(True))
        events.turn(1, summary=False)
        events.turn(2, summary=False)
        assert events.gone
    assert told == [True]
