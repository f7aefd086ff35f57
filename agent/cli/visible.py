"""Untrusted text, made harmless and unambiguous for a terminal (HV-04, B41, B42).

Everything that a terminal would obey (escape sequences), that has no width, or that reorders what stands beside it, is
shown as ``<U+202E>``; a byte that is not UTF-8 (a surrogate escape here) as ``<0x9B>``. Text that already looks like such
a mark gets its ``<`` marked, so that every mark on the screen is one of ours and the text can be told byte by byte.
"""
from __future__ import annotations

import re
import unicodedata

# Invisible, though Unicode counts them as letters, marks or symbols.
_BLANK_LETTERS = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
_VARIATION_SELECTORS = (range(0x180B, 0x1810), range(0xFE00, 0xFE10), range(0xE0100, 0xE01F0))
_HARMFUL_CATEGORIES = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"})
_PLAIN = re.compile(r"[\x20-\x7e\n\t]*")
_LOOKS_LIKE_A_MARK = re.compile(r"<(?=U\+|0x)")


def visible(text: str | bytes, *, lines: bool = True) -> str:
    """The text with every harmful character shown. With ``lines`` LF and TAB stay what they are, else they are shown."""
    if isinstance(text, bytes):
        text = text.decode("utf-8", "surrogateescape")
    text = _LOOKS_LIKE_A_MARK.sub("<U+003C>", text)
    kept = "\n\t" if lines else ""
    if _PLAIN.fullmatch(text) and (lines or ("\n" not in text and "\t" not in text)):
        return text
    return "".join(char if char in kept or not _harmful(char) else _mark(char) for char in text)


def deceptive(text: str | bytes) -> bool:
    """Whether the text holds something that a reader would not see: worth a warning beside the marks."""
    if isinstance(text, bytes):
        text = text.decode("utf-8", "surrogateescape")
    return any(char not in "\n\t" and _harmful(char) for char in text)


def _harmful(char: str) -> bool:
    if " " <= char <= "~":
        return False
    number = ord(char)
    return (
        unicodedata.category(char) in _HARMFUL_CATEGORIES
        or (unicodedata.category(char) == "Zs" and char != " ")
        or char in _BLANK_LETTERS
        or any(number in selectors for selectors in _VARIATION_SELECTORS)
    )


def _mark(char: str) -> str:
    number = ord(char)
    return f"<0x{number - 0xDC00:02X}>" if 0xDC80 <= number <= 0xDCFF else f"<U+{number:04X}>"
