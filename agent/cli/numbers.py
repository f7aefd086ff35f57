"""Numbers as people read them: counts with their noun, durations, sizes."""
from __future__ import annotations


def counted(number: int, what: str) -> str:
    """``1 file``, ``2 files``, ``3 processes``."""
    plural = what + ("es" if what.endswith("s") else "s")
    return f"{number} {what if number == 1 else plural}"


def milliseconds(microseconds: int) -> str:
    """``3.1 ms``, ``2.45 s``."""
    return f"{microseconds / 1000:.1f} ms" if microseconds < 1_000_000 else f"{microseconds / 1_000_000:.2f} s"


def size(count: int) -> str:
    """A number of bytes for reading: ``512 B``, ``3.4 MiB``."""
    value, unit = float(count), "B"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024 or unit == "GiB":
            break
        value /= 1024
    return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
