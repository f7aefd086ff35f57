"""The supervisor's end of the control channel: requests out, replies to whoever waits for them.

One task reads (``serve``); commands wait for their own records. A channel that ends, or that says what the protocol does not
know, is broken for good: everybody who waits is told, and the sandbox is over. What init says is data of a process beside
foreign code, so it is decoded strictly and never trusted for more than the end of a command.
"""
from __future__ import annotations

import os
import select
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import trio

from supervisor.errors import ChannelBroken
from supervisor.sandbox import launch, wire
from supervisor.sandbox.wire import (
    Exited,
    Failed,
    Gone,
    Handed,
    Killed,
    Ready,
    Refused,
    Request,
    RunFailed,
    Signalled,
    Started,
)

READY_MS = 10  # an idle machine takes 1 to 3 ms for all of a plan; waiting for that here spares turns of the loop
_RECORD_MAX = 4096
_FDS = socket.CMSG_SPACE(4 * 4)


@dataclass(slots=True)
class Pending:
    """One command that init was asked to run. ``end`` is how its first process ended; ``gone`` that none of it is left."""

    number: int
    end: Exited | RunFailed | None = None
    gone: bool = False
    ended: trio.Event = field(default_factory=trio.Event)  # the first process ended, or everything did
    vanished: trio.Event = field(default_factory=trio.Event)


class Channel:
    """The channel of one sandbox; owns the descriptor. ``broken`` is set for ever once it ended."""

    def __init__(self, descriptor: int) -> None:
        # Family and type are given, so that nobody asks the kernel for them; non-blocking it is already.
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET, 0, fileno=descriptor)
        self._socket.setblocking(False)
        self._pending: dict[int, Pending] = {}
        self._next = 1
        self._handed: dict[Request, int] = {}
        self._reset = False
        self.broken = trio.Event()

    def fileno(self) -> int:
        return self._socket.fileno()

    async def run(
        self, argv: tuple[bytes, ...], environment: tuple[tuple[bytes, bytes], ...], cwd: bytes, stdio: tuple[int, int, int]
    ) -> Pending:
        """Ask init to run a command. Raises ``ChannelBroken``; ``ValueError`` for a NUL, no argv, or more than 2 MiB."""
        payload = wire.encode_run(argv, environment, cwd)
        number = self._next
        self._next += 1
        pending = Pending(number)
        self._pending[number] = pending
        try:
            await self._send(lambda: launch.send(self.fileno(), Request.RUN, number, payload=payload, fds=stdio))
        except BaseException:
            del self._pending[number]
            raise
        return pending

    async def kill(self, pending: Pending) -> None:
        """SIGKILL to everything that this command started. Its ``vanished`` follows."""
        await self._request(Request.KILL, pending.number)

    async def signal(self, pending: Pending, number: int) -> None:
        """A signal to the process group of the command's first process."""
        await self._request(Request.SIGNAL, pending.number, number)

    def go(self, plan: bytes, descriptors: Sequence[int], flags: int = 0) -> None:
        """Send a plan, or with ``MORE`` a part of it. Raises ``ChannelBroken``."""
        try:
            launch.send(self.fileno(), Request.GO, flags=flags, payload=plan, fds=descriptors)
        except (BrokenPipeError, ConnectionResetError):
            return  # init failed and went: its last word waits to be read, and says more than this
        except OSError as error:
            raise self._break("sending the plan", error) from error

    async def opening(self) -> Ready | Failed | Handed:
        """The next record of an init that carries out its plan. Before ``serve`` runs only. Raises ``ChannelBroken``."""
        # Blocks for as long as an idle machine needs and no longer; a busy one is awaited.
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        poll.poll(READY_MS)
        while (reply := self._read()) is None:
            await trio.lowlevel.wait_readable(self._socket)
        if not isinstance(reply, Ready | Failed | Handed):
            raise self._break("opening the sandbox", None, "a record that has no place here")
        return reply

    def take(self, request: Request) -> int:
        """The descriptor that was handed over; the caller's from now on. Raises KeyError where none was."""
        return self._handed.pop(request)

    async def serve(self) -> None:
        """Read replies until the channel ends; then everybody who waits is told. Never raises for a broken channel."""
        try:
            while True:
                while self._receive():
                    pass
                await trio.lowlevel.wait_readable(self._socket)
        except ChannelBroken:
            pass
        finally:
            self._end_all()

    def close(self) -> None:
        """Close our end: init exits, and everything with it."""
        self._socket.close()
        for descriptor in self._handed.values():
            os.close(descriptor)
        self._handed.clear()
        self._end_all()

    async def _request(self, kind: Request, number: int, argument: int = 0) -> None:
        record = wire.encode_request(kind, number, argument=argument)
        await self._send(lambda: self._socket.send(record))

    async def _send(self, send: Callable[[], object]) -> None:
        while True:
            if self.broken.is_set():
                raise ChannelBroken("talking to the sandbox", why="it has ended")
            try:
                send()
            except BlockingIOError:
                await trio.lowlevel.wait_writable(self._socket)
            except OSError as error:
                raise self._break("talking to the sandbox", error) from error
            else:
                return

    def _receive(self) -> bool:
        """Take one record if there is one. Raises ``ChannelBroken`` at end of file or on a record that is none."""
        reply = self._read()
        if reply is not None:
            self._dispatch(reply)
        return reply is not None

    def _read(self) -> wire.Reply | None:
        """One record; a descriptor that came with it is kept. Raises as ``_receive``."""
        try:
            data, ancillary, flags, _ = self._socket.recvmsg(_RECORD_MAX, _FDS, socket.MSG_CMSG_CLOEXEC)
        except BlockingIOError:
            return None
        except OSError as error:
            # Init went with a request of ours unread: the kernel says so once, before what init had written.
            if isinstance(error, ConnectionResetError) and not self._reset:
                self._reset = True
                return self._read()
            raise self._break("reading from the sandbox", error) from error
        descriptors = _descriptors(ancillary)
        try:
            if not data or flags & socket.MSG_TRUNC:
                raise self._break("reading from the sandbox", None)
            try:
                reply = wire.decode_reply(data)
            except ChannelBroken:
                self.broken.set()
                raise
            if isinstance(reply, Handed):
                if len(descriptors) != 1 or reply.request in self._handed:
                    raise self._break("reading from the sandbox", None, "a descriptor is missing")
                self._handed[reply.request] = descriptors.pop()
            return reply
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def _dispatch(self, reply: object) -> None:
        match reply:
            case Exited() | RunFailed():
                pending = self._pending.get(reply.id)
                if pending is not None and pending.end is None:
                    pending.end = reply
                    pending.ended.set()
            case Gone():
                pending = self._pending.pop(reply.id, None)
                if pending is not None:
                    pending.gone = True
                    pending.ended.set()
                    pending.vanished.set()
            case Refused(request=Request.RUN):
                # The request itself was not carried out: there is no command, and no Gone will come.
                pending = self._pending.pop(reply.id, None)
                if pending is not None:
                    pending.end = RunFailed(reply.id, wire.Stage.REQUEST, reply.errno)
                    pending.gone = True
                    pending.ended.set()
                    pending.vanished.set()
            case Refused() | Killed() | Signalled() | Started():
                pass
            case _:
                raise self._break("reading from the sandbox", None, "a record that has no place here")

    def _break(self, doing: str, error: OSError | None, why: str = "the sandbox has ended") -> ChannelBroken:
        self.broken.set()
        return ChannelBroken(doing, errno=error.errno if error else None, why=None if error else why)

    def _end_all(self) -> None:
        self.broken.set()
        while self._pending:
            _, pending = self._pending.popitem()
            pending.ended.set()
            pending.vanished.set()


def _descriptors(ancillary: list[tuple[int, int, bytes]]) -> list[int]:
    found: list[int] = []
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            found += [int.from_bytes(data[i : i + 4], "little", signed=True) for i in range(0, len(data) - len(data) % 4, 4)]
    return found
