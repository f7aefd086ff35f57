"""Keeps the first bytes of a stream and counts the rest without holding it."""

def widen(fd: int, size: int = ...) -> int:
    """Ask for a pipe of ``size`` bytes (1 MiB by default); return the size that it has afterwards. OSError for no pipe."""

class Capture:
    """The first ``limit`` bytes of one stream, and the number of those beyond."""

    def __init__(self, limit: int) -> None: ...
    @property
    def limit(self) -> int: ...
    @property
    def kept(self) -> int: ...
    @property
    def dropped(self) -> int: ...
    @property
    def eof(self) -> bool: ...
    def pull(self, fd: int) -> int:
        """Take what is there, at most 8 MiB, never blocking; return the bytes taken, kept or dropped. OSError."""

    def since(self, offset: int) -> bytes:
        """A copy of the kept bytes from ``offset`` on."""

    def take(self) -> bytes:
        """The kept bytes, handed out once and without a copy; nothing more is kept afterwards."""
