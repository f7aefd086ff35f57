"""Any OpenAI-compatible chat completions server, streamed over httpx on trio.

Theory of operation. One exchange is at most ``1 + len(delays)`` attempts. An attempt may be repeated only while nothing of
its answer has been read: a server that cannot be reached, answers 429 or 5xx, or hangs up before the first byte. From the first
byte on an answer is never asked for again, because text and arguments were already shown and would repeat. A stream that
breaks later ends with ``Done(cut=True)``: the loop keeps what is whole and tells the model about the rest.

The process's environment decides nothing here: no proxy variables, no ``.netrc``, no certificate variables; a proxy comes from
the configuration. Redirects are not followed, so that the key goes where the configuration says and nowhere else.
"""
from __future__ import annotations

import json
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import urlsplit

import httpx
import trio

from agent.context import Conversation, openai_messages
from agent.errors import ModelError
from agent.providers.base import Done, Meter, ModelEvent
from agent.providers.chunks import bad_json, event_error, quoted, read_chunk, read_completion, reported_error
from agent.providers.secret import Secret
from agent.providers.sse import EventParser, ServerEvent, StreamError
from supervisor.errors import SettingError

_RETRIED = frozenset({429, 500, 502, 503, 504})
_MAX_ERROR_BODY = 64 * 1024  # bytes of an error's body that are read for its message
_ERROR_BODY_SECONDS = 10.0
_DRAIN_SECONDS = 0.1
_DOING = "asking the model"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where the model is, and how long to wait for it. Durations in seconds.

    ``first_byte`` is long because a local server may read a long context for minutes before it says a word; ``idle`` is the
    silence between two reads after that (keep-alive comments break it). ``max_answer`` is in bytes.
    """

    name: str
    api_base: str
    model: str
    key: Secret | None = None
    proxy: str | None = None
    connect: float = 10.0
    first_byte: float = 600.0
    idle: float = 120.0
    delays: tuple[float, ...] = (0.5, 1.5)
    max_answer: int = 64 * 1024 * 1024

    @property
    def url(self) -> str:
        return self.api_base.rstrip("/") + "/chat/completions"


class _Again(Exception):
    """This attempt failed before its first byte; ``error`` is what to say when it was the last."""

    def __init__(self, error: ModelError) -> None:
        super().__init__(str(error))
        self.error = error


@asynccontextmanager
async def open_openai(endpoint: Endpoint) -> AsyncIterator[OpenAIProvider]:
    """A provider with its connection pool, closed on the way out."""
    parts = urlsplit(endpoint.api_base)
    if parts.username or parts.password or parts.query or parts.fragment or not parts.hostname:
        raise SettingError(
            "reading apiBase", on=endpoint.name, why="it has a user, a query or a fragment, or no host",
            remedy="write it as http(s)://HOST[:PORT]/v1, and the key under apiKeyEnv or apiKeyFile",
        )
    headers = {"accept": "text/event-stream, application/json", "accept-encoding": "identity", "user-agent": "lemni"}
    if endpoint.key is not None:
        headers["authorization"] = f"Bearer {endpoint.key.reveal()}"
    # The system's certificate store, where an organisation's own authorities are; only loaded where it is needed.
    verify: ssl.SSLContext | bool = ssl.create_default_context() if parts.scheme == "https" else True
    timeout = httpx.Timeout(endpoint.connect, read=None, write=endpoint.first_byte)
    async with httpx.AsyncClient(
        headers=headers, timeout=timeout, verify=verify, trust_env=False, proxy=endpoint.proxy, follow_redirects=False
    ) as client:
        yield OpenAIProvider(endpoint, client)


class OpenAIProvider:
    """See ``providers.base.Provider``."""

    def __init__(self, endpoint: Endpoint, client: httpx.AsyncClient) -> None:
        self._endpoint = endpoint
        self._client = client

    @property
    def name(self) -> str:
        return self._endpoint.name

    async def exchange(
        self, conversation: Conversation, tools: list[dict[str, Any]], deliver: Callable[[ModelEvent], None], meter: Meter
    ) -> None:
        request: dict[str, Any] = {
            "model": self._endpoint.model, "messages": openai_messages(conversation), "stream": True,
        }
        if tools:
            request["tools"] = tools
        body = json.dumps(request, ensure_ascii=False, separators=(",", ":")).encode()
        for delay in self._endpoint.delays:
            try:
                return await self._attempt(body, deliver, meter)
            except _Again:
                await trio.sleep(delay)
        try:
            return await self._attempt(body, deliver, meter)
        except _Again as failed:
            raise failed.error from failed.__cause__

    async def _attempt(self, body: bytes, deliver: Callable[[ModelEvent], None], meter: Meter) -> None:
        meter.sent += len(body)
        content_type = {"content-type": "application/json"}
        request = self._client.build_request("POST", self._endpoint.url, content=body, headers=content_type)
        try:
            with trio.fail_after(self._endpoint.first_byte):
                response = await self._client.send(request, stream=True)
        except trio.TooSlowError:
            raise _idle(self._endpoint, self._endpoint.first_byte) from None
        except (httpx.TransportError, httpx.InvalidURL) as error:
            raise _Again(self._unreachable(error)) from error
        try:
            if response.status_code != 200:
                await self._refuse(response, meter)
            await _Reading(self._endpoint, response, deliver, meter).run()
        finally:
            with trio.CancelScope(shield=True, deadline=trio.current_time() + 1):
                await response.aclose()

    async def _refuse(self, response: httpx.Response, meter: Meter) -> None:
        """Turn a status other than 200 into an error; raises always."""
        content = bytearray()
        with trio.move_on_after(_ERROR_BODY_SECONDS):
            try:
                async with aclosing(_raw(response)) as chunks:
                    async for chunk in chunks:
                        meter.received += len(chunk)
                        content += chunk
                        if len(content) > _MAX_ERROR_BODY:
                            break
            except httpx.TransportError:
                pass  # the status alone has to do
        error = self._status_error(response, content.decode(errors="replace"))
        if response.status_code in _RETRIED:
            raise _Again(error)
        raise error

    def _status_error(self, response: httpx.Response, content: str) -> ModelError:
        status = response.status_code
        html = _is_html(response, content.encode())
        try:
            said = reported_error(json.loads(content))
        except (ValueError, RecursionError):
            said = None
        said = said or ("an HTML page" if html else quoted(content)) or "nothing more"
        if self._endpoint.key is not None:
            said = self._endpoint.key.redact(said)
        why = f"the server answered {status} {response.reason_phrase}: {said}"
        if status in (401, 403):
            code, remedy = "model_unauthorised", "check the key (apiKeyEnv or apiKeyFile) and what it may use"
        elif status in _RETRIED:
            code, remedy = "model_unavailable", "wait, or look into the model server's log"
        elif status == 404:
            code, remedy = "model_refused", "check apiBase (it usually ends in /v1) and the model's name"
        elif 300 <= status < 400 or html:
            code, remedy = "model_not_api", "check apiBase: redirects are not followed, and a web page is no model server"
        else:
            code, remedy = "model_refused", "check the model's name, and whether the context is too long for it"
        return ModelError(_DOING, on=self._endpoint.url, why=why, remedy=remedy, code=code)

    def _unreachable(self, error: Exception) -> ModelError:
        why = quoted(str(error)) or type(error).__name__
        return ModelError(
            _DOING, on=self._endpoint.url, why=why, code="model_unreachable",
            remedy="check that the model server runs and that apiBase names its address",
        )


class _Reading:
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
        async with aclosing(_raw(self._response)) as chunks:
            wait = self._endpoint.first_byte
            while not self._ended:
                try:
                    with trio.fail_after(wait):
                        chunk = await anext(chunks, None)
                except trio.TooSlowError:
                    raise _idle(self._endpoint, wait) from None
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
            raise _Again(ModelError(
                _DOING, on=self._endpoint.url, why=why, code="model_unreachable", remedy="look into the model server's log",
            )) from broken
        self._end(broken)

    async def _drain(self, chunks: AsyncGenerator[bytes, None]) -> None:
        """Read the end of the body, so that the connection can serve the next turn; a server that keeps it open is left."""
        with trio.move_on_after(_DRAIN_SECONDS):
            try:
                async for chunk in chunks:
                    self._meter.received += len(chunk)
            except httpx.TransportError:
                pass  # the answer is whole

    def _take(self, chunk: bytes) -> None:
        self._meter.received += len(chunk)
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
        if _is_html(self._response, chunk):
            raise ModelError(
                _DOING, on=self._endpoint.url, why="the server answered with an HTML page", code="model_not_api",
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


def _idle(endpoint: Endpoint, seconds: float) -> ModelError:
    return ModelError(
        _DOING, on=endpoint.url, why=f"no byte came for {seconds:g} seconds", code="model_idle",
        remedy="look into the model server's log: it may be out of memory, or stuck on a long context",
    )


def _is_html(response: httpx.Response, start: bytes) -> bool:
    return "html" in response.headers.get("content-type", "").lower() or start.lstrip().startswith(b"<")


def _raw(response: httpx.Response) -> AsyncGenerator[bytes, None]:
    """The body as it comes. httpx types its generator as an iterator, but one that is left early must be closed."""
    return cast("AsyncGenerator[bytes, None]", response.aiter_raw())
