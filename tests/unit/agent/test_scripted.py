"""The scripted model: strict about its script, faithful in replaying it."""
from __future__ import annotations

from pathlib import Path

import pytest

from agent.calls import Assembler, CallDelta, Numbering
from agent.context import Conversation
from agent.errors import ScriptError
from agent.providers.base import Done, Meter, ModelEvent, TextDelta
from agent.providers.scripted import ScriptedProvider, load_script, parse_script
from supervisor.errors import SettingError
from supervisor.types import CallState, Result

SCRIPT = """
turns:
  - text: I look around, and that takes a few more words than one piece.
    calls:
      - {tool: List, args: {path: .}}
      - {tool: Bash, rawArgs: '{"command": ', id: dup}
  - expect: "^found \\\\d+$"
    text: Done.
"""


async def play(provider: ScriptedProvider, conversation: Conversation) -> tuple[list[ModelEvent], Meter]:
    events: list[ModelEvent] = []
    meter = Meter()
    await provider.exchange(conversation, [], events.append, meter)
    return events, meter


async def test_it_streams_text_and_interleaved_calls() -> None:
    provider = ScriptedProvider("demo", parse_script(SCRIPT))
    events, meter = await play(provider, Conversation("s"))
    assert "".join(e.text for e in events if isinstance(e, TextDelta)).startswith("I look around")
    assembler = Assembler(Numbering())
    for event in events:
        if isinstance(event, CallDelta):
            assembler.feed(event)
    first, second = assembler.finish(cut=False)
    assert (first.tool, first.arguments) == ("List", {"path": "."})
    assert (second.tool, second.raw) == ("Bash", '{"command": ')
    assert second.fault
    assert events[-1] == Done("tool_calls")
    assert meter.sent > 0
    assert meter.received > 0


async def test_expectations_and_the_end_of_the_script() -> None:
    provider = ScriptedProvider("demo", parse_script(SCRIPT))
    conversation = Conversation("s")
    await play(provider, conversation)
    with pytest.raises(ScriptError, match=r"turn 2.*do not match") as caught:
        await play(provider, conversation)
    assert caught.value.code == "script_expectation"
    with pytest.raises(ScriptError, match="ended after 2 turns") as caught:
        await play(provider, conversation)
    assert caught.value.code == "script_exhausted"
    assert caught.value.remedy

    provider = ScriptedProvider("demo", parse_script(SCRIPT))
    await play(provider, conversation)
    assembler = Assembler(conversation.numbering)
    assembler.feed(CallDelta(0, None, "List", "{}"))
    (call,) = assembler.finish(cut=False)
    conversation.assistant("", (call,))
    conversation.result(Result(call.call_id, CallState.DONE, "line\nfound 12\n", untrusted=True))
    events, _ = await play(provider, conversation)
    assert events[-1] == Done("stop")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[]", "the script: a mapping"),
        ("turns: []", "at least one turn"),
        ("turn: []", "unknown key 'turn'"),
        ("turns: [{}]", "turn 1: text or calls"),
        ("turns: [{text: a}, {text: 1}]", "turn 2: text is a string"),
        ("turns: [{txt: a}]", "turn 1: unknown key 'txt'; accepted: calls, expect, text"),
        ("turns: [{text: a, expect: '('}]", "no regular expression"),
        ("turns: [{calls: [{tool: Read}]}]", "turn 1, call 1: exactly one of args and rawArgs"),
        ("turns: [{calls: [{tool: Read, args: {}, rawArgs: ''}]}]", "exactly one"),
        ("turns: [{calls: [{tool: Read, args: []}]}]", "args: a mapping"),
        ("turns: [{calls: [{tool: 1, args: {}}]}]", "tool is a string"),
        ("turns: [{calls: [{tool: Read, args: {path: 2001-01-01}}]}]", "JSON cannot carry"),
        ("turns: [{calls: [{tool: Read, rawArgs: 5}]}]", "rawArgs is a string"),
        ("turns: [", "parsing"),
        ("!!python/object:os.system x", "tag"),
    ],
)
def test_a_wrong_script_says_where(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "script.yaml"
    file.write_text(text)
    with pytest.raises(SettingError) as caught:
        load_script(file)
    assert says in str(caught.value)
    assert str(file) in str(caught.value)


def test_a_script_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="ENOENT"):
        load_script(tmp_path / "absent.yaml")
