"""Does a network namespace have a link that is up? Asked through a netlink socket that was opened inside it.

One RTM_GETLINK dump of some twenty microseconds; a library would cost more than the sandbox (pyroute2 confirms the same
answer in the tests). Source: rtnetlink(7), linux/rtnetlink.h.
"""
from __future__ import annotations

import socket
import struct
from dataclasses import dataclass

_HEADER = struct.Struct("=IHHII")  # struct nlmsghdr
_LINK = struct.Struct("=BxHiII")  # struct ifinfomsg
_ATTRIBUTE = struct.Struct("=HH")
_GETLINK, _NEWLINK, _ERROR, _DONE = 18, 16, 2, 3
_REQUEST_DUMP = 0x301  # NLM_F_REQUEST | NLM_F_DUMP
_IFLA_IFNAME, _IFF_UP = 3, 1
_SECOND = struct.pack("@ll", 1, 0)  # struct timeval
_QUESTION = _HEADER.pack(_HEADER.size + _LINK.size, _GETLINK, _REQUEST_DUMP, 1, 0) + _LINK.pack(0, 0, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class Link:
    """A network link: its name, and whether it is up."""

    name: str
    up: bool


def links(netlink: socket.socket) -> tuple[Link, ...]:
    """All links of the namespace in which ``netlink`` was opened. Raises OSError when the kernel refuses the dump."""
    # The kernel answers within the call; the bound is for a descriptor that is none of its.
    netlink.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _SECOND)
    netlink.send(_QUESTION)
    found: list[Link] = []
    while True:
        data = netlink.recv(65536)
        offset = 0
        while offset + _HEADER.size <= len(data):
            length, kind, _, _, _ = _HEADER.unpack_from(data, offset)
            if kind == _DONE:
                return tuple(found)
            if kind == _ERROR:
                raise OSError(-struct.unpack_from("=i", data, offset + _HEADER.size)[0], "RTM_GETLINK")
            if kind == _NEWLINK:
                found.append(_link(data, offset + _HEADER.size, offset + length))
            offset += max(_HEADER.size, length + 3 & ~3)


def _link(data: bytes, start: int, end: int) -> Link:
    flags = _LINK.unpack_from(data, start)[3]
    name, offset = "", start + _LINK.size
    while offset + _ATTRIBUTE.size <= end:
        length, kind = _ATTRIBUTE.unpack_from(data, offset)
        if kind == _IFLA_IFNAME:
            name = data[offset + _ATTRIBUTE.size : offset + length].rstrip(b"\0").decode("ascii", "replace")
        offset += max(_ATTRIBUTE.size, length + 3 & ~3)
    return Link(name, bool(flags & _IFF_UP))
