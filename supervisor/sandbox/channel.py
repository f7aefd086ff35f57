"""The supervisor's end of the control channel: requests out, replies to whoever waits for them.

One task reads (``serve``); commands wait for their own records. A channel that ends, or that says what the protocol does not
know, is broken for good: everybody who waits is told, and the sandbox is over. What init says is data of a process beside
foreign code, so it is decoded strictly and never trusted for more than the end of a command.
"""
from __future__ import annotations

import os
import select
import socket
from collections.abc import Callable
from dataclasses import dataclass, field

import trio

from supervisor.errors import ChannelBroken
from supervisor.sandbox import launch, wire
from supervisor.sandbox.wire import Exited, Gone, Handed, Killed, Refused, Request, RunFailed, Signalled, Started

ANSWER_MS = 2  # an idle init answers in microseconds: blocking for that is cheaper than a turn of the loop
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

    def go(self, plan: bytes, descriptors: tuple[int, ...], *, more: bool) -> None:
        """Send a plan, or with ``more`` its first part. Raises ``ChannelBroken``."""
        try:
            launch.send(self.fileno(), Request.GO, flags=wire.MORE if more else 0, payload=plan, fds=descriptors)
        except (BrokenPipeError, ConnectionResetError):
            return  # as in ``ask``
        except OSError as error:
            raise self._break("sending the plan", error) from error

    def ask(self, request: Request) -> None:
        """Send a request without operand at once (the channel is empty). Raises ``ChannelBroken``."""
        try:
            self._socket.send(wire.encode_request(request))
        except (BrokenPipeError, ConnectionResetError):
            return  # init failed and went: its last word waits to be read, and says more than this
        except OSError as error:
            raise self._break("sending a request", error) from error

    async def take(self, request: Request) -> int:
        """The descriptor that answers ``request``; the caller's from now on. Before ``serve`` runs only."""
        while request not in self._handed:
            self.wait_readable(ANSWER_MS)
            if not self._receive():
                await trio.lowlevel.wait_readable(self._socket)
        return self._handed.pop(request)

    def wait_readable(self, milliseconds: int) -> None:
        """Block, with the GIL released, until a record is there; at most so long."""
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        poll.poll(milliseconds)

    async def first(self) -> wire.Ready | wire.Failed:
        """The first record: whether the plan was carried out. Before ``serve`` runs only."""
        reset = False
        while True:
            try:
                data = self._socket.recv(_RECORD_MAX)
            except BlockingIOError:
                await trio.lowlevel.wait_readable(self._socket)
                continue
            except ConnectionResetError as error:
                # Init went with our requests unread. The kernel says so once, before what init had written.
                if reset:
                    raise self._break("reading the first record", error) from error
                reset = True
                continue
            except OSError as error:
                raise self._break("reading the first record", error) from error
            if not data:
                raise self._break("reading the first record", None)
            return first_record(data)

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
        try:
            data, ancillary, flags, _ = self._socket.recvmsg(_RECORD_MAX, _FDS, socket.MSG_CMSG_CLOEXEC)
        except BlockingIOError:
            return False
        except OSError as error:
            raise self._break("reading from the sandbox", error) from error
        descriptors = _descriptors(ancillary)
        kept = False
        try:
            if not data or flags & socket.MSG_TRUNC:
                raise self._break("reading from the sandbox", None)
            try:
                reply = wire.decode_reply(data)
            except ChannelBroken:
                self.broken.set()
                raise
            if isinstance(reply, Handed) and len(descriptors) == 1:
                self._handed[reply.request], kept = descriptors[0], True
            else:
                self._dispatch(reply)
        finally:
            if not kept:
                for descriptor in descriptors:
                    os.close(descriptor)
        return True

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
            case Refused(request=Request.HAND_WORKDIR | Request.HAND_NETLINK):
                raise self._break("opening the sandbox", None, "a descriptor was refused")
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


def first_record(data: bytes) -> wire.Ready | wire.Failed:
    """The first record, decoded. Raises ``ChannelBroken`` for any other."""
    reply = wire.decode_reply(data)
    if not isinstance(reply, wire.Ready | wire.Failed):
        raise ChannelBroken("reading the first record", why="it is neither READY nor FAILED")
    return reply


def _descriptors(ancillary: list[tuple[int, int, bytes]]) -> list[int]:
    found: list[int] = []
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            found += [int.from_bytes(data[i : i + 4], "little", signed=True) for i in range(0, len(data) - len(data) % 4, 4)]
    return found
