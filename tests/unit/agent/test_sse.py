"""The event-stream grammar, at the corners where parsers differ."""
from __future__ import annotations

import pytest

from agent.providers.sse import EventParser, ServerEvent, StreamError


def parse(*chunks: bytes) -> list[ServerEvent]:
    parser = EventParser()
    events = [event for chunk in chunks for event in parser.feed(chunk)]
    last = parser.finish()
    return events + ([last] if last else [])


def data(*texts: str) -> list[ServerEvent]:
    return [ServerEvent("message", text) for text in texts]


@pytest.mark.parametrize(
    ("stream", "events"),
    [
        (b"data: a\n\ndata: b\n\n", data("a", "b")),
        (b"data: a\r\n\r\ndata: b\r\r", data("a", "b")),
        (b"data:a\n\n", data("a")),
        (b"data:  a\n\n", data(" a")),
        (b"data: a\ndata: b\n\n", data("a\nb")),
        (b"data\n\n", data("")),
        (b": keep alive\n\n:\n\ndata: a\n\n", data("a")),
        (b"\xef\xbb\xbfdata: a\n\n", data("a")),
        (b"id: 1\nretry: 5\nother: x\ndata: a\n\n", data("a")),
        (b"event: error\ndata: a\n\ndata: b\n\n", [ServerEvent("error", "a"), *data("b")]),
        (b"event: only\n\n", []),
        (b"\n\n\n", []),
        (b"data: cut", data("cut")),
        (b"", []),
    ],
)
def test_streams(stream: bytes, events: list[ServerEvent]) -> None:
    assert parse(stream) == events
    assert parse(*(stream[at : at + 1] for at in range(len(stream)))) == events


def test_a_line_end_of_two_bytes_may_be_cut_between_them() -> None:
    assert parse(b"data: a\r", b"\n\r", b"\ndata: b\r", b"\n\r\n") == data("a", "b")


def test_an_event_is_bounded() -> None:
    with pytest.raises(StreamError, match="longer"):
        list(EventParser(max_event=100).feed(b"data: abcdefghij\n" * 100))
    with pytest.raises(StreamError, match="longer"):
        list(EventParser(max_event=100).feed(b"x" * 101))


def test_what_is_not_utf8_is_an_error() -> None:
    with pytest.raises(StreamError, match="UTF-8"):
        parse(b"data: \xff\n\n")
    assert parse(b": \xff\n\ndata: a\n\n") == data("a")
