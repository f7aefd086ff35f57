"""The channel when its other end has gone: the last word counts, not the broken pipe around it."""
from __future__ import annotations

import os
import socket

import pytest

from supervisor.errors import ChannelBroken
from supervisor.sandbox import wire
from supervisor.sandbox.channel import Channel
from supervisor.sandbox.wire import Request

FAILED = wire.REPLY.pack(2, 3, 0, 22, 14, 0, 0, 0)  # step 3, of kind 14: EINVAL


def ends() -> tuple[Channel, socket.socket]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    return Channel(ours.detach()), theirs


async def test_an_init_that_failed_with_a_request_unread_is_still_heard() -> None:
    channel, init = ends()
    channel.go(b"x", ())
    init.send(FAILED)
    init.close()  # the unread request makes the kernel say ECONNRESET first
    assert await channel.opening() == wire.Failed(3, 14, 22, wire.PlanFault.NONE)
    channel.close()


async def test_sending_to_one_that_is_gone_leaves_its_last_word() -> None:
    channel, init = ends()
    init.send(FAILED)
    init.close()
    channel.go(b"x", ())
    assert isinstance(await channel.opening(), wire.Failed)
    channel.close()


async def test_one_that_went_without_a_word_broke_the_channel() -> None:
    channel, init = ends()
    channel.go(b"x", ())
    init.close()
    with pytest.raises(ChannelBroken):
        await channel.opening()
    channel.close()


async def test_what_is_handed_over_comes_in_its_order_and_is_taken_once() -> None:
    channel, init = ends()
    given = os.open("/dev/null", os.O_RDONLY)
    socket.send_fds(init, [wire.REPLY.pack(9, Request.HAND_NETLINK, 0, 0, 0, 0, 0, 0)], [given])
    os.close(given)
    init.send(wire.REPLY.pack(1, 0, 0, 0, 0, 0, 0, 0))
    assert await channel.opening() == wire.Handed(Request.HAND_NETLINK)
    assert await channel.opening() == wire.Ready()
    taken = channel.take(Request.HAND_NETLINK)
    assert os.fstat(taken).st_rdev == os.stat("/dev/null").st_rdev
    os.close(taken)
    with pytest.raises(KeyError):
        channel.take(Request.HAND_NETLINK)
    channel.close()
    init.close()


@pytest.mark.parametrize(
    "record",
    [
        wire.REPLY.pack(9, Request.HAND_WORKDIR, 0, 0, 0, 0, 0, 0),  # no descriptor with it
        wire.REPLY.pack(5, 0, 1, 0, 0, 0, 0, 0),  # the end of a command, before there is one
        b"short",
    ],
)
async def test_a_record_out_of_its_place_breaks_the_channel(record: bytes) -> None:
    channel, init = ends()
    init.send(record)
    with pytest.raises(ChannelBroken):
        await channel.opening()
    assert channel.broken.is_set()
    channel.close()
    init.close()
