"""Cost of the bare init: launch → READY → /bin/true → EXIT → reaped, and a further command, against posix_spawn.

In process, interleaved, so that only the ratios are read: ``python -m benchmarks.native_launch [ROUNDS]``. No seccomp,
Landlock or cgroup: this is what the rest is added to.
"""
from __future__ import annotations

import os
import select
import signal
import socket
import statistics
import sys
import time
from collections.abc import Callable

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


def microseconds(function: Callable[[], object]) -> float:
    start = time.perf_counter_ns()
    function()
    return (time.perf_counter_ns() - start) / 1000


def measure(rounds: int) -> dict[str, float]:
    """Medians in microseconds, all measured in turn within each round."""
    maps, identity = _maps()
    plan = _plan(identity)
    null = os.open("/dev/null", os.O_RDWR)
    environment = [(b"PATH", b"/usr/bin:/bin")]
    payload = wire.encode_run([TRUE], environment)

    def spawn() -> None:
        pid = os.posix_spawn(TRUE, [TRUE], dict(environment))
        os.waitpid(pid, 0)

    def opened(ready_ms: int = 1000) -> Channel:
        child = launch.launch(maps, plan, ready_ms=ready_ms)
        if wire.decode_reply(child.first) != wire.Ready():
            raise SystemExit(f"the init says {wire.decode_reply(child.first)}")
        return Channel(child)

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
    times: dict[str, list[float]] = {"posix_spawn": [], "further command": [], "launch to READY to end": [], "whole": []}
    for number in range(1, rounds + 1):
        times["posix_spawn"].append(microseconds(spawn))
        times["further command"].append(microseconds(lambda n=number: command(resident, n)))  # type: ignore[misc]
        resident.until(wire.Gone)  # outside the measure: the supervisor does not wait for it either
        times["launch to READY to end"].append(microseconds(ready_only))
        times["whole"].append(microseconds(whole))
    resident.end()
    os.close(null)
    return {name: statistics.median(values) for name, values in times.items()}


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 300
    medians = measure(rounds)
    unit = medians["posix_spawn"]
    for name, value in medians.items():
        print(f"{name:24} {value:8.0f} us  {value / unit:5.2f} x posix_spawn")


if __name__ == "__main__":
    main()
