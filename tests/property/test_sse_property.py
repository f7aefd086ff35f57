"""The event-stream parser under any chunking and any bytes."""
from __future__ import annotations

import contextlib

from hypothesis import given
from hypothesis import strategies as st

from agent.errors import ModelError
from agent.providers.chunks import read_chunk, read_completion
from agent.providers.sse import EventParser, ServerEvent, StreamError

LINES = st.sampled_from(
    [b"data: a", b"data:b", b"data", b": c", b"event: e", b"", b"id: 1", b"\xef\xbb\xbf", b"data: \xc3\xa9"]
)
ENDS = st.sampled_from([b"\n", b"\r", b"\r\n"])
STREAMS = st.lists(st.tuples(LINES, ENDS), max_size=20).map(lambda pairs: b"".join(line + end for line, end in pairs))


def parse(stream: bytes, cuts: list[int]) -> list[ServerEvent] | str:
    parser = EventParser(max_event=4096)
    places = sorted(min(cut, len(stream)) for cut in cuts)
    events: list[ServerEvent] = []
    try:
        for a, b in zip([0, *places], [*places, len(stream)], strict=True):
            events += parser.feed(stream[a:b])
        last = parser.finish()
    except StreamError as error:
        return str(error)
    return events + ([last] if last else [])


@given(STREAMS | st.binary(max_size=200), st.lists(st.integers(0, 200), max_size=10))
def test_the_events_do_not_depend_on_the_chunks(stream: bytes, cuts: list[int]) -> None:
    assert parse(stream, cuts) == parse(stream, [])


@given(st.text(max_size=200))
def test_a_text_survives_as_data(text: str) -> None:
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    stream = "".join(f"data: {line}\n" for line in lines).encode() + b"\n"
    assert parse(stream, []) == [ServerEvent("message", "\n".join(lines))]


@given(st.text(max_size=200) | st.binary(max_size=200).map(lambda data: data.decode(errors="replace")))
def test_reading_a_chunk_gives_events_or_a_model_error(text: str) -> None:
    for read in (read_chunk, read_completion):
        with contextlib.suppress(ModelError):
            read(text)
