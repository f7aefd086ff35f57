"""Replacing text in a file's bytes so that only the touched lines change (B54). Pure.

The model writes ``\\n``; files have CRLF, both, a byte-order mark, or no newline at the end. The bytes outside the matches
stay as they are, and inserted lines end as the lines end where they are inserted.
"""
from __future__ import annotations


class EditRefused(ValueError):
    """Nothing is changed; the text says why, for the model."""


def edit_bytes(content: bytes, old: str, new: str, every: bool) -> tuple[bytes, int]:
    """The new content and the number of replacements.

    EditRefused: ``old`` is empty, the file is not UTF-8, or ``old`` matches not at all, or more than once without ``every``.
    """
    if not old:
        raise EditRefused("the text to replace is empty")
    if old == new:
        raise EditRefused("the old and the new text are the same")
    try:
        content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise EditRefused(f"the file is not UTF-8 (byte {error.start}); it was left as it is") from None
    try:
        wanted, replacement = old.encode("utf-8"), new.encode("utf-8")
    except UnicodeEncodeError:
        raise EditRefused("the text to replace or to insert is not valid Unicode") from None
    found = content.count(wanted)
    if not found and b"\n" in wanted and b"\r" not in wanted:
        wanted = wanted.replace(b"\n", b"\r\n")  # the model's line ends, in a file that has CRLF there
        found = content.count(wanted)
    if found == 0:
        raise EditRefused("no match: the text to replace does not occur in the file")
    if found > 1 and not every:
        raise EditRefused(f"{found} matches: give more context, or set `all` to replace every one")
    pieces: list[bytes] = []
    at = 0
    while (start := content.find(wanted, at)) >= 0:
        end = start + len(wanted)
        pieces += [content[at:start], _with_line_ends(replacement, content, start, end)]
        at = end
    pieces.append(content[at:])
    return b"".join(pieces), found


def _with_line_ends(replacement: bytes, content: bytes, start: int, end: int) -> bytes:
    """The replacement with the line ends of the place: of the first line that ends at or after the match, else before it."""
    if b"\n" not in replacement or b"\r" in replacement:
        return replacement
    newline = content.find(b"\n", start)
    if newline < 0:
        newline = content.rfind(b"\n", 0, start)
    crlf = newline > 0 and content[newline - 1 : newline] == b"\r"
    return replacement.replace(b"\n", b"\r\n") if crlf else replacement
