"""Input of every kind from a model server, over a real socket: provider and loop, with a session in memory behind them."""
from __future__ import annotations

import json
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio

from agent.calls import CallDelta
from agent.context import Conversation
from agent.errors import ModelError
from agent.loop import Ended, Ending, Loop, SilentWatcher
from agent.providers.base import Meter, ModelEvent, TextDelta, Usage
from agent.providers.endpoint import Endpoint
from agent.providers.openai import OpenAIProvider, open_openai
from agent.providers.secret import Secret
from agent.tools.catalogue import Catalogue
from supervisor.errors import SettingError
from supervisor.types import TOOL_OF
from support.fake_session import FakeSession
from support.model_server import (
    DONE,
    ModelServer,
    Reply,
    bytewise,
    call,
    calls,
    chunk,
    event,
    failure,
    finished,
    fragment,
    self_signed,
    sse,
    text,
)

KEY = "sk-secret-0123456789"
READ = ("Read", {"path": "a"})
OK = sse(text("All right."))


@asynccontextmanager
async def talking(server: ModelServer, **more: Any) -> AsyncIterator[OpenAIProvider]:
    endpoint = Endpoint("test", server.url, "m", Secret(KEY), delays=(0.0, 0.0))
    async with open_openai(replace(endpoint, **more)) as provider:
        yield provider


async def converse(*replies: Reply, **more: Any) -> tuple[Ended, FakeSession, ModelServer]:
    """One prompt against these replies."""
    session = FakeSession()
    with ModelServer(*replies) as server:
        async with talking(server, **more) as provider:
            ended = await Loop(session, provider, Catalogue(tuple(TOOL_OF.values())), SilentWatcher()).run("go")
    return ended, session, server


def submitted(session: FakeSession) -> list[tuple[str, str]]:
    return session.said("submit")  # type: ignore[return-value]


def results(server: ModelServer, request: int = 1) -> list[dict[str, Any]]:
    messages = server.requests[request].body["messages"]
    return [json.loads(message["content"]) for message in messages if message["role"] == "tool"]


async def fails(*replies: Reply, **more: Any) -> tuple[ModelError, ModelServer]:
    ended, session, server = await converse(*replies, **more)
    assert ended.ending is Ending.ERROR
    assert isinstance(ended.error, ModelError)
    assert ended.error.remedy
    assert KEY not in str(ended.error)
    assert not session.said("done")
    return ended.error, server


async def test_a_conversation() -> None:
    ended, session, server = await converse(calls(call(*READ)), OK)
    assert (ended.ending, ended.answer, ended.turns) == (Ending.DONE, "All right.", 2)
    first, second = server.requests
    assert (first.method, first.path) == ("POST", "/v1/chat/completions")
    assert first.headers["authorization"] == f"Bearer {KEY}"
    assert first.body["stream"] is True
    assert first.body["model"] == "m"
    assert [tool["function"]["name"] for tool in first.body["tools"]] == list(TOOL_OF.values())
    assert [message["role"] for message in second.body["messages"]] == ["system", "user", "assistant", "tool"]
    assert "a" in results(server)[0]["untrusted"]
    assert server.connections == 1  # the second turn reuses the connection
    assert session.said("exchange")


async def test_bytes_are_counted() -> None:
    reply = sse(text("All right."))
    ended, session, server = await converse(reply)
    assert (ended.sent, ended.received) == (server.requests[0].size, sum(len(piece) for piece in reply.pieces))
    assert session.said("exchange") == [(ended.sent, ended.received)]


@pytest.mark.parametrize("reply", [calls(call(*READ)), calls(call(*READ, size=1)), bytewise(calls(call(*READ)))])
async def test_a_call_in_any_pieces(reply: Reply) -> None:
    ended, session, _ = await converse(reply, OK)
    assert ended.ending is Ending.DONE
    assert submitted(session) == [("Read", '{"path": "a"}')]


TWO = [("Read", '{"path": "a"}'), ("List", '{"path": "b"}')]


@pytest.mark.parametrize(
    "parts",
    [
        pytest.param(
            [fragment("", index=0, id="x", name="Read"), fragment("", index=1, id="y", name="List"),
             fragment('{"path"', index=0), fragment('{"pat', index=1),
             fragment(': "a"}', index=0), fragment('h": "b"}', index=1)],
            id="interleaved",
        ),
        pytest.param(
            [fragment("", index=0, name="Read"), fragment("", index=1, name="List"),
             fragment('{"path": "a"}', index=0), fragment('{"path": "b"}', index=1)],
            id="no ids",
        ),
        pytest.param(
            [fragment('{"path": "a"}', index=None, id="x", name="Read"),
             fragment('{"path": "b"}', index=None, id="y", name="List")],
            id="no indexes",
        ),
        pytest.param(
            [fragment('{"path": "a"}', index=None, name="Read"), fragment('{"path": "b"}', index=None, name="List")],
            id="no indexes and no ids",
        ),
        pytest.param(
            [fragment('{"path": "a"}', index=0, id="x", name="Read"), fragment('{"path": "b"}', index=0, id="x", name="List")],
            id="all numbered 0, one id",
        ),
        pytest.param(
            [chunk({"tool_calls": [{"index": 0, "id": "x", "function": {"name": "Read", "arguments": {"path": "a"}}},
                                   {"index": 1, "id": "y", "function": {"name": "List", "arguments": {"path": "b"}}}]})],
            id="whole, arguments as objects",
        ),
    ],
)
async def test_two_calls_are_two_calls(parts: list[bytes]) -> None:
    ended, session, server = await converse(bytewise(calls(parts)), OK)
    assert ended.ending is Ending.DONE
    assert submitted(session) == TWO
    assert len(session.said("done")) == 2
    sent = server.requests[1].body["messages"]
    assert [c["id"] for c in sent[2]["tool_calls"]] == [m["tool_call_id"] for m in sent[3:]]


@pytest.mark.parametrize("end", ["cut", "reset"])
async def test_a_stream_cut_in_the_middle_of_a_call_is_an_error_for_the_model(end: str) -> None:
    half = Reply(call("Bash", {"command": "rm -rf build"})[:3], end=end)
    ended, session, server = await converse(half, calls(call("Bash", {"command": "true"})), OK)
    assert ended.ending is Ending.DONE
    assert [kind for kind, _ in session.log if kind in ("errored", "done")] == ["errored", "done"]
    assert results(server)[0]["reason"] == "malformed"
    assert "middle of this call" in results(server)[0]["notice"]
    assert len(server.requests) == 3  # nothing was asked for twice
    assert submitted(session)[1] == ("Bash", '{"command": "true"}')


async def test_a_call_that_was_whole_before_the_cut_is_kept() -> None:
    ended, session, _ = await converse(Reply((*call(*READ), *call("Bash", '{"comm', index=1)), end="cut"), OK)
    assert ended.ending is Ending.DONE
    assert [kind for kind, _ in session.log if kind in ("errored", "done")] == ["done", "errored"]


@pytest.mark.parametrize("raw", ['{"path": ', "{}}", "", "null", '{"path": "a"} and more', '{"path": "a", "path": "b"}'])
async def test_malformed_arguments_are_an_error_for_the_model(raw: str) -> None:
    ended, session, server = await converse(calls(call("Read", raw)), OK)
    assert ended.ending is Ending.DONE
    assert not session.said("done")
    assert results(server)[0]["reason"] == "malformed"
    for past in server.requests[1].body["messages"][2]["tool_calls"]:  # strict servers parse the history
        assert isinstance(json.loads(past["function"]["arguments"]), dict)


async def test_an_unknown_tool_is_an_error_for_the_model() -> None:
    ended, _, server = await converse(calls(call("Launch missiles!", {})), OK)
    assert ended.ending is Ending.DONE
    assert results(server)[0]["reason"] == "unknown_tool"
    assert server.requests[1].body["messages"][2]["tool_calls"][0]["function"]["name"] == "Launch_missiles_"


@pytest.mark.parametrize(
    "reply",
    [
        pytest.param(sse(text("All right."), done=False), id="no [DONE]"),
        pytest.param(sse(text("All right.", finish=None)), id="no finish reason"),
        pytest.param(sse(text("All right."), end="close"), id="ended by the connection"),
        pytest.param(sse(text("All right."), end="hang"), id="connection left open after [DONE]"),
        pytest.param(sse((b": keep-alive\n\n", b":\n\n", b"\n"), text("All right.")), id="keep-alive comments"),
        pytest.param(sse(text("All right."), (event({"choices": [], "usage": {"prompt_tokens": 9}}),)), id="usage chunk"),
        pytest.param(sse((b"event: message\nid: 7\nretry: 10\n",), text("All right.")), id="other fields"),
        pytest.param(sse(tuple(p.replace(b"\n", b"\r\n") for p in text("All right."))), id="CRLF"),
        pytest.param(Reply((*text("All right.")[:-1], text("All right.")[-1].rstrip())), id="no blank line at the end"),
        pytest.param(sse((chunk({"reasoning_content": "Let me think."}),), text("All right.")), id="reasoning apart"),
        pytest.param(sse(text("All right."),), id="plain"),
        pytest.param(
            Reply((json.dumps({"choices": [{"message": {"content": "All right."}, "finish_reason": "stop"}]}).encode(),),
                  content_type="application/json"),
            id="a server that does not stream",
        ),
    ],
)
async def test_ways_to_answer(reply: Reply) -> None:
    ended, _, _ = await converse(reply)
    assert (ended.ending, ended.answer) == (Ending.DONE, "All right.")
    ended, _, _ = await converse(bytewise(reply))
    assert ended.answer == "All right."


@pytest.mark.parametrize(
    ("first", "code"),
    [
        (failure("500 Internal Server Error", '{"error": {"message": "boom"}}'), "model_unavailable"),
        (failure("503 Service Unavailable", "loading", "text/plain"), "model_unavailable"),
        (failure("429 Too Many Requests", '{"error": "slow down"}'), "model_unavailable"),
        (Reply(before_head="drop"), "model_unreachable"),
        (Reply(end="cut"), "model_unreachable"),
    ],
)
async def test_what_fails_before_the_first_byte_is_asked_again_a_few_times(first: Reply, code: str) -> None:
    ended, _, server = await converse(first, OK)
    assert (ended.ending, ended.answer) == (Ending.DONE, "All right.")
    assert len(server.requests) == 2
    assert ended.sent == 2 * server.requests[0].size
    error, server = await fails(*[first] * 5)
    assert error.code == code
    assert len(server.requests) == 3


@pytest.mark.parametrize(
    ("reply", "code", "says"),
    [
        (failure("401 Unauthorized", f'{{"error": {{"message": "bad key {KEY}"}}}}'), "model_unauthorised", "bad key [key]"),
        (failure("403 Forbidden", "no", "text/plain"), "model_unauthorised", "403"),
        (failure("400 Bad Request", '{"error": {"message": "context is too long"}}'), "model_refused", "context is too long"),
        (failure("404 Not Found", '{"detail": "Not Found"}'), "model_refused", "Not Found"),
        (failure("404 Not Found", "<html>\n<title>nginx</title>", "text/html"), "model_refused", "an HTML page"),
        (failure("200 OK", "<!doctype html><title>Sign in</title>", "text/html"), "model_not_api", "HTML"),
        (failure("200 OK", "  <html>", "text/event-stream"), "model_not_api", "HTML"),
        (Reply(status="302 Found", headers=("location: http://127.0.0.1:1/",)), "model_not_api", "302"),
        (failure("200 OK", '{"object": "list", "data": []}'), "model_bad_json", "no message"),
        (failure("200 OK", '{"choices": [{"mess'), "model_bad_json", "not JSON"),
        (failure("200 OK", '["a"]'), "model_bad_json", "no JSON object"),
        (sse((b"data: {broken\n\n",)), "model_bad_json", "not JSON"),
        (sse((b"data: \xff\n\n",)), "model_bad_json", "UTF-8"),
        (sse(text("Half", finish=None), (event({"error": {"message": "no memory"}}),)), "model_error_event", "no memory"),
        (sse((b'event: error\ndata: {"message": "out of memory"}\n\n',)), "model_error_event", "out of memory"),
        (Reply(text("Half an answer", finish=None), end="cut"), "model_cut", "broke off"),
        (sse(text("Half an answer", finish="length")), "model_truncated", "token limit"),
        (sse(text("Well", finish="content_filter")), "model_filtered", "filter"),
        (Reply((b"garbage\n" * 3,)), "model_cut", "broke off"),
    ],
)
async def test_what_is_not_asked_again(reply: Reply, code: str, says: str) -> None:
    error, server = await fails(reply, OK)
    assert error.code == code
    assert says in str(error)
    assert len(server.requests) == 1


async def test_nothing_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    endpoint = Endpoint("test", f"http://127.0.0.1:{port}/v1", "m", delays=(0.0,))
    async with open_openai(endpoint) as provider:
        with pytest.raises(ModelError) as caught:
            await provider.exchange(Conversation("s"), [], print, Meter())
    assert caught.value.code == "model_unreachable"
    assert str(port) in str(caught.value)
    assert str(caught.value) == f"asking the model ({endpoint.url}): connection refused, ECONNREFUSED"
    assert caught.value.remedy is not None


@pytest.mark.needs("openssl")
async def test_a_certificate_that_nobody_vouches_for(tmp_path: Path) -> None:
    with ModelServer(OK, OK, OK, tls=self_signed(tmp_path)) as server:
        endpoint = Endpoint("test", server.url, "m", Secret(KEY), delays=(0.0,))
        async with open_openai(endpoint) as provider:
            with pytest.raises(ModelError) as caught:
                await provider.exchange(Conversation("s"), [], print, Meter())
    assert caught.value.code == "model_unreachable"
    assert "certificate" in str(caught.value.remedy)
    assert server.requests == []


@pytest.mark.needs("openssl")
async def test_a_certificate_of_the_systems_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = self_signed(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(files[0]))
    with ModelServer(OK, tls=files) as server:
        async with open_openai(Endpoint("test", server.url, "m", Secret(KEY), delays=())) as provider:
            await provider.exchange(Conversation("s"), [], lambda event: None, Meter())
    assert len(server.requests) == 1


@pytest.mark.parametrize("reply", [Reply(before_head="hang"), Reply(end="hang")])
async def test_silence_before_the_first_byte_ends(reply: Reply) -> None:
    error, server = await fails(reply, first_byte=0.1)
    assert error.code == "model_idle"
    assert len(server.requests) == 1


async def test_silence_after_the_first_byte_ends() -> None:
    error, _ = await fails(Reply(text("Half", finish=None), end="hang"), idle=0.1)
    assert error.code == "model_idle"


@pytest.mark.parametrize("reply", [Reply(before_head="hang"), Reply(end="hang"), Reply((b": alive\n\n",) * 3, end="hang")])
async def test_a_server_that_hung_until_the_minutes_end_is_not_waited_for_again(
    reply: Reply, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent.loop.LATE_WORD_SECONDS", 0.3)
    session, began = FakeSession(minutes=0.3), trio.current_time()
    with ModelServer(reply, reply) as server:
        async with talking(server) as provider:
            ended = await Loop(session, provider, Catalogue(tuple(TOOL_OF.values())), SilentWatcher()).run("go")
    assert (ended.ending, ended.answer) == (Ending.BOUND, "")
    assert trio.current_time() - began < 10  # 600 to the first byte otherwise
    assert len(server.requests) == 2


async def test_an_answer_without_end_is_bounded() -> None:
    flood = Reply((b": " + b"x" * 100_000 + b"\n\n",) * 30)
    error, _ = await fails(flood, max_answer=1_000_000)
    assert error.code == "model_too_long"


async def test_an_interruption_closes_the_stream() -> None:
    class Interrupting(SilentWatcher):
        interrupt: Callable[[], None]

        def text(self, fragment: str) -> None:
            self.interrupt()

    watcher, session = Interrupting(), FakeSession()
    with ModelServer(Reply(text("Half", finish=None), end="hang")) as server:
        async with talking(server) as provider:
            loop = Loop(session, provider, Catalogue(("Read",)), watcher)
            watcher.interrupt = loop.interrupt
            with trio.fail_after(10):
                ended = await loop.run("go")
    assert (ended.ending, ended.answer) == (Ending.INTERRUPTED, "")
    assert ended.received > 0
    assert session.said("exchange") == [(ended.sent, ended.received)]


async def test_the_environment_chooses_no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    ended, _, _ = await converse(OK)
    assert ended.ending is Ending.DONE


async def test_a_proxy_of_the_configuration_is_used() -> None:
    with ModelServer(OK) as proxy:
        endpoint = Endpoint("test", "http://model.invalid/v1", "m", proxy=proxy.url.removesuffix("/v1"))
        events: list[ModelEvent] = []
        async with open_openai(endpoint) as provider:
            await provider.exchange(Conversation("s"), [], events.append, Meter())
    assert proxy.requests[0].path == "http://model.invalid/v1/chat/completions"
    assert "".join(e.text for e in events if isinstance(e, TextDelta)) == "All right."


@pytest.mark.parametrize(
    "base",
    ["http://user:pass@h/v1", "http://h/v1?x=1", "http:///v1", "http://[::1", "http://h:99999/v1", "ftp://h/", "x"],
)
async def test_an_address_that_is_none(base: str) -> None:
    with pytest.raises(SettingError):
        async with open_openai(Endpoint("test", base, "m")):
            pass


async def test_usage_is_read() -> None:
    reply = Reply((*finished(call(*READ), done=False), event({"choices": [], "usage": {"prompt_tokens": 5}}), DONE))
    events: list[ModelEvent] = []
    with ModelServer(reply) as server:
        async with talking(server) as provider:
            await provider.exchange(Conversation("s"), [], events.append, Meter())
    assert Usage(5, 0) in events
    assert len([e for e in events if isinstance(e, CallDelta)]) > 1


async def test_a_model_that_repeats_itself_is_stopped() -> None:
    ended, session, server = await converse(*[calls(call("Bash", {"command": "echo x >> log"}))] * 9)
    assert ended.ending is Ending.LOOP
    assert len(session.said("done")) == 3
    assert len(server.requests) == 4
