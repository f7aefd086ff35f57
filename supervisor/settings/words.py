"""The words of a shell text, as values: what ``scanner`` cuts a text into, and what a judge of it may know.

A word keeps the quoting of every character; where an expansion would change it, it is not *known*. Unknown is never free.
"""
from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise


@dataclass(frozen=True, slots=True)
class Word:
    """One word. ``chars`` are (character, quoted); ``known`` is False where an expansion would change it."""

    chars: tuple[tuple[str, bool], ...]
    known: bool = True

    @property
    def text(self) -> str:
        return "".join(char for char, _ in self.chars)

    @property
    def globs(self) -> bool:
        """Whether the shell would replace it by the names of files (or try to)."""
        return any(char in "*?[" and not quoted for char, quoted in self.chars)

    @property
    def expands(self) -> bool:
        """Whether a tilde or a brace expansion may change it."""
        plain = [char for char, quoted in self.chars if not quoted]
        return "{" in plain or (bool(self.chars) and self.chars[0] == ("~", False))


@dataclass(frozen=True, slots=True)
class Redirection:
    """``operator`` as written without its descriptor (``>``, ``>>``, ``<``, ``>&``, ``&>`` …) and its target."""

    operator: str
    target: Word

    @property
    def writes(self) -> bool:
        """Whether it opens a file for writing. ``2>&1`` and ``>&-`` do not."""
        if self.operator in (">&", "<&"):
            name = self.target.text
            return self.operator == ">&" and not (name == "-" or name.rstrip("-").isdecimal())
        return ">" in self.operator


@dataclass(slots=True)
class Piece:
    """One simple command, as it was cut."""

    words: list[Word] = field(default_factory=list)
    redirections: list[Redirection] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Scan:
    """``pieces``, those of nested texts first; ``opaque`` when part of the text could not be read, or nests another.

    ``unterminated`` when a quote stays open; ``too_deep`` when texts nest beyond the bound: what lies there is not seen at all.
    """

    pieces: tuple[Piece, ...]
    operators: int  # separators met between or after pieces
    opaque: bool
    unterminated: bool
    comments: bool
    too_deep: bool = False


def braces(word: Word, limit: int) -> list[Word] | None:
    """The words that brace expansion makes of one, the word itself where it makes none; None when they are more than ``limit``.

    Lists alone (``{a,b}``): a sequence (``{1..3}``) stays as it stands.
    """
    done: list[Word] = []
    waiting = [word.chars]
    while waiting:
        chars = waiting.pop()
        found = _brace_list(chars)
        if found is None:
            done.append(Word(chars, word.known))
        else:
            start, end = found[0], found[-1]
            parts = [chars[a + 1: b] for a, b in pairwise(found)]
            waiting += [chars[:start] + part + chars[end + 1:] for part in reversed(parts)]
        if len(done) + len(waiting) > limit:
            return None
    return done


def _brace_list(chars: tuple[tuple[str, bool], ...]) -> list[int] | None:
    """Where the first innermost list in braces begins, is divided, and ends."""
    opened: list[list[int]] = []
    for at, (char, quoted) in enumerate(chars):
        if quoted:
            continue
        if char == "{":
            opened.append([at])
        elif char == "," and opened:
            opened[-1].append(at)
        elif char == "}" and opened and len(found := opened.pop()) > 1:
            return [*found, at]
    return None
