"""A real model server for tests: a listening socket, HTTP/1.1 written by hand, answers played as scripted, faults included.

By hand because the faults are the point: an HTTP library would not send half a chunk. Each request takes the next reply of the
script, whatever connection it comes on. ``requests`` is what was received, for the tests to look at.

    with ModelServer(sse(text("Hello."))) as server:
        ...  # apiBase: server.url
        server.requests[0].body["messages"]
"""
from __future__ import annotations

import contextlib
import json
import re
import socket
import ssl
import struct
import subprocess
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

_PATIENCE = 30.0  # seconds after which a thread of ours gives up rather than hang the suite


@dataclass(frozen=True)
class Request:
    """One received request. ``body`` is its JSON; header names are in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: Any
    size: int


@dataclass(frozen=True)
class Reply:
    """One answer. ``pieces`` are sent one by one, each as one chunk. ``end`` is what happens after them:

    "end": the last chunk, and the connection stays usable; "cut": closed in the middle of the body; "reset": the same, as a
    TCP reset; "hang": open and silent until the server stops; "close": no chunks at all, the body ends with the connection.
    """

    pieces: tuple[bytes, ...] = ()
    status: str = "200 OK"
    content_type: str = "text/event-stream"
    headers: tuple[str, ...] = ()
    end: str = "end"
    before_head: str = "go"  # "go", "hang" (silent before the first byte), "drop" (closes without an answer)


def event(record: object) -> bytes:
    """One server-sent event with a JSON body."""
    return b"data: " + json.dumps(record).encode() + b"\n\n"


DONE = b"data: [DONE]\n\n"


def chunk(delta: Mapping[str, Any], finish: str | None = None) -> bytes:
    """One chat completions chunk."""
    return event({
        "id": "x", "object": "chat.completion.chunk", "model": "m",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
    })


def text(words: str, finish: str | None = "stop") -> tuple[bytes, ...]:
    """An answer in words, one chunk a word, ended by ``finish`` (None: no finish reason at all)."""
    pieces = re.findall(r"\S*\s*", words)
    parts = [chunk({"role": "assistant", "content": ""}), *(chunk({"content": piece}) for piece in pieces if piece)]
    return (*parts, *([chunk({}, finish)] if finish else []))


def fragment(
    arguments: str | None = None, *, index: int | None = 0, id: str | None = None, name: str | None = None
) -> bytes:
    """One chunk with a piece of a tool call; what is None is left out of the JSON."""
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    call = {key: value for key, value in (("index", index), ("id", id)) if value is not None} | {"function": function}
    return chunk({"tool_calls": [call]})


def call(tool: str, arguments: object, *, index: int | None = 0, id: str | None = "call_a", size: int = 7) -> tuple[bytes, ...]:
    """The chunks of one call: its head, then its arguments in pieces of ``size`` characters. A text is sent as it stands."""
    raw = arguments if isinstance(arguments, str) else json.dumps(arguments)
    pieces = [raw[at : at + size] for at in range(0, len(raw), size)]
    return (fragment("", index=index, id=id, name=tool), *(fragment(piece, index=index) for piece in pieces))


def finished(*parts: Iterable[bytes], finish: str = "tool_calls", done: bool = True) -> tuple[bytes, ...]:
    """Parts of a stream with its end."""
    return (*(piece for part in parts for piece in part), chunk({}, finish), *([DONE] if done else []))


def sse(*parts: Iterable[bytes], done: bool = True, end: str = "end") -> Reply:
    """A reply of these pieces, ended by ``[DONE]``."""
    return Reply((*(piece for part in parts for piece in part), *([DONE] if done else [])), end=end)


def calls(*parts: Iterable[bytes]) -> Reply:
    """A reply that asks for these calls."""
    return Reply(finished(*parts))


def bytewise(reply: Reply) -> Reply:
    """The same reply, one byte a chunk."""
    whole = b"".join(reply.pieces)
    return replace(reply, pieces=tuple(whole[at : at + 1] for at in range(len(whole))))


def failure(status: str, body: str, content_type: str = "application/json") -> Reply:
    return Reply((body.encode(),), status, content_type)


def self_signed(directory: Path) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1 that vouches for itself, and its key."""
    certificate, key = directory / "certificate.pem", directory / "key.pem"
    subject = ("-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1")
    new = ("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2")
    subprocess.run([*new, *subject, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    return certificate, key


class ModelServer:
    """Plays ``replies``; a request beyond them is answered 500 with the words "no more replies"."""

    def __init__(self, *replies: Reply, tls: tuple[Path, Path] | None = None) -> None:
        self.replies = replies
        self.requests: list[Request] = []
        self.connections = 0
        self._next = 0
        self._tls: ssl.SSLContext | None = None
        if tls is not None:
            self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._tls.load_cert_chain(*tls)
        self._lock = threading.Lock()
        self._came = threading.Condition(self._lock)
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []
        self._sockets: list[socket.socket] = []

    def __enter__(self) -> Self:
        self._listener = socket.create_server(("127.0.0.1", 0))
        accepting = threading.Thread(target=self._accept, name="model-server")
        self._threads.append(accepting)
        accepting.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stopping.set()
        self._listener.shutdown(socket.SHUT_RDWR)  # wakes the accepting thread
        with self._lock:
            for connection in self._sockets:
                with contextlib.suppress(OSError):  # the peer may have been faster
                    connection.shutdown(socket.SHUT_RDWR)
        for thread in list(self._threads):
            thread.join(_PATIENCE)
        self._listener.close()

    @property
    def url(self) -> str:
        return f"http{'s' if self._tls else ''}://127.0.0.1:{self._listener.getsockname()[1]}/v1"

    def wait_for_requests(self, number: int) -> None:
        """Block until so many requests have come."""
        with self._came:
            assert self._came.wait_for(lambda: len(self.requests) >= number, _PATIENCE)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            connection.settimeout(_PATIENCE)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            thread = threading.Thread(target=self._serve, args=(connection,), name="model-server-connection")
            with self._lock:
                self.connections += 1
                self._sockets.append(connection)
                self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        raw = connection
        try:
            if self._tls is not None:
                connection = self._tls.wrap_socket(connection, server_side=True)
            with connection, connection.makefile("rb") as reader:
                while (request := self._read(reader)) is not None:
                    with self._lock:
                        self.requests.append(request)
                        reply = self.replies[self._next] if self._next < len(self.replies) else _NO_MORE
                        self._next += 1
                        self._came.notify_all()
                    if not self._answer(connection, reply):
                        return
        except OSError:
            pass  # the client hung up, or we are stopping
        finally:
            with self._lock:
                self._sockets.remove(raw)
            raw.close()

    @staticmethod
    def _read(reader: Any) -> Request | None:
        line = reader.readline()
        if not line:
            return None
        method, path, _ = line.decode().split(" ", 2)
        headers: dict[str, str] = {}
        while (header := reader.readline()) not in (b"\r\n", b""):
            name, _, value = header.decode().partition(":")
            headers[name.strip().lower()] = value.strip()
        body = reader.read(int(headers.get("content-length", "0")))
        return Request(method, path, headers, json.loads(body) if body else None, len(body))

    def _answer(self, connection: socket.socket, reply: Reply) -> bool:
        """Play one reply; whether the connection serves further requests."""
        if reply.before_head == "hang":
            self._stopping.wait(_PATIENCE)
        if reply.before_head != "go":
            return False
        framed = reply.end != "close"
        head = [
            f"HTTP/1.1 {reply.status}", f"content-type: {reply.content_type}", *reply.headers,
            "transfer-encoding: chunked" if framed else "connection: close",
        ]
        connection.sendall("\r\n".join(head).encode() + b"\r\n\r\n")
        for piece in reply.pieces:
            connection.sendall(b"%x\r\n%s\r\n" % (len(piece), piece) if framed else piece)
        if reply.end == "end":
            connection.sendall(b"0\r\n\r\n")
        elif reply.end == "hang":
            self._stopping.wait(_PATIENCE)
        elif reply.end == "reset":
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        return reply.end == "end"


_NO_MORE = failure("500 Internal Server Error", '{"error": {"message": "no more replies"}}')
