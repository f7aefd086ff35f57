"""What a chat completions server sends, read into events: pure, and tolerant only where servers are known to differ.

Known differences: a last chunk without choices that carries the usage; ``null`` where a key could be absent; arguments sent
as an object rather than a text (then the whole call comes at once); reasoning under two names; a server that does not stream
and answers with one completion.
"""
from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, TypeVar

from agent.calls import CallDelta
from agent.errors import ModelError
from agent.providers.base import Done, ModelEvent, ReasoningDelta, TextDelta, Usage

T = TypeVar("T")

_QUOTED = 300  # characters of a server's own words in one of our messages


def bad_json(why: str) -> ModelError:
    return ModelError(
        "reading the model's answer", why=why, code="model_bad_json",
        remedy="check that apiBase is an OpenAI-compatible chat completions server, and its log",
    )


def quoted(text: str) -> str:
    """A server's words on one line, printable and bounded."""
    line = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    return line if len(line) <= _QUOTED else line[:_QUOTED] + "…"


def read_chunk(text: str) -> list[ModelEvent]:
    """The events of one streamed chunk. ``ModelError`` for what is no chunk, and for an error that the server reports."""
    return list(_events(_object(text), "delta"))


def read_completion(text: str) -> list[ModelEvent]:
    """The events of one whole completion, of a server that does not stream."""
    record = _object(text)
    events = list(_events(record, "message"))
    choices = record.get("choices")
    if not choices or not choices[0].get("message"):
        raise bad_json("the answer has no message")
    return events if any(isinstance(event, Done) for event in events) else [*events, Done("")]


def reported_error(record: object) -> str | None:
    """The message of an error object as the common servers write it, or None where there is none."""
    if not isinstance(record, dict):
        return None
    error = record.get("error") or record.get("detail")
    if not error and record.get("object") == "error":
        error = record
    if not error:
        return None
    if isinstance(error, dict):
        error = error.get("message") or json.dumps(error)
    return quoted(str(error))


def event_error(text: str) -> ModelError:
    """The error of an event that says that it is one, whatever the shape of its data."""
    try:
        said = reported_error(json.loads(text))
    except (ValueError, RecursionError):
        said = None
    return ModelError(
        "reading the model's answer", why=f"the server reported: {said or quoted(text)}", code="model_error_event",
        remedy="look into the model server's log; a context that is too long is the usual cause",
    )


def _object(text: str) -> dict[str, Any]:
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        raise bad_json(f"a part of it is not JSON: {quoted(text[:_QUOTED])}") from None
    if not isinstance(record, dict):
        raise bad_json(f"a part of it is no JSON object: {quoted(text[:_QUOTED])}")
    return record


def _events(record: dict[str, Any], key: str) -> Iterator[ModelEvent]:
    choices = _typed(record.get("choices"), list, "choices") or []
    if reported_error(record) is not None:
        raise event_error(json.dumps(record))
    if usage := _typed(record.get("usage"), dict, "usage"):
        yield Usage(_count(usage.get("prompt_tokens")), _count(usage.get("completion_tokens")))
    for choice in choices:
        choice = _typed(choice, dict, "a choice") or {}
        if choice.get("index") not in (None, 0):
            continue  # one answer is asked for; a server that sends several is read as far as its first
        message = _typed(choice.get(key), dict, key) or {}
        for name in ("reasoning_content", "reasoning"):
            if isinstance(message.get(name), str) and message[name]:
                yield ReasoningDelta(message[name])
                break
        for name in ("content", "refusal"):
            if text := _typed(message.get(name), str, name):
                yield TextDelta(text)
        for place, call in enumerate(_typed(message.get("tool_calls"), list, "tool_calls") or []):
            yield _call(call, place if key == "message" else None)
        if finish := _typed(choice.get("finish_reason"), str, "finish_reason"):
            yield Done(finish)


def _call(record: object, place: int | None) -> CallDelta:
    call = _typed(record, dict, "a tool call") or {}
    function = _typed(call.get("function"), dict, "function") or {}
    index = call.get("index", place)
    if index is not None and (not isinstance(index, int) or isinstance(index, bool)):
        raise bad_json("the index of a tool call is no whole number")
    arguments = function.get("arguments")
    if isinstance(arguments, dict):
        arguments = json.dumps(arguments)
    return CallDelta(
        index,
        _typed(call.get("id"), str, "the id of a tool call") or None,
        _typed(function.get("name"), str, "the name of a tool call") or None,
        _typed(arguments, str, "arguments") or "",
    )


def _typed(value: object, kind: type[T], name: str) -> T | None:
    """``value`` when it has that type, None when it is absent or null."""
    if value is None or isinstance(value, kind):
        return value
    raise bad_json(f"{name} has another type than the interface says")


def _count(value: object) -> int:
    return value if isinstance(value, int) and value >= 0 else 0
