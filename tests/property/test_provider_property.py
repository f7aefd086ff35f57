"""Any body of any server: the provider ends in events or in a ``ModelError``, and never in anything else."""
from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import trio
from hypothesis import given
from hypothesis import strategies as st

from agent.calls import Assembler, CallDelta, Numbering
from agent.context import Conversation
from agent.errors import ModelError
from agent.providers.base import Done, Meter, ModelEvent
from agent.providers.endpoint import Endpoint
from agent.providers.openai import OpenAIProvider

PARTS = st.sampled_from([
    b"data: ", b"\n\n", b"\n", b"[DONE]", b": comment\n", b"event: error\n", b"{", b"}", b"<html>", b"\xff", b"null",
    b'data: {"choices": [{"delta": {"content": "a"}}]}\n\n',
    b'data: {"choices": [{"delta": {"tool_calls": [{"index": 0, "function": {"name": "Read", "arguments": "{"}}]}}]}\n\n',
    b'data: {"choices": [{"delta": {}, "finish_reason": "stop"}]}\n\n',
    b'data: {"error": {"message": "m"}}\n\n',
    b'{"choices": [{"message": {"content": "a"}, "finish_reason": "stop"}]}',
])
BODIES = st.lists(PARTS | st.binary(max_size=30), max_size=12)
STATUSES = st.sampled_from([200, 200, 200, 204, 302, 400, 401, 404, 418, 500, 503])
TYPES = st.sampled_from(["text/event-stream", "application/json", "text/html", ""])


class Body(httpx.AsyncByteStream):
    """Chunks as a transport gives them, with an error in the middle where one is wanted."""

    def __init__(self, chunks: list[bytes], breaks: bool) -> None:
        self._chunks, self._breaks = chunks, breaks

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for chunk in self._chunks:
            await trio.lowlevel.checkpoint()
            if chunk:
                yield chunk
        await trio.lowlevel.checkpoint()
        if self._breaks:
            raise httpx.ReadError("broken")


@given(STATUSES, TYPES, BODIES, st.booleans())
async def test_any_body_ends_in_events_or_a_model_error(status: int, kind: str, chunks: list[bytes], breaks: bool) -> None:
    async def handle(request: httpx.Request) -> httpx.Response:
        await trio.lowlevel.checkpoint()
        return httpx.Response(status, headers={"content-type": kind}, stream=Body(chunks, breaks))

    events: list[ModelEvent] = []
    meter = Meter()
    async with httpx.AsyncClient(transport=httpx.MockTransport(handle)) as client:
        provider = OpenAIProvider(Endpoint("test", "http://h/v1", "m", delays=(0.0,)), client)
        failed: ModelError | None = None
        try:
            await provider.exchange(Conversation("s"), [], events.append, meter)
        except ModelError as error:
            failed = error
    if failed is not None:
        assert failed.remedy
        assert failed.code.startswith("model_")
        return
    assert status == 200
    assert isinstance(events[-1], Done)
    assert sum(isinstance(event, Done) for event in events) == 1
    assembler = Assembler(Numbering())
    for event in events:
        if isinstance(event, CallDelta):
            assembler.feed(event)
    assembler.finish(cut=events[-1].cut)
