"""The files of a cgroup directory, read and written; shared by both versions."""
from __future__ import annotations

import os
import select
import signal


def clear(path: str) -> None:
    """Kill what runs in this group and remove it. Only for a group that bears the name of a slot that we hold.

    Bounded: a process that does not die within two seconds (it sits in the kernel) leaves the directory behind, for the
    next sweep.
    """
    for _ in range(400):
        try:
            with open(f"{path}/cgroup.procs", encoding="ascii") as file:
                pids = [int(line) for line in file]
        except OSError:  # ENOENT, or ENODEV when it goes while we look
            return
        for pid in pids:
            if pid > 0:  # 0 is a process of another pid namespace than ours
                try:
                    os.kill(pid, signal.SIGKILL)
                except (ProcessLookupError, PermissionError):
                    continue
        try:
            os.rmdir(path)
        except FileNotFoundError:
            return
        except OSError:
            select.select([], [], [], 0.005)  # busy: killed processes leave the group within milliseconds
        else:
            return


def write(path: str, value: str) -> None:
    """Write a control file. Raises OSError: the kernel refuses a value, or does not have the file."""
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, value.encode())
    finally:
        os.close(fd)


def words(path: str) -> tuple[str, ...]:
    """A control file's words; none where it cannot be read."""
    try:
        with open(path, encoding="ascii") as file:
            return tuple(file.read().split())
    except OSError:
        return ()


class Values:
    """Files of groups that are read again and again, by descriptors that stay open."""

    def __init__(self) -> None:
        self._open: dict[str, int] = {}

    def text(self, path: str) -> bytes:
        """The file's content; empty where this kernel does not have it."""
        fd = self._open.get(path)
        if fd is None:
            try:
                fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                fd = -1
            self._open[path] = fd
        return os.pread(fd, 4096, 0) if fd >= 0 else b""

    def number(self, path: str) -> int:
        """The file as one number; 0 where there is none."""
        return int(self.text(path) or b"0")

    def keyed(self, path: str, key: bytes) -> int:
        """The number that follows ``key`` on a line of its own; 0 where there is none."""
        for line in self.text(path).splitlines():
            name, _, value = line.partition(b" ")
            if name == key:
                return int(value)
        return 0

    def close(self) -> None:
        for fd in self._open.values():
            if fd >= 0:
                os.close(fd)
        self._open.clear()
