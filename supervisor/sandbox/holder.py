"""A process that keeps the root of a template, and hands out clones of it.

A mount tree is cloned only from within the mount namespace that it stands in (open_tree(2)), and an ordinary user has no such
namespace but those of its user namespaces. So somebody has to stand there: an init that builds the root as it would for a
sandbox, and is then sent the same small part of a plan again and again, for one clone each.

It runs nothing of anybody else's, and what it keeps of privilege holds in its own user namespace. It has left the host's root
and network, and ends with its channel.
"""
from __future__ import annotations

import os
import select
import signal
import socket
from collections.abc import Sequence

from supervisor.errors import LaunchFailed, LemniError
from supervisor.sandbox import launch, ops, wire
from supervisor.sandbox.wire import Failed, Request

ANSWER_MS = 300  # for what takes a millisecond on an idle machine; then it is done without, and the loop goes on
DYING_MS = 2000
_DOING = "building the template of a root"
_ONE_MORE = wire.encode_plan((ops.HandOver(Request.HAND_ROOT),), 0)


class Holder:
    """The process, from its launch to ``close``. It belongs to the process that launched it.

    One clone is asked for ahead: with the launch, and by each ``prepare``.
    """

    def __init__(self, steps: Sequence[ops.Op], maps: launch.IdMaps) -> None:
        """Launch it, and have it build. Raises ``LaunchFailed`` or ``HostUnfit``; then nothing of it is left."""
        launched = launch.begin().settle(maps)
        self._owner = os.getpid()
        self._pidfd = launched.pidfd
        self._channel = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET, 0, fileno=launched.channel)
        self._asked = False
        try:
            self._ask(wire.encode_plan((*steps, ops.HandOver(Request.HAND_ROOT)), 0))
        except BaseException:
            self.close()
            raise

    def prepare(self) -> None:
        """Ask for the next clone, so that ``clone`` need not wait for it. Raises ``LaunchFailed``."""
        if not self._asked:
            self._ask(_ONE_MORE)

    def clone(self) -> int:
        """A detached clone of the root, the caller's to close. Raises ``LaunchFailed`` or ``ChannelBroken``."""
        self.prepare()
        poll = select.poll()
        poll.register(self._channel, select.POLLIN)
        if not poll.poll(ANSWER_MS):
            raise LaunchFailed(_DOING, why="there is no answer")
        try:
            data, descriptors, _, _ = socket.recv_fds(self._channel, wire.REPLY.size, 1, socket.MSG_CMSG_CLOEXEC)
        except OSError as error:
            raise LaunchFailed(_DOING, errno=error.errno) from error
        if descriptors:
            self._asked = False
            return descriptors[0]
        raise _said(data)

    def close(self) -> None:
        """End it and leave nothing of it; in a forked child, only let go of it."""
        self._channel.close()
        if os.getpid() == self._owner:
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
            launch.reap(self._pidfd, DYING_MS)
        os.close(self._pidfd)

    def _ask(self, plan: bytes) -> None:
        try:
            launch.send(self._channel.fileno(), Request.GO, flags=wire.MORE | wire.QUIET, payload=plan)
        except OSError as error:
            raise LaunchFailed(_DOING, errno=error.errno) from error
        self._asked = True


def _said(record: bytes) -> LemniError:
    """What a record without a descriptor means."""
    if not record:
        return LaunchFailed(_DOING, why="its process has ended")
    reply = wire.decode_reply(record)
    if isinstance(reply, Failed):
        return LaunchFailed(_DOING, errno=reply.errno)
    return LaunchFailed(_DOING, why=f"{type(reply).__name__} has no place here")
