"""A small sandbox around the real init, for tests of the init itself: no policy, no profile, the protocol in the raw.

Root gets two ids of its own and init keeps SETUID, SETGID and KILL; an ordinary user shares its one id with the commands.
"""
from __future__ import annotations

import contextlib
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from supervisor.sandbox import launch, ops, wire

COMMAND = 1000  # ids inside for a root caller
INIT = 65533
HOST_BASE = 1_900_000_000  # beyond what a real session takes
KEEP = 1 << 5 | 1 << 6 | 1 << 7  # KILL, SETGID, SETUID
SYSTEM = (b"/usr", b"/bin", b"/sbin", b"/lib", b"/lib64", b"/etc")
R = TypeVar("R", bound=wire.Reply)
TIMEOUT = 20.0  # seconds after which a record that does not come is a failure of the init


def is_root() -> bool:
    return os.getuid() == 0


def maps() -> launch.IdMaps:
    if is_root():
        text = f"{COMMAND} {HOST_BASE} 1\n{INIT} {HOST_BASE + 1} 1\n".encode()
        return launch.IdMaps(text, text, False)
    return launch.IdMaps(
        f"{os.getuid()} {os.getuid()} 1\n".encode(), f"{os.getgid()} {os.getgid()} 1\n".encode(), True
    )


def identity() -> list[ops.Op]:
    """TakeIds and CommandIds of this caller."""
    if is_root():
        return [ops.TakeIds(INIT, INIT, True), ops.CommandIds(COMMAND, COMMAND)]
    return [ops.TakeIds(os.getuid(), os.getgid(), False), ops.CommandIds(os.getuid(), os.getgid())]


def base(extra: Sequence[ops.Op] = (), late: Sequence[ops.Op] = ()) -> list[ops.Op]:
    """A usable view: system binds, /proc, /dev/null, /tmp, /workspace. ``extra`` stands before Pivot, ``late`` at the end."""
    command = COMMAND if is_root() else os.getuid()
    links = [ops.Symlink(p, os.readlink(p)) for p in SYSTEM if os.path.islink(p)]
    binds = [
        ops.Bind(p, p, ops.RO | ops.NOSUID | ops.NODEV | ops.RECURSIVE | ops.OPTIONAL) for p in SYSTEM if not os.path.islink(p)
    ]
    return [
        *identity(),
        ops.NewRoot(16 << 20, 10_000),
        *binds,
        *links,
        ops.Proc(b"/proc"),
        ops.Tmpfs(b"/dev", 1 << 20, 100, 0o755),
        ops.Bind(b"/dev/null", b"/dev/null", ops.NOSUID | ops.NOEXEC),
        ops.Tmpfs(b"/tmp", 16 << 20, 10_000, 0o1777),
        ops.Tmpfs(b"/workspace", 16 << 20, 10_000, 0o755, 0, command, command),
        *extra,
        ops.Pivot(),
        ops.Hostname(b"lemni"),
        ops.OpenNetlink(),
        ops.OpenWorkdir(b"/workspace"),
        ops.NonDumpable(),
        ops.DropCaps(KEEP if is_root() else 0),
        ops.NoNewPrivs(),
        *late,
    ]


def launched(
    plan: bytes | None, fds: Sequence[int] = (), *, cgroup: int = -1, cgroup_namespace: bool = True
) -> launch.Launched:
    """An init that runs and has this plan; without one it waits."""
    init = launch.begin(cgroup=cgroup, cgroup_namespace=cgroup_namespace).settle(maps())
    if plan is not None:
        launch.send(init.channel, wire.Request.GO, payload=plan, fds=fds)
    return init


class Output:
    """The reading end of a pipe given to a command."""

    def __init__(self) -> None:
        self.reader, self.writer = os.pipe2(os.O_CLOEXEC)

    def given(self) -> None:
        os.close(self.writer)

    def read(self) -> bytes:
        parts = []
        while part := os.read(self.reader, 65536):
            parts.append(part)
        os.close(self.reader)
        return b"".join(parts)


class Box:
    """A launched init and its channel."""

    def __init__(self, launched: launch.Launched) -> None:
        self.pid = launched.pid
        self.pidfd = launched.pidfd
        self.socket = socket.socket(fileno=launched.channel)
        self.socket.settimeout(TIMEOUT)
        self.fds: list[int] = []
        self.backlog: list[wire.Reply] = []
        self.next = 1

    @property
    def channel(self) -> int:
        return self.socket.fileno()

    def receive(self) -> wire.Reply | None:
        """The next record, or None at end of file."""
        if self.backlog:
            return self.backlog.pop(0)
        record, fds, _, _ = socket.recv_fds(self.socket, 256, 4)
        self.fds += fds
        return wire.decode_reply(record) if record else None

    def until(self, wanted: Callable[[wire.Reply], bool]) -> wire.Reply:
        """The next record that is ``wanted``; those before it are kept for later calls."""
        kept: list[wire.Reply] = []
        while True:
            record = self.receive()
            if record is None:
                raise EOFError("the init is gone")
            if wanted(record):
                self.backlog = kept + self.backlog
                return record
            kept.append(record)

    def expect(self, kind: type[R], id: int | None = None) -> R:
        """The next record of this kind (about this command)."""
        record = self.until(lambda r: isinstance(r, kind) and (id is None or getattr(r, "id", None) == id))
        assert isinstance(record, kind)
        return record

    def start(
        self,
        *argv: bytes,
        stdio: Sequence[int] | None = None,
        env: Sequence[tuple[bytes, bytes]] = ((b"PATH", b"/usr/bin:/bin"),),
        cwd: bytes = b".",
        limits: Sequence[tuple[int, int, int]] = (),
        flags: int = 0,
    ) -> int:
        """Send RUN; the id. Without ``stdio``, /dev/null."""
        id, self.next = self.next, self.next + 1
        payload = wire.encode_run(argv, env, cwd, limits)
        launch.send(self.channel, wire.Request.RUN, id, payload=payload, flags=flags, fds=stdio or [self.null()] * 3)
        return id

    def null(self) -> int:
        if not hasattr(self, "_null"):
            self._null = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
        return self._null

    def run(self, *argv: bytes, **options: Any) -> tuple[wire.Exited, bytes]:
        """Run to the end and until nothing of it is left; stdout and stderr together."""
        out = Output()
        id = self.start(*argv, stdio=[self.null(), out.writer, out.writer], **options)
        out.given()
        text = out.read()
        ended = self.until(lambda r: isinstance(r, wire.Exited | wire.RunFailed) and r.id == id)
        assert isinstance(ended, wire.Exited), ended
        assert self.expect(wire.Gone, id).told
        return ended, text

    def shell(self, script: str) -> tuple[int, str]:
        """Exit code and output of a shell script."""
        ended, text = self.run(b"/bin/sh", b"-c", script.encode())
        return os.waitstatus_to_exitcode(ended.status), text.decode()

    def ask(self, kind: wire.Request, id: int = 0, argument: int = 0) -> None:
        launch.send(self.channel, kind, id, argument=argument)

    def close(self) -> None:
        """End it whatever it does, and reap it."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)
        self.socket.close()
        with contextlib.suppress(ChildProcessError):
            os.waitid(os.P_PIDFD, self.pidfd, os.WEXITED)
        for fd in [self.pidfd, *self.fds, *([self._null] if hasattr(self, "_null") else [])]:
            os.close(fd)
        self.fds = []


@contextmanager
def opened(operations: Sequence[ops.Op] | None = None, fds: Sequence[int] = ()) -> Iterator[Box]:
    """A box whose plan was sent; the first record is not read yet."""
    plan = wire.encode_plan(base() if operations is None else operations, len(fds))
    box = Box(launched(plan, fds))
    try:
        yield box
    finally:
        box.close()


@contextmanager
def ready(operations: Sequence[ops.Op] | None = None, fds: Sequence[int] = ()) -> Iterator[Box]:
    """A box that said READY."""
    with opened(operations, fds) as box:
        first = box.receive()
        assert first == wire.Ready(), first
        yield box


def processes_of_namespace(pid: int) -> list[int]:
    """Host pids of the pid namespace whose first process is ``pid``; empty when it is gone."""
    try:
        wanted = os.stat(f"/proc/{pid}/ns/pid").st_ino
    except OSError:
        return []
    return processes_in(wanted)


def processes_in(namespace: int) -> list[int]:
    """Host pids in the pid namespace with this inode number."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):
                if os.stat(f"/proc/{name}/ns/pid").st_ino == namespace:
                    found.append(int(name))
    return found


def wait_until(condition: Callable[[], bool], seconds: float = TIMEOUT) -> bool:
    """Poll a condition of the outside world that has no descriptor to wait on."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        os.sched_yield()
    return True
