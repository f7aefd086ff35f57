"""Cost of the bare init: launch → READY → /bin/true → EXIT → reaped, and a further command, against posix_spawn.

``python -m benchmarks native_launch``. No seccomp, Landlock or cgroup: this is what the rest is added to. GONE is left unread
between two commands: the supervisor does not wait for it either.
"""
from __future__ import annotations

import itertools
import mmap
import os
import select
import signal
import socket
from collections.abc import Callable

from benchmarks.measure import Row, compare, interleave
from supervisor.sandbox import launch, ops, wire

TRUE = b"/bin/true"
SYSTEM = (b"/usr", b"/bin", b"/sbin", b"/lib", b"/lib64", b"/etc")


def _maps() -> tuple[launch.IdMaps, list[ops.Op]]:
    """Two ids for root, the one own id for anybody else, and the operations that take them."""
    uid, gid = os.getuid(), os.getgid()
    if uid == 0:
        text = b"1000 1900000000 1\n65533 1900000001 1\n"
        return launch.IdMaps(text, text, False), [ops.TakeIds(65533, 65533, True), ops.CommandIds(1000, 1000)]
    maps = launch.IdMaps(b"%d %d 1\n" % (uid, uid), b"%d %d 1\n" % (gid, gid), True)
    return maps, [ops.TakeIds(uid, gid, False), ops.CommandIds(uid, gid)]


def _plan(identity: list[ops.Op]) -> bytes:
    system: list[ops.Op] = [
        ops.Symlink(p, os.readlink(p)) if os.path.islink(p) else ops.Bind(p, p, ops.RO | ops.NOSUID | ops.NODEV | ops.RECURSIVE)
        for p in SYSTEM
        if os.path.lexists(p)
    ]
    return wire.encode_plan(
        [
            *identity,
            ops.NewRoot(16 << 20, 10_000),
            *system,
            ops.Proc(b"/proc"),
            ops.Tmpfs(b"/tmp", 16 << 20, 10_000, 0o1777),
            ops.Tmpfs(b"/workspace", 16 << 20, 10_000, 0o777),
            ops.Pivot(),
            ops.OpenNetlink(),
            ops.OpenWorkdir(b"/workspace"),
            ops.NonDumpable(),
            ops.DropCaps(0xE0 if os.getuid() == 0 else 0),
            ops.NoNewPrivs(),
        ],
        0,
    )


class Channel:
    """The supervisor's end, read until a record of the wanted kind."""

    def __init__(self, child: launch.Launched) -> None:
        self.child = child
        self.socket = socket.socket(fileno=child.channel)
        self.poll = select.poll()
        self.poll.register(self.socket, select.POLLIN)

    def until(self, kind: type) -> None:
        while True:
            self.poll.poll()
            if isinstance(wire.decode_reply(self.socket.recv(64)), kind):
                return

    def end(self) -> None:
        signal.pidfd_send_signal(self.child.pidfd, signal.SIGKILL)
        os.waitid(os.P_PIDFD, self.child.pidfd, os.WEXITED)
        os.close(self.child.pidfd)
        self.socket.close()


class Ballast:
    """Resident memory of the supervisor: what a copying fork would have to copy the page tables of."""

    def __init__(self, size: int) -> None:
        self.memory = mmap.mmap(-1, size)
        for at in range(0, size, mmap.PAGESIZE):
            self.memory[at] = 1


def rows(quick: bool) -> list[Row]:
    """A further command and a whole sandbox against posix_spawn; a launch with and without 512 MiB resident."""
    rounds = 40 if quick else 300
    maps, identity = _maps()
    plan = _plan(identity)
    null = os.open("/dev/null", os.O_RDWR)
    environment = [(b"PATH", b"/usr/bin:/bin")]
    payload = wire.encode_run([TRUE], environment)

    def spawn() -> None:
        os.waitpid(os.posix_spawn(TRUE, [TRUE], dict(environment)), 0)

    def opened() -> Channel:
        channel = Channel(launch.begin().settle(maps))
        launch.send(channel.child.channel, wire.Request.GO, payload=plan)
        channel.until(wire.Ready)
        return channel

    def command(channel: Channel, number: int) -> None:
        launch.send(channel.child.channel, wire.Request.RUN, number, payload=payload, fds=[null, null, null])
        channel.until(wire.Exited)

    def whole() -> None:
        channel = opened()
        command(channel, 1)
        channel.end()

    def ready_only() -> None:
        opened().end()

    resident = opened()
    numbers = itertools.count(1)
    sides: dict[str, Callable[[], object]] = {
        "spawn": spawn, "further": lambda: command(resident, next(numbers)), "ready": ready_only, "whole": whole
    }  # fmt: skip
    taken = interleave(sides, rounds)
    ballast = Ballast(512 << 20)
    heavy = interleave({"ready": ready_only}, rounds)["ready"]
    del ballast
    resident.end()
    os.close(null)
    return [
        compare("bare init: a further /bin/true", taken["further"], taken["spawn"], "posix_spawn", 1.5),
        compare("bare init: launch, READY, end", taken["ready"], taken["spawn"], "posix_spawn", None),
        compare("bare init: launch, /bin/true, end", taken["whole"], taken["spawn"], "posix_spawn", None),
        compare("bare init: launch with 512 MiB resident", heavy, taken["ready"], "launch without", None),
    ]
