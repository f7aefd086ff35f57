"""Names of sessions: 26 lower-case Crockford characters that sort by time. Pure.

48 bits of milliseconds, then 80 random bits, as in the ULID layout; the alphabet leaves out i, l, o and u, so that an id can be
read aloud. The caller gives the time and the random bytes.
"""
from __future__ import annotations

from typing import Final

_ALPHABET: Final = "0123456789abcdefghjkmnpqrstvwxyz"
LENGTH: Final = 26


def make_session_id(unix_ms: int, random: bytes) -> str:
    """The id of a session that opens now. ``random`` is 10 bytes from the system's generator."""
    if len(random) != 10 or not 0 <= unix_ms < 1 << 48:
        raise ValueError("a session id takes 48 bits of time and 10 random bytes")
    number = unix_ms << 80 | int.from_bytes(random, "big")
    return "".join(_ALPHABET[number >> shift & 31] for shift in range(125, -1, -5))


def is_session_id(text: str) -> bool:
    """Whether a text can be a whole id (also what makes it safe as a file name)."""
    return len(text) == LENGTH and is_prefix(text)


def is_prefix(text: str) -> bool:
    """Whether a text, after ``normalise``, can begin an id."""
    return 0 < len(text) <= LENGTH and all(character in _ALPHABET for character in text)


def normalise(text: str) -> str:
    """What a person typed, as ids are written: Crockford reads O as 0, I and L as 1, any case."""
    return text.strip().lower().translate(str.maketrans("oil", "011"))
