"""Verifies the journal's hash chain at the speed of the hash."""
from native.record import Schema

FAULTS: tuple[str, ...]

class Scanner:
    """Verifies lines one after the other and stops before the first that is wrong."""

    def __init__(self, schema: Schema, journal: str, algorithm: str = ..., head: str | None = ..., seq: int = ...,
                 last_event: str = ..., noted_event: str = ...) -> None: ...
    @property
    def head(self) -> str: ...
    @property
    def fault(self) -> str: ...
    @property
    def seq(self) -> int: ...
    @property
    def entries(self) -> int: ...
    @property
    def wall_steps(self) -> int: ...
    @property
    def noted(self) -> int: ...
    @property
    def last_size(self) -> int: ...
    @property
    def closed(self) -> bool: ...
    def forgive(self) -> None:
        """Go on after a fault, from the last good line."""

    def feed(self, data: bytes | bytearray | memoryview) -> int:
        """Verify whole lines; return the number of bytes that are good."""
