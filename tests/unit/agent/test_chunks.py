"""Chunks of known dialects become the same events; what is none is an error with a remedy."""
from __future__ import annotations

import json
from typing import Any

import pytest

from agent.calls import CallDelta
from agent.errors import ModelError
from agent.providers.base import Done, ModelEvent, ReasoningDelta, TextDelta, Usage
from agent.providers.chunks import quoted, read_chunk, read_completion


def delta(**fields: Any) -> list[ModelEvent]:
    return read_chunk(json.dumps({"choices": [{"index": 0, "delta": fields, "finish_reason": None}]}))


def test_words() -> None:
    assert delta(content="a") == [TextDelta("a")]
    assert delta(content="") == delta(content=None) == delta() == []
    assert delta(refusal="no") == [TextDelta("no")]
    assert delta(reasoning_content="hm", content="a") == [ReasoningDelta("hm"), TextDelta("a")]
    assert delta(reasoning="hm") == [ReasoningDelta("hm")]


def test_calls() -> None:
    function = {"name": "Read", "arguments": '{"pa'}
    assert delta(tool_calls=[{"index": 1, "id": "x", "function": function}]) == [CallDelta(1, "x", "Read", '{"pa')]
    assert delta(tool_calls=[{"id": None, "function": {"name": None, "arguments": "x"}}]) == [CallDelta(None, None, None, "x")]
    whole = {"index": 0, "function": {"arguments": {"path": "a"}}}
    assert delta(tool_calls=[whole]) == [CallDelta(0, None, None, '{"path": "a"}')]
    assert delta(tool_calls=None) == []


def test_ends_and_usage() -> None:
    assert read_chunk('{"choices": [{"delta": {}, "finish_reason": "stop"}]}') == [Done("stop")]
    assert read_chunk('{"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 4}}') == [Usage(3, 4)]
    assert read_chunk('{"choices": [{"index": 1, "delta": {"content": "other"}}]}') == []
    assert read_chunk('{"type": "ping"}') == []


def test_a_whole_completion() -> None:
    message = {"content": "a", "tool_calls": [{"id": "x", "function": {"name": "Read", "arguments": "{}"}},
                                              {"id": "x", "function": {"name": "List", "arguments": "{}"}}]}
    events = read_completion(json.dumps({"choices": [{"message": message, "finish_reason": "tool_calls"}]}))
    assert events == [TextDelta("a"), CallDelta(0, "x", "Read", "{}"), CallDelta(1, "x", "List", "{}"), Done("tool_calls")]
    assert read_completion('{"choices": [{"message": {"content": "a"}}]}') == [TextDelta("a"), Done("")]


@pytest.mark.parametrize(
    "text",
    ["", "x", "[]", "1", '{"choices": 1}', '{"choices": [1]}', '{"choices": [{"delta": []}]}', "[" * 100_000,
     '{"choices": [{"delta": {"content": 1}}]}', '{"choices": [{"delta": {"tool_calls": {}}}]}',
     '{"choices": [{"delta": {"tool_calls": [{"index": "0"}]}}]}',
     '{"choices": [{"delta": {"tool_calls": [{"index": true}]}}]}',
     '{"choices": [{"delta": {"tool_calls": [{"function": {"arguments": 5}}]}}]}'],
)
def test_what_is_no_chunk(text: str) -> None:
    with pytest.raises(ModelError) as caught:
        read_chunk(text)
    assert caught.value.code == "model_bad_json"
    assert caught.value.remedy
    with pytest.raises(ModelError):
        read_completion(text)


@pytest.mark.parametrize(
    "text",
    ['{"error": {"message": "too long"}}', '{"error": "too long"}', '{"object": "error", "message": "too long"}',
     '{"choices": [{"delta": {}, "finish_reason": "error"}], "error": {"message": "too long"}}'],
)
def test_an_error_that_the_server_reports(text: str) -> None:
    with pytest.raises(ModelError, match="too long") as caught:
        read_chunk(text)
    assert caught.value.code == "model_error_event"


def test_a_servers_words_are_quoted_safely() -> None:
    assert quoted("a\n\x1b[2Jb\u202e") == "a [2Jb"
    assert len(quoted("x" * 10_000)) < 400
