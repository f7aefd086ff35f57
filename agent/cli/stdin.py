"""Standard input beside a prompt: data for the model, untrusted, bounded in size and in waiting."""
from __future__ import annotations

import os
import select
import stat
from dataclasses import dataclass

LIMIT = 1 << 20  # bytes; more than a model can use at once
PATIENCE = 2.0  # seconds without a byte: a caller that keeps a pipe open and never writes must not hang the run
_CHUNK = 1 << 16


@dataclass(frozen=True, slots=True)
class Piped:
    """What was read; ``notice`` says what was left unread, for the person."""

    data: bytes
    notice: str = ""


def read(descriptor: int = 0) -> Piped | None:
    """Read what a pipe or a file offers; None where standard input is anything else, closed, or empty."""
    try:
        mode = os.fstat(descriptor).st_mode
    except OSError:
        return None
    if not (stat.S_ISFIFO(mode) or stat.S_ISREG(mode)):
        return None
    held = bytearray()
    while len(held) <= LIMIT:
        if not select.select([descriptor], [], [], PATIENCE)[0]:
            return Piped(bytes(held), "standard input stayed open and silent: it was not waited for") if held else None
        chunk = os.read(descriptor, _CHUNK)
        if not chunk:
            return Piped(bytes(held)) if held else None
        held += chunk
    return Piped(bytes(held[:LIMIT]), f"standard input is longer than {LIMIT >> 20} MiB: the rest was not read")
