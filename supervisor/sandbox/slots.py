"""One number for each sandbox that lives on this machine: it names the cgroup and, for root, the host ids.

A slot is a file that its process holds with flock(2): a lock of the kernel ends with the process, however that ends, and,
unlike a POSIX lock, not at the first close of any descriptor of the file. A process keeps the slots that it had and uses
them again, so that a second sandbox costs no system call here.

The file names the groups that the slot's sandboxes have: where they lie depends on the group that the supervisor was in, so
that a later supervisor could not know. Whoever takes the slot of a dead one removes them first.

Root's slots are the machine's (host ids must be unique whatever the state directory); other users' lie in their state.
"""
from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from supervisor.errors import HostUnfit
from supervisor.sandbox.ids import SLOTS

MACHINE = Path("/run/lemniscate/slots")


@dataclass(frozen=True, slots=True)
class Slot:
    """A number that nobody else has while this process lives, and the name that goes with it."""

    number: int
    name: str  # unique on the machine: the cgroup's name
    left: tuple[str, ...] = ()  # directories of groups that a dead holder may have left


class Slots:
    """The slots of one directory, as this process holds them."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._tag = ""
        self._held: dict[int, int] = {}  # number → locked descriptor
        self._free: list[Slot] = []
        self._recorded: dict[int, tuple[str, ...]] = {}

    def take(self) -> Slot:
        """A slot of this process's own. Raises ``HostUnfit`` when ``SLOTS`` sandboxes live already."""
        return self._free.pop() if self._free else self._lock_new()

    def record(self, slot: Slot, groups: tuple[str, ...]) -> None:
        """The slot's sandboxes have their groups in these directories. Written before any is made."""
        if self._recorded.get(slot.number) != groups:
            fd = self._held[slot.number]
            os.truncate(fd, 0)
            os.pwrite(fd, "\n".join(groups).encode("utf-8", "surrogateescape"), 0)
            self._recorded[slot.number] = groups

    def give(self, slot: Slot) -> None:
        """The sandbox of this slot has ended and left nothing. The lock stays, for the next one."""
        self._free.append(Slot(slot.number, slot.name))

    def abandoned(self) -> Iterator[Slot]:
        """Slots whose process ended without giving them back, each locked by us while it is yielded."""
        for number in self._numbers():
            if number in self._held:
                continue
            fd = self._try_lock(number)
            if fd is None:
                continue
            try:
                yield self._slot(number, fd)
                (self._directory / str(number)).unlink(missing_ok=True)
            finally:
                os.close(fd)

    def close(self) -> None:
        """Let go of every slot: their numbers are anybody's now."""
        for number, fd in self._held.items():
            (self._directory / str(number)).unlink(missing_ok=True)
            os.close(fd)
        self._held.clear()
        self._free.clear()
        self._recorded.clear()

    def _slot(self, number: int, fd: int) -> Slot:
        name = f"lemni-{self._tag or self._make_tag()}-{number}"
        recorded = os.pread(fd, 65536, 0).decode("utf-8", "surrogateescape").splitlines()
        # Ours alone may write the file; still, nothing is removed that is not a group of this very name.
        return Slot(number, name, tuple(path for path in recorded if path.startswith("/") and path.endswith(f"/{name}")))

    def _make_tag(self) -> str:
        """The same number exists in every user's directory: the name says which.

        By the inode and not by the path: in two containers that share a hierarchy of groups, /run is not the same directory.
        """
        place = os.stat(self._directory)
        words = b"%d %d %s" % (place.st_dev, place.st_ino, os.fsencode(self._directory.absolute()))
        self._tag = hashlib.sha256(words).hexdigest()[:8]
        return self._tag

    def _numbers(self) -> list[int]:
        try:
            return sorted(int(name) for name in os.listdir(self._directory) if name.isdecimal())
        except FileNotFoundError:
            return []

    def _lock_new(self) -> Slot:
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        for number in range(SLOTS):
            if number in self._held:
                continue
            fd = self._try_lock(number)
            if fd is not None:
                self._held[number] = fd
                return self._slot(number, fd)
        raise HostUnfit("finding a free slot", why=f"{SLOTS} sandboxes live already", code="too_many_sandboxes")

    def _try_lock(self, number: int) -> int | None:
        path = self._directory / str(number)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Whoever unlinked the file between our open and our lock left us with a lock on nothing.
            if os.fstat(fd).st_ino == os.stat(path).st_ino:
                return fd
        except (BlockingIOError, FileNotFoundError):
            pass
        os.close(fd)
        return None


def slots_directory(state: Path) -> Path:
    """Where the slots of this user lie: for root the machine's directory, since its sandboxes take host ids."""
    if os.geteuid() == 0 and os.access("/run", os.W_OK):
        return MACHINE
    return state / "slots"
