"""Writes the journal's hash chain."""
from collections.abc import Mapping
from typing import Any

from native.record import Schema

class Refused(ValueError):
    """A value that has no canonical form, or an entry that the schema does not know. Nothing was written."""

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
