"""The reading of one streamed answer: from the first bytes, which say what kind of answer it is, to its end or its break.

Everything here happens after the server accepted the request; whether to ask again is ``openai``'s decision, and only
``Again`` allows it.
"""
from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import httpx
import trio

from agent.errors import ModelError
from agent.providers.base import Done, Meter, ModelEvent
from agent.providers.chunks import bad_json, event_error, quoted, read_chunk, read_completion
from agent.providers.endpoint import Endpoint
from agent.providers.sse import EventParser, ServerEvent, StreamError

DOING = "asking the model"
_DRAIN_SECONDS = 0.1


class Again(Exception):
    """This attempt failed before its first byte; ``error`` is what to say when it was the last."""

    def __init__(self, error: ModelError) -> None:
        super().__init__(str(error))
        self.error = error


class Reading:
    """The reading of one answer, from its first byte to its end."""

    def __init__(
        self, endpoint: Endpoint, response: httpx.Response, deliver: Callable[[ModelEvent], None], meter: Meter
    ) -> None:
        self._endpoint = endpoint
        self._response = response
        self._deliver = deliver
        self._meter = meter
        self._parser = EventParser()
        self._whole: bytearray | None = None  # the body of a server that does not stream
        self._read = 0
        self._looked = False
        self._finish: str | None = None  # the server's reason, once it has given one
        self._ended = False  # [DONE] came

    async def run(self) -> None:
        broken: Exception | None = None
        async with open_body(self._response) as chunks:
            wait = self._endpoint.first_byte
            while not self._ended:
                try:
                    with trio.fail_after(wait):
                        chunk = await anext(chunks, None)
                except trio.TooSlowError:
                    raise idle(self._endpoint, wait) from None
                except httpx.TransportError as error:
                    broken = error
                    break
                if chunk is None:
                    break
                wait = self._endpoint.idle
                self._take(chunk)
            if self._ended:
                await self._drain(chunks)
        if self._read == 0:
            why = f"the server closed the connection without an answer{': ' + quoted(str(broken)) if broken else ''}"
            raise Again(ModelError(
                DOING, on=self._endpoint.url, why=why, code="model_unreachable", remedy="look into the model server's log",
            )) from broken
        self._end(broken)

    async def _drain(self, chunks: AsyncIterator[bytes]) -> None:
        """Read the end of the body, so that the connection can serve the next turn; a server that keeps it open is left."""
        with trio.move_on_after(_DRAIN_SECONDS), suppress(httpx.TransportError):  # the answer is whole either way
            async for chunk in chunks:
                self._meter.receive(len(chunk))

    def _take(self, chunk: bytes) -> None:
        self._meter.receive(len(chunk))
        if not self._looked:
            self._look(chunk)
        self._read += len(chunk)
        if self._read > self._endpoint.max_answer:
            raise ModelError(
                "reading the model's answer", why=f"it is longer than {self._endpoint.max_answer} bytes",
                code="model_too_long", remedy="look into the model server's log: no answer is meant to be that long",
            )
        if self._whole is not None:
            self._whole += chunk
            return
        try:
            for event in self._parser.feed(chunk):
                self._event(event)
                if self._ended:
                    return
        except StreamError as error:
            raise bad_json(str(error)) from None

    def _look(self, chunk: bytes) -> None:
        """Judge by the first bytes what kind of answer it is: servers' content types are less reliable than their bodies."""
        if is_html(self._response, chunk):
            raise ModelError(
                DOING, on=self._endpoint.url, why="the server answered with an HTML page", code="model_not_api",
                remedy="check apiBase: it usually ends in /v1; a login page of a proxy answers like this too",
            )
        start = chunk.lstrip()
        self._looked = bool(start)
        if start.startswith((b"{", b"[")):
            self._whole = bytearray()

    def _event(self, event: ServerEvent) -> None:
        if event.data.strip() == "[DONE]":
            self._ended = True
            return
        if event.kind == "error":
            raise event_error(event.data)
        self._deliver_all(read_chunk(event.data))

    def _deliver_all(self, events: list[ModelEvent]) -> None:
        for event in events:
            if isinstance(event, Done):
                self._finish = event.finish  # held back: usage may follow it
            else:
                self._deliver(event)

    def _end(self, broken: Exception | None) -> None:
        if self._whole is not None:
            if broken is not None:
                raise bad_json(f"the connection broke in the middle of it: {quoted(str(broken))}") from broken
            try:
                text = self._whole.decode()
            except UnicodeDecodeError:
                raise bad_json("it is not UTF-8") from None
            self._deliver_all(read_completion(text))
            self._deliver(Done(self._finish or ""))
            return
        if not self._ended and broken is None:
            self._held_back()
        self._deliver(Done(self._finish or "", cut=not self._ended and self._finish is None))

    def _held_back(self) -> None:
        """Some servers do not send the blank line after their last event; the event counts if it is whole."""
        try:
            event = self._parser.finish()
            if event is not None:
                self._event(event)
        except StreamError:
            return
        except ModelError as error:
            if error.code != "model_bad_json":
                raise


def idle(endpoint: Endpoint, seconds: float) -> ModelError:
    return ModelError(
        DOING, on=endpoint.url, why=f"no byte came for {seconds:g} seconds", code="model_idle",
        remedy="look into the model server's log: it may be out of memory, or stuck on a long context",
    )


def is_html(response: httpx.Response, start: bytes) -> bool:
    return "html" in response.headers.get("content-type", "").lower() or start.lstrip().startswith(b"<")


@asynccontextmanager
async def open_body(response: httpx.Response) -> AsyncIterator[AsyncIterator[bytes]]:
    """The body as it comes, which may be left before its end.

    httpx nests asynchronous generators, and closing the outermost leaves the inner ones to the garbage collector. A read that
    is cancelled where it waits for the socket ends them all, from the inside; what is buffered before that is dropped.
    """
    chunks = response.aiter_raw()
    try:
        yield chunks
    finally:
        with trio.CancelScope() as scope, suppress(httpx.TransportError):
            scope.cancel()
            async for _ in chunks:
                pass
