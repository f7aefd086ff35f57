"""Changes as a unified diff in git's form, which ``git apply`` accepts. Pure.

The text is made from the change set and the kept bytes alone, never by git and never with the session's attributes: ``*.py
-diff`` in a .gitattributes must not hide a line (B52). What its lines cannot say (a binary file's content, which is patch.py's,
an empty directory, permission bits beyond the execute bit, what is left out) stands in lines that begin with ``#``, which
``git apply`` skips.

``render`` gives the exact bytes. ``show`` makes them safe and unambiguous for a person's eyes (HV-04); only the eyes get that.
"""
from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from supervisor.workspace.changes import ChangeSet, Entry, Kind, State, same_content
from supervisor.workspace.linediff import Change, changes

CONTEXT: Final = 3  # equal lines shown around a change
PLAIN: Final = (0o644, 0o755, 0o664, 0o775)  # what git's two modes become under the usual umasks
_NO_NEWLINE: Final = b"\\ No newline at end of file\n"
_ESCAPES: Final = {7: b"\\a", 8: b"\\b", 9: b"\\t", 10: b"\\n", 11: b"\\v", 12: b"\\f", 13: b"\\r", 34: b'\\"', 92: b"\\\\"}

Reader = Callable[[str], bytes]  # the bytes of a blob by its digest
Opaque = Callable[[bytes, State | None, State | None], Iterable[bytes]]  # how a binary or large file is told


def render(found: ChangeSet, read: Reader) -> bytes:
    """The whole diff: what is proposed, then as remarks what is not. Binary and large files are told by size and digest."""
    return b"".join(stream(found, read, _remark))


def stream(found: ChangeSet, read: Reader, opaque: Opaque) -> Iterator[bytes]:
    """The same in pieces, with binary and large files as ``opaque`` has them."""
    moved = _moved(found.proposed)
    for entry in found.proposed:
        yield from _entry(entry, read, opaque, moved.get(entry.path))
    for title, entries in (
        (b"left behind by builds and tests, applied only when asked for", found.debris),
        (b"refused", found.refused),
    ):
        if entries:
            yield b"# " + title + b":\n"
            for entry in entries:
                yield b"#   " + entry.operation.value.encode() + b" " + quote(entry.path) + _why(entry)


def _entry(entry: Entry, read: Reader, opaque: Opaque, moved_from: bytes | None) -> Iterator[bytes]:
    """One path: one patch, or two where another kind of file replaces the old one."""
    if entry.conflict:
        yield b"# conflict: " + quote(entry.path) + b": " + entry.conflict.encode() + b"\n"
    if moved_from is not None:
        yield b"# " + quote(entry.path) + b" has the bytes of " + quote(moved_from) + b", which is deleted\n"
    if entry.before is not None and entry.after is not None and entry.before.kind is not entry.after.kind:
        yield from _patch(entry.path, entry.before, None, read, opaque)
        yield from _patch(entry.path, None, entry.after, read, opaque)
    else:
        yield from _patch(entry.path, entry.before, entry.after, read, opaque)


def measure(found: ChangeSet, read: Reader) -> tuple[int, int]:
    """Lines added and removed by what is proposed; binary and large files count as none."""
    added = removed = 0
    for entry in found.proposed:
        old, new = _lines(entry.before, read), _lines(entry.after, read)
        if old is not None and new is not None:
            for change in changes(old, new):
                added += change.new_to - change.new_from
                removed += change.old_to - change.old_from
    return added, removed


def quote(path: bytes, *, always: bool = False) -> bytes:
    """A path as git writes it: between quotes with C escapes where it holds anything but printable ASCII."""
    if not always and all(0x20 <= byte < 0x7F and byte not in (0x22, 0x5C) for byte in path):
        return path
    return b'"' + b"".join(_ESCAPES.get(byte) or _octal(byte) for byte in path) + b'"'


def _octal(byte: int) -> bytes:
    return bytes([byte]) if 0x20 <= byte < 0x7F else b"\\%03o" % byte


def _why(entry: Entry) -> bytes:
    return (b": " + entry.refused.encode() if entry.refused else b"") + b"\n"


def _moved(entries: Iterable[Entry]) -> dict[bytes, bytes]:
    """New path → deleted path with the same bytes, where the digest alone shows it."""
    gone: dict[str, bytes] = {}
    fresh: list[Entry] = []
    for entry in entries:
        if entry.after is None and entry.before is not None and entry.before.sha256 and entry.before.size:
            gone.setdefault(entry.before.sha256, entry.path)
        elif entry.before is None and entry.after is not None and entry.after.sha256:
            fresh.append(entry)
    return {entry.path: gone[entry.after.sha256] for entry in fresh if entry.after and entry.after.sha256 in gone}


def _patch(path: bytes, before: State | None, after: State | None, read: Reader, opaque: Opaque) -> Iterator[bytes]:
    state = after or before
    if state is None:
        return
    if state.kind is Kind.DIRECTORY:
        yield _directory(path, before, after)
        return
    if said := permissions(before, after):
        yield b"# " + quote(path) + b": " + said.encode() + b"\n"
    same = before is not None and after is not None and same_content(before, after)
    old, new = (None, None) if same else (_lines(before, read), _lines(after, read))
    if not same and (old is None or new is None):
        yield from opaque(path, before, after)
        return
    _, head = header(path, before, after)
    hunks = b"".join(_hunks(old or [], new or []))
    if hunks:
        head += b"--- " + (_named(b"a/" + path) if before is not None else b"/dev/null") + b"\n"
        head += b"+++ " + (_named(b"b/" + path) if after is not None else b"/dev/null") + b"\n"
    elif same and _mode(before) == _mode(after):
        return  # permission bits that git does not know
    yield head + hunks


def header(path: bytes, before: State | None, after: State | None) -> tuple[bytes, bytes]:
    """How a patch of one file begins, without its ``index`` line; and what that line ends with: the mode that stays."""
    blank = b" " in path  # git would have to guess where the first of two such names ends
    head = b"diff --git " + quote(b"a/" + path, always=blank) + b" " + quote(b"b/" + path, always=blank) + b"\n"
    if before is None:
        return b"", head + b"new file mode " + _mode(after) + b"\n"
    if after is None:
        return b"", head + b"deleted file mode " + _mode(before) + b"\n"
    if _mode(before) != _mode(after):
        return b"", head + b"old mode " + _mode(before) + b"\nnew mode " + _mode(after) + b"\n"
    return b" " + _mode(after), head


def _named(path: bytes) -> bytes:
    """A path after ---/+++: git ends one that holds a blank with a tab, or the rest would be taken for a date."""
    quoted = quote(path)
    return quoted + (b"\t" if b" " in path and not quoted.startswith(b'"') else b"")


def _mode(state: State | None) -> bytes:
    if state is None or state.kind is Kind.SYMLINK:
        return b"120000"
    return b"100755" if state.mode & 0o100 else b"100644"


def permissions(before: State | None, after: State | None) -> str:
    """Permission bits of a file that change, or come, in a way that git's two modes do not tell; or ""."""
    if after is None or after.kind is not Kind.FILE:
        return ""
    if before is not None and before.kind is Kind.FILE:
        if before.mode == after.mode or (before.mode ^ after.mode) == 0o111:
            return ""
        return f"permissions {before.mode:04o} become {after.mode:04o}"
    return "" if after.mode in PLAIN else f"permissions {after.mode:04o}"


def _directory(path: bytes, before: State | None, after: State | None) -> bytes:
    if before is None:
        return b"# new directory " + quote(path + b"/") + b"\n"
    if after is None:
        return b"# deleted directory " + quote(path + b"/") + b"\n"
    return b"# " + quote(path + b"/") + b": permissions %04o become %04o\n" % (before.mode, after.mode)


def _remark(path: bytes, before: State | None, after: State | None) -> Iterator[bytes]:
    """A binary or large file: what it was and what it becomes, by size and digest."""
    word = b"new" if before is None else b"deleted" if after is None else b"changed"
    yield b"# " + word + b" binary or large file " + quote(path)
    for label, state in ((b"was", before), (b"is", after)):
        if state is not None:
            yield b"\n#   " + label + b" %d bytes, sha256 " % state.size + (state.sha256 or "not read").encode()
    yield b"\n"


def _lines(state: State | None, read: Reader) -> list[bytes] | None:
    """The lines with their ends; none for nothing, None where they cannot be shown."""
    if state is None:
        return []
    if state.kind is Kind.DIRECTORY:
        return []
    if state.kind is Kind.FILE and not state.text:
        return None
    content = read(state.sha256) if state.kind is Kind.FILE else state.target
    lines = content.split(b"\n")
    last = lines.pop()
    return [line + b"\n" for line in lines] + ([last] if last else [])


def _hunks(old: list[bytes], new: list[bytes]) -> Iterable[bytes]:
    group: list[Change] = []
    for change in changes(old, new):
        if group and change.old_from - group[-1].old_to > 2 * CONTEXT:
            yield _hunk(old, new, group)
            group = []
        group.append(change)
    if group:
        yield _hunk(old, new, group)


def _hunk(old: list[bytes], new: list[bytes], group: list[Change]) -> bytes:
    lead = min(CONTEXT, group[0].old_from)
    tail = min(CONTEXT, len(old) - group[-1].old_to)
    old_from, new_from = group[0].old_from - lead, group[0].new_from - lead
    old_to, new_to = group[-1].old_to + tail, group[-1].new_to + tail
    body = [_line(b" ", line) for line in old[old_from : group[0].old_from]]
    for index, change in enumerate(group):
        body += [_line(b"-", line) for line in old[change.old_from : change.old_to]]
        body += [_line(b"+", line) for line in new[change.new_from : change.new_to]]
        end = group[index + 1].old_from if index + 1 < len(group) else old_to
        body += [_line(b" ", line) for line in old[change.old_to : end]]
    return b"@@ -%s +%s @@\n" % (_range(old_from, old_to), _range(new_from, new_to)) + b"".join(body)


def _range(start: int, end: int) -> bytes:
    """Line numbers from 1; an empty range names the line before it, as diff(1) does."""
    count = end - start
    if count == 1:
        return b"%d" % (start + 1)
    return b"%d,%d" % (start + 1 if count else start, count)


def _line(sign: bytes, line: bytes) -> bytes:
    return sign + line if line.endswith(b"\n") else sign + line + b"\n" + _NO_NEWLINE


# Characters that are drawn as nothing or as a blank although they are not of a category that says so
_BLANK: Final = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")


def show(raw: bytes, *, keep: str = "\n\t") -> str:
    """Bytes for a person's eyes: every character that is invisible, moves the cursor or reorders text is written out.

    ``<U+202E>`` for a character, ``<0xE9>`` for a byte that is not UTF-8; ``<U+`` and ``<0x`` in the text itself get their
    first character written out, so that what is seen is unambiguous (B41, B42). ``keep``: control characters let through.
    """
    text = raw.decode("utf-8", "surrogateescape").replace("<U+", "<U+003C>U+").replace("<0x", "<U+003C>0x")
    if text.isascii() and text.isprintable():
        return text
    return "".join(character if character in keep else _shown(character) for character in text)


def _shown(character: str) -> str:
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:
        return f"<0x{code - 0xDC00:02X}>"
    if 0x20 <= code < 0x7F:
        return character
    category = unicodedata.category(character)
    hidden = category in ("Cc", "Cf", "Zl", "Zp", "Zs", "Cs", "Co", "Cn") or character in _BLANK
    selector = 0xFE00 <= code <= 0xFE0F or 0xE0100 <= code <= 0xE01EF or 0x180B <= code <= 0x180F
    return f"<U+{code:04X}>" if hidden or selector else character
