"""Globs over paths of any bytes, by the rules of gitignore(5). Pure; shared by the exclusions and by the ignore rules.

A pattern without a slash matches a name at any depth, one with a slash is anchored where it was written; a final slash means
directories only; ``*`` and ``?`` stay within a component, ``[…]`` is a set, ``**`` as a whole component is any number of
directories, at the end everything beneath. Everything is matched byte by byte, as git does: text is carried as Latin-1.
"""
from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import Final, Protocol

import re2  # type: ignore[import-untyped]

_CLASSES: Final = {
    "alpha": "a-zA-Z", "digit": "0-9", "alnum": "a-zA-Z0-9", "upper": "A-Z", "lower": "a-z", "space": r"\s", "blank": r" \t",
    "xdigit": "0-9a-fA-F", "punct": r"!-\/:-@\[-`{-~", "cntrl": r"\x00-\x1f\x7f", "print": r"\x20-\x7e", "graph": r"\x21-\x7e",
}


class LinearPattern(Protocol):
    """What is used of a compiled RE2 pattern: its time is linear in the text whatever the pattern is."""

    def search(self, text: bytes) -> object | None: ...

    def fullmatch(self, text: bytes) -> object | None: ...


@functools.lru_cache(maxsize=512)
def linear(expression: str) -> LinearPattern:
    """Compile an expression over bytes (as Latin-1 text); the dot matches every byte."""
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    options.dot_nl = True
    options.log_errors = False
    pattern: LinearPattern = re2.compile(expression.encode("latin-1"), options)
    return pattern


class GlobError(ValueError):
    """A pattern that cannot mean anything; the message completes "because …"."""


@dataclass(frozen=True, slots=True)
class Glob:
    """One parsed pattern. ``anchored``: against the whole relative path, otherwise against the last component alone."""

    parts: tuple[str, ...]
    anchored: bool
    directories_only: bool

    @classmethod
    def parse(cls, text: bytes) -> Glob:
        """Read a pattern; GlobError where a component is empty or dots, or a set is not closed."""
        latin = text.decode("latin-1")
        body = latin[:-1] if latin.endswith("/") else latin
        parts = tuple(body.removeprefix("/").split("/"))
        if any(part in ("", ".", "..") for part in parts):
            raise GlobError("a component is empty, '.' or '..'")
        for part in parts:
            _component(part)
        if len(parts) == 1 and parts[0] == "**":
            parts = ("*",)
        return cls(parts, "/" in body, latin.endswith("/"))

    def regex(self) -> str:
        """The regular expression (Latin-1 text) that the path, or the name where not anchored, must match as a whole."""
        out = ""
        for index, part in enumerate(self.parts):
            last = index == len(self.parts) - 1
            if part == "**":
                out += r"[^\x00]+" if last else r"(?:[^/\x00]+/)*"
            else:
                out += _component(part) + ("" if last else "/")
        return out

    def compile(self) -> LinearPattern:
        """The same, ready for ``fullmatch``."""
        return linear(self.regex())

    def can_match_below(self, directory: bytes) -> bool:
        """Whether a path beneath this relative directory could match: False prunes a walk."""
        if not self.anchored:
            return True
        below = directory.split(b"/")
        for part, name in zip(self.parts, below, strict=False):
            if part == "**":
                return True
            if not linear(_component(part)).fullmatch(name):
                return False
        return len(self.parts) > len(below)


@functools.lru_cache(maxsize=512)
def _component(part: str) -> str:
    """One component as a regular expression that matches no slash and no NUL."""
    out, at = "", 0
    while at < len(part):
        character, at = part[at], at + 1
        if character == "*":
            out += r"[^/\x00]*"
            while part[at : at + 1] == "*":  # runs of stars mean one: two in a row would make matching quadratic
                at += 1
        elif character == "?":
            out += r"[^/\x00]"
        elif character == "[":
            piece, at = _set(part, at)
            out += piece
        elif character == "\\":
            if at == len(part):
                raise GlobError("it ends in a backslash")
            out, at = out + re.escape(part[at]), at + 1
        else:
            out += re.escape(character)
    return out


def _set(part: str, at: int) -> tuple[str, int]:
    """The set that opens before ``at``: its regular expression, and where the component goes on."""
    negated = part[at : at + 1] in ("!", "^")
    at += negated
    body, first = "", True
    while True:
        if at >= len(part):
            raise GlobError("a '[' is not closed")
        character = part[at]
        if character == "]" and not first:
            break
        first = False
        if part.startswith("[:", at) and (end := part.find(":]", at)) > 0:
            name = part[at + 2 : end]
            if name not in _CLASSES:
                raise GlobError(f"there is no class [:{name}:]")
            body, at = body + _CLASSES[name], end + 2
        elif character == "\\" and at + 1 < len(part):
            body, at = body + re.escape(part[at + 1]), at + 2
        else:
            body, at = body + (character if character == "-" else re.escape(character)), at + 1
    try:
        members = re.compile(f"[{'^' if negated else ''}{body}]".encode("latin-1"), re.DOTALL)
    except re.error as error:
        raise GlobError(f"a set is not valid: {error.msg}") from None
    # Spelled out byte by byte: it can then hold neither a slash nor a NUL, and means the same to every engine
    kept = "".join(rf"\x{byte:02x}" for byte in range(1, 256) if byte != 0x2F and members.fullmatch(bytes([byte])))
    if not kept:
        raise GlobError("a set matches nothing")
    return f"[{kept}]", at + 1
