"""The channel when its other end has gone: the last word counts, not the broken pipe around it."""
from __future__ import annotations

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


async def test_an_init_that_failed_with_requests_unread_is_still_heard() -> None:
    channel, init = ends()
    channel.ask(Request.HAND_WORKDIR)
    init.send(FAILED)
    init.close()  # the unread request makes the kernel say ECONNRESET first
    assert await channel.first() == wire.Failed(3, 14, 22, wire.PlanFault.NONE)
    channel.close()


async def test_asking_one_that_is_gone_leaves_its_last_word() -> None:
    channel, init = ends()
    init.send(FAILED)
    init.close()
    channel.ask(Request.HAND_WORKDIR)
    channel.go(b"", (), more=False)
    assert isinstance(await channel.first(), wire.Failed)
    channel.close()


async def test_one_that_went_without_a_word_broke_the_channel() -> None:
    channel, init = ends()
    channel.ask(Request.HAND_WORKDIR)
    init.close()
    with pytest.raises(ChannelBroken):
        await channel.first()
    channel.close()
