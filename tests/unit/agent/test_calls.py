"""Fragments of every dialect become exactly the calls that were meant, or errors: never a merged call, never a guess."""
from __future__ import annotations

import json

import pytest

from agent.calls import MAX_CALLS, Assembler, Call, CallDelta, Extent, Numbering, joined, may_become, parse_arguments
from supervisor.types import CallState


def assemble(*deltas: CallDelta, cut: bool = False) -> list[Call]:
    assembler = Assembler(Numbering())
    for delta in deltas:
        assembler.feed(delta)
    return list(assembler.finish(cut=cut))


def good(calls: list[Call]) -> list[tuple[str, object]]:
    assert all(not call.fault for call in calls), [call.fault for call in calls]
    return [(call.tool, call.arguments) for call in calls]


READ_A = ("Read", {"path": "a"})
LIST_B = ("List", {"path": "b"})


@pytest.mark.parametrize(
    "deltas",
    [
        pytest.param(
            [CallDelta(0, "x", "Read"), CallDelta(1, "y", "List"), CallDelta(0, fragment='{"path'),
             CallDelta(1, fragment='{"pa'), CallDelta(0, fragment='": "a"}'), CallDelta(1, fragment='th": "b"}')],
            id="interleaved by index",
        ),
        pytest.param(
            [CallDelta(0, name="Read"), CallDelta(1, name="List"), CallDelta(0, fragment='{"path'),
             CallDelta(1, fragment='{"pa'), CallDelta(0, fragment='": "a"}'), CallDelta(1, fragment='th": "b"}')],
            id="interleaved by index, no ids",
        ),
        pytest.param(
            [CallDelta(0, "same", "Read"), CallDelta(1, "same", "List"), CallDelta(0, fragment='{"path": "a"}'),
             CallDelta(1, fragment='{"path": "b"}')],
            id="one id for two indexes",
        ),
        pytest.param(
            [CallDelta(id="x", name="Read"), CallDelta(id="y", name="List"), CallDelta(id="x", fragment='{"path'),
             CallDelta(id="y", fragment='{"pa'), CallDelta(id="x", fragment='": "a"}'),
             CallDelta(id="y", fragment='th": "b"}')],
            id="interleaved by id, no index",
        ),
        pytest.param(
            [CallDelta(id="x", name="Read"), CallDelta(fragment='{"path'), CallDelta(fragment='": "a"}'),
             CallDelta(id="y", name="List"), CallDelta(fragment='{"path": "b"}')],
            id="id in the head only, one after the other",
        ),
        pytest.param(
            [CallDelta(name="Read", fragment='{"path": "a"}'), CallDelta(name="List", fragment='{"path": "b"}')],
            id="whole calls with nothing but a name",
        ),
        pytest.param(
            [CallDelta(0, None, "Read", '{"path": "a"}'), CallDelta(0, None, "List", '{"path": "b"}')],
            id="whole calls, all numbered 0, no ids",
        ),
        pytest.param(
            [CallDelta(0, "x", "Read", '{"path": "a"}'), CallDelta(0, "y", "List", '{"path": "b"}')],
            id="whole calls, all numbered 0, with ids",
        ),
        pytest.param(
            [CallDelta(id="dup", name="Read", fragment='{"path": "a"}'),
             CallDelta(id="dup", name="List", fragment='{"path": "b"}')],
            id="one id for two whole calls",
        ),
        pytest.param(
            [CallDelta(0, "x", "Read", '{"pa'), CallDelta(0, "x", "Read", 'th": '), CallDelta(0, "x", "Read", '"a"}'),
             CallDelta(1, "y", "List", '{"path": '), CallDelta(1, "y", "List", '"b"}')],
            id="index, id and name repeated in every piece",
        ),
        pytest.param(
            [CallDelta(0, None, "Read", '{"pa'), CallDelta(0, None, "Read", 'th": "a"}'), CallDelta(0, None, "Read"),
             CallDelta(1, None, "List", '{"path": "b"}'), CallDelta(1, None, "List", " ")],
            id="name repeated, once more at the end",
        ),
        pytest.param(
            [CallDelta(0, name="Read"), CallDelta(0, "x"), CallDelta(0, "x", fragment='{"path": "a"}'),
             CallDelta(1, "", "List"), CallDelta(1, "", "", '{"path": "b"}')],
            id="id after the name, empty texts for absent ones",
        ),
    ],
)
def test_two_calls_stay_two(deltas: list[CallDelta]) -> None:
    assert good(assemble(*deltas)) == [READ_A, LIST_B]


def test_two_calls_of_one_tool_with_nothing_to_tell_them_apart() -> None:
    whole = [CallDelta(name="Read", fragment='{"path": "a"}'), CallDelta(name="Read", fragment='{"path": "a"}')]
    assert good(assemble(*whole)) == [READ_A, READ_A]
    announced = [CallDelta(0, None, "Read"), CallDelta(0, None, None, '{"path": "a"}')] * 2
    assert good(assemble(*announced)) == [READ_A, READ_A]


@pytest.mark.parametrize("second", ["List", "Read"])
def test_interleaved_without_index_and_id_is_two_errors(second: str) -> None:
    calls = assemble(
        CallDelta(name="Read"), CallDelta(name=second), CallDelta(fragment='{"path'), CallDelta(fragment='{"path'),
        CallDelta(fragment='": "a"}'), CallDelta(fragment='": "b"}'),
    )
    assert [call.tool for call in calls] == ["Read", second]
    assert all(call.fault for call in calls)


def test_a_name_is_never_merged() -> None:
    calls = assemble(CallDelta(0, None, "Read"), CallDelta(0, None, "List"), CallDelta(0, None, None, '{"path": "b"}'))
    assert [call.tool for call in calls] == ["Read", "List"]
    assert calls[0].fault
    assert not calls[1].fault


def test_whole_call_in_one_piece() -> None:
    assert good(assemble(CallDelta(0, "x", "Read", '{"path": "a"}'))) == [READ_A]


def test_our_ids_are_our_own_and_never_repeat() -> None:
    numbering = Numbering()
    ids = []
    for _ in range(2):
        assembler = Assembler(numbering)
        assembler.feed(CallDelta(0, "dup", "Read", '{"path": "a"}'))
        ids += [call.call_id for call in assembler.finish(cut=False)]
    assert len(set(ids)) == 2
    assert "dup" not in ids
    assert all(len(id) == 9 and id.isalnum() for id in ids)


@pytest.mark.parametrize(
    "raw",
    [
        "", " ", '{"path": ', '{"path": "a"', '{"path": "a"}}', '{"path": "a"} x', "[1]", "null", '"a"', "{path: 1}",
        "{'path': 'a'}", '{"a": NaN}', '{"a": 1, "a": 2}', '{"a": {"b": 1, "b": 1}}', "{} {}",
    ],
)
def test_what_is_not_one_object_is_an_error(raw: str) -> None:
    assert isinstance(parse_arguments(raw), str)
    (call,) = assemble(CallDelta(0, "x", "Read", raw))
    assert call.fault
    assert call.arguments is None
    assert call.raw == raw
    assert call.state is CallState.ERRORED


def test_trailing_garbage_is_refused_however_it_is_cut() -> None:
    for at in range(1, 14):
        raw = '{"a":1}{"b":2}'
        (call,) = assemble(CallDelta(0, "x", "Read", raw[:at]), CallDelta(0, None, None, raw[at:]))
        assert call.fault


def test_deep_and_huge_values_are_refused_without_harm() -> None:
    assert "nested" in str(parse_arguments('{"a": ' + "[" * 100_000))
    assert "nested" in str(parse_arguments("[" * 65 + "]" * 65))
    assert isinstance(parse_arguments('{"a": "' + "[" * 1000 + '"}'), dict)
    assert "number" in str(parse_arguments('{"a": ' + "9" * 10_000 + "}"))


def test_a_cut_stream_spoils_only_the_call_that_it_cuts() -> None:
    whole, part = assemble(
        CallDelta(0, "x", "Read", '{"path": "a"}'), CallDelta(1, "y", "Write", '{"path": "b", "content": "ha'), cut=True
    )
    assert not whole.fault
    assert "middle of this call" in part.fault


def test_a_call_without_a_name_is_an_error() -> None:
    (call,) = assemble(CallDelta(0, "x", None, "{}"))
    assert "no tool name" in call.fault


def test_an_abandoned_turn_judges_nothing() -> None:
    assembler = Assembler(Numbering())
    assembler.feed(CallDelta(0, "x", "Read", '{"pa'))
    (call,) = assembler.abandon()
    assert (call.tool, call.raw, call.arguments, call.fault) == ("Read", '{"pa', None, "")


def test_a_flood_of_calls_is_bounded() -> None:
    assembler = Assembler(Numbering())
    for index in range(MAX_CALLS + 10):
        assembler.feed(CallDelta(index, f"id{index}", "Read", '{"path": "a"}'))
    assert len(assembler.finish(cut=False)) == MAX_CALLS
    assert assembler.flooded


def test_fragments_are_placed_as_they_come() -> None:
    assembler = Assembler(Numbering())
    first = assembler.feed(CallDelta(0, "x", "Read"))
    assert first == assembler.feed(CallDelta(0, fragment='{"pa')) == ("c00000001", "Read")


def test_halves_of_a_character_become_whole() -> None:
    assert joined(["a\ud83d", "\ude00b"]) == "a😀b"
    assert joined(["a\ud83d"]) == "a\\ud83d"
    (call,) = assemble(CallDelta(0, "x", "Read", '{"path": "\ud83d'), CallDelta(0, fragment='\ude00"}'))
    assert call.arguments == {"path": "😀"}


def test_extent_is_closed_exactly_at_the_end() -> None:
    text = json.dumps({"a": ['}"\\', {"b": "]"}], "\\": "{"})
    extent = Extent()
    for char in text[:-1]:
        extent.feed(char)
        assert not extent.closed
    extent.feed(text[-1])
    assert extent.closed
    extent.feed(" \n")
    assert not extent.excess
    extent.feed("x")
    assert extent.excess


def test_the_life_of_a_call() -> None:
    legal = {(a, b) for a in CallState for b in CallState if may_become(a, b)}
    assert (CallState.GENERATING, CallState.CALLING) not in legal
    assert (CallState.GENERATED, CallState.CALLING) in legal
    final = {CallState.DONE, CallState.ERRORED, CallState.CANCELED}
    assert not [pair for pair in legal if pair[0] in final]
