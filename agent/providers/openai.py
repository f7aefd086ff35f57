"""Any OpenAI-compatible chat completions server, streamed over httpx on trio.

Theory of operation. One exchange is at most ``1 + len(delays)`` attempts. An attempt may be repeated only while nothing of
its answer has been read: a server that cannot be reached, answers 429 or 5xx, or hangs up before the first byte. From the first
byte on an answer is never asked for again, because text and arguments were already shown and would repeat. A stream that
breaks later ends with ``Done(cut=True)``: the loop keeps what is whole and tells the model about the rest.

The process's environment decides nothing here: no proxy variables and no ``.netrc``; a proxy comes from the configuration.
Redirects are not followed, so that the key goes where the configuration says and nowhere else.
"""
from __future__ import annotations

import errno
import json
import os
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import httpx
import trio

from agent.context import Conversation, openai_messages
from agent.errors import ModelError
from agent.providers.answer import DOING, Again, Reading, idle, is_html, open_body
from agent.providers.base import Meter, ModelEvent
from agent.providers.chunks import quoted, reported_error
from agent.providers.endpoint import Endpoint

_RETRIED = frozenset({429, 500, 502, 503, 504})
_MAX_ERROR_BODY = 64 * 1024  # bytes of an error's body that are read for its message
_ERROR_BODY_SECONDS = 10.0


@asynccontextmanager
async def open_openai(endpoint: Endpoint) -> AsyncIterator[OpenAIProvider]:
    """A provider with its connection pool, closed on the way out."""
    scheme = endpoint.checked_scheme()
    headers = {"accept": "text/event-stream, application/json", "accept-encoding": "identity", "user-agent": "lemni"}
    if endpoint.key is not None:
        headers["authorization"] = f"Bearer {endpoint.key.reveal()}"
    # The system's certificate store, where an organisation's own authorities are; only loaded where it is needed.
    verify: ssl.SSLContext | bool = ssl.create_default_context() if scheme == "https" else True
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
            except Again:
                await trio.sleep(delay)
        try:
            return await self._attempt(body, deliver, meter)
        except Again as failed:
            raise failed.error from failed.__cause__

    async def _attempt(self, body: bytes, deliver: Callable[[ModelEvent], None], meter: Meter) -> None:
        meter.send(len(body))
        content_type = {"content-type": "application/json"}
        request = self._client.build_request("POST", self._endpoint.url, content=body, headers=content_type)
        try:
            with trio.fail_after(self._endpoint.first_byte):
                response = await self._client.send(request, stream=True)
        except trio.TooSlowError:
            raise idle(self._endpoint, self._endpoint.first_byte) from None
        except (httpx.TransportError, httpx.InvalidURL) as error:
            raise Again(self._unreachable(error)) from error
        try:
            if response.status_code != 200:
                await self._refuse(response, meter)
            await Reading(self._endpoint, response, deliver, meter).run()
        finally:
            with trio.CancelScope(shield=True, deadline=trio.current_time() + 1):
                await response.aclose()

    async def _refuse(self, response: httpx.Response, meter: Meter) -> None:
        """Turn a status other than 200 into an error; raises always."""
        content = bytearray()
        with trio.move_on_after(_ERROR_BODY_SECONDS), suppress(httpx.TransportError):  # else the status alone has to do
            async with open_body(response) as chunks:
                async for chunk in chunks:
                    meter.receive(len(chunk))
                    content += chunk
                    if len(content) > _MAX_ERROR_BODY:
                        break
        error = self._status_error(response, content.decode(errors="replace"))
        if response.status_code in _RETRIED:
            raise Again(error)
        raise error

    def _status_error(self, response: httpx.Response, content: str) -> ModelError:
        status = response.status_code
        html = is_html(response, content.encode())
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
        return ModelError(DOING, on=self._endpoint.url, why=why, remedy=remedy, code=code)

    def _unreachable(self, error: Exception) -> ModelError:
        root = _root(error)
        why, number = quoted(str(root)) or type(root).__name__, None
        if isinstance(root, OSError) and not isinstance(root, ssl.SSLError):  # which counts by numbers of its own
            number = root.errno if root.errno in errno.errorcode else None
            why = os.strerror(number).lower() if number is not None else quoted(root.strerror or "") or why
        remedy = "check that the model server runs and that apiBase names its address"
        if isinstance(root, ssl.SSLCertVerificationError):
            remedy = "install the certificate of the server's authority in the system's store (update-ca-certificates)"
        return ModelError(DOING, on=self._endpoint.url, why=why, errno=number, code="model_unreachable", remedy=remedy)


def _root(error: BaseException) -> BaseException:
    """The first error of a chain: the HTTP layers wrap the system's word, and some say nothing themselves. Of several attempts
    at several addresses of one name, the first stands for all."""
    while True:
        below = error.exceptions[0] if isinstance(error, BaseExceptionGroup) else error.__cause__ or error.__context__
        if below is None:
            return error
        error = below
