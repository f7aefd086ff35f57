"""Writes and verifies the journal's hash chain at the speed of the hash."""
from collections.abc import Mapping, Sequence
from typing import Any

FAULTS: tuple[str, ...]
ENVELOPE: Mapping[str, str]
RECORD_VERSION: int
MAX_LINE: int
MAX_DEPTH: int
MAX_INTEGER: int

class Refused(ValueError):
    """A value that has no canonical form, or an entry that the schema does not know. Nothing was written."""

class Schema:
    """The closed set of events: name -> fields, each a key and a kind letter (T H U I B L, ``?`` for null)."""

    def __init__(self, forms: Mapping[str, Sequence[tuple[str, str]]]) -> None: ...

class Chain:
    """Serialises entries and chains them into a batch in memory."""

    def __init__(self, schema: Schema, journal: str, constants: Mapping[str, str | int | None], algorithm: str = ...,
                 head: str | None = ..., seq: int = ...) -> None: ...
    @property
    def head(self) -> str: ...
    @property
    def seq(self) -> int: ...
    @property
    def pending(self) -> int: ...
    def append(self, event: str, values: tuple[Any, ...], at: int, mono: int, agent: str = ...,
               sub: str | None = ...) -> int:
        """Add one entry (``at`` µs since 1970 UTC, ``mono`` µs of the boot clock); return its seq. Refused: nothing was."""

    def take(self) -> bytes:
        """The batch: whole lines, in order."""

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
