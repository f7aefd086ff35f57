"""A command's text without the data that it carries: what a journal may keep of it.

Heredoc bodies, here-strings and long operands of ``-c`` and ``-e`` are programs and files in disguise: they are replaced by
``<sha256,length>``. This is no analysis of what the command does (the guard's); it only finds where words and bodies
begin and end. Where that fails, the whole text is replaced: nothing is kept by mistake.
"""
from __future__ import annotations

import hashlib
import re

OPERAND = 80  # bytes: a longer operand of -c or -e is replaced
_DEPTH = 40
_BLANK = " \t"
_ENDS_WORD = " \t\n;|&()<>"
_CODE_OPTION = re.compile(r"-[A-Za-z]{0,8}[ce]\Z|--(?:command|eval|execute)\Z")
_ARITHMETIC = re.compile(r"""\$?\(\((?:[^\n'"<]|<(?!<)|<<\s*[0-9$])*?\)\)""")  # its << is no heredoc
_ATTACHED = re.compile(r"""(-[A-Za-z]{0,8}[ce]|--(?:command|eval|execute)=)["'$]""")


class _Unreadable(Exception):
    """A quote, substitution or name that does not end."""


def digest(text: str) -> str:
    """``<sha256,length>`` of the text's UTF-8, surrogate escapes included."""
    data = text.encode("utf-8", "surrogatepass")
    return f"<{hashlib.sha256(data).hexdigest()},{len(data)}>"


def abridge(command: str) -> str:
    """The command with its carried data replaced by digests; all of it where its words cannot be told apart."""
    scan = _Scan(command)
    try:
        end = scan.commands(0, "", 0)
        if end != len(command):
            raise _Unreadable
    except _Unreadable:
        return digest(command)
    parts, at = [], 0
    for start, stop in sorted(scan.spans):
        if start >= at:  # one within another is gone with it
            parts += [command[at:start], digest(command[start:stop])]
            at = stop
    return "".join(parts) + command[at:]


class _Scan:
    """One walk over the text; ``spans`` are the stretches to replace."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.spans: list[tuple[int, int]] = []
        self._awaited: list[tuple[str, bool]] = []  # heredocs whose bodies begin at the next line end

    def commands(self, at: int, closer: str, depth: int) -> int:
        """Commands until ``closer`` (returns behind it), or to the end of the text where it is empty."""
        if depth > _DEPTH:
            raise _Unreadable
        text, code_next = self.text, False
        while at < len(text):
            char = text[at]
            if closer and char == closer:
                return at + 1
            if char == "\n":
                at, code_next = self._bodies(at + 1), False
            elif text.startswith("<<<", at):
                start = self._blanks(at + 3)
                at = self._word(start, depth, closer)
                self.spans.append((start, at))
            elif text.startswith("<<", at):
                at = self._heredoc(at + 2, depth, closer)
            elif char == "#" and (at == 0 or text[at - 1] in _ENDS_WORD):
                at = self._line_end(at)
            elif arithmetic := _ARITHMETIC.match(text, at):
                at = arithmetic.end()
            elif char == "(":
                at = self.commands(at + 1, ")", depth + 1)
            elif char in _ENDS_WORD:
                code_next = code_next and char in _BLANK
                at += 1
            else:
                start, at = at, self._word(at, depth, closer)
                word = text[start:at]
                attached = _ATTACHED.match(word)
                if attached:
                    start += attached.end(1)
                if (code_next or attached) and len(text[start:at].encode("utf-8", "surrogatepass")) > OPERAND:
                    self.spans.append((start, at))
                code_next = _CODE_OPTION.match(word) is not None
        if closer:
            raise _Unreadable
        return at

    def _word(self, at: int, depth: int, closer: str) -> int:
        """The end of the word that begins here; quotes and substitutions belong to it, a closing backquote does not."""
        text = self.text
        while at < len(text) and text[at] not in _ENDS_WORD and not text[at] == closer == "`":
            char = text[at]
            if char == "\\":
                at += 2
            elif char == "'":
                at = self._until("'", at + 1)
            elif char == '"':
                at = self._double(at + 1, depth)
            elif text.startswith("$'", at):
                at = self._ansi(at + 2)
            else:
                at = self._substitution(at, depth) or at + 1
        return min(at, len(text))

    def _substitution(self, at: int, depth: int) -> int:
        """The end of the ``$(…)``, backquote or ``${…}`` that begins here; 0 where none does."""
        text = self.text
        if arithmetic := _ARITHMETIC.match(text, at):
            return arithmetic.end()
        if text.startswith("$(", at):
            return self.commands(at + 2, ")", depth + 1)
        if text[at] == "`":
            return self.commands(at + 1, "`", depth + 1)
        if text.startswith("${", at):
            return self._brace(at + 2, depth)
        return 0

    def _double(self, at: int, depth: int) -> int:
        text = self.text
        while at < len(text):
            if text[at] == '"':
                return at + 1
            if text[at] == "\\":
                at += 2
            else:
                at = self._substitution(at, depth) or at + 1
        raise _Unreadable

    def _brace(self, at: int, depth: int) -> int:
        """``${name…}``: quotes and substitutions inside count, blanks do not end it."""
        if depth > _DEPTH:
            raise _Unreadable
        text = self.text
        while at < len(text):
            char = text[at]
            if char == "}":
                return at + 1
            if char == "\\":
                at += 2
            elif char == "'":
                at = self._until("'", at + 1)
            elif char == '"':
                at = self._double(at + 1, depth + 1)
            else:
                at = self._substitution(at, depth + 1) or at + 1
        raise _Unreadable

    def _ansi(self, at: int) -> int:
        text = self.text
        while at < len(text):
            if text[at] == "'":
                return at + 1
            at += 2 if text[at] == "\\" else 1
        raise _Unreadable

    def _until(self, quote: str, at: int) -> int:
        end = self.text.find(quote, at)
        if end < 0:
            raise _Unreadable
        return end + 1

    def _heredoc(self, at: int, depth: int, closer: str) -> int:
        """``<<`` or ``<<-``: remember the delimiter; its body comes after this line."""
        tabs = self.text.startswith("-", at)
        start = self._blanks(at + tabs)
        end = self._word(start, depth, closer)
        if end == start:
            raise _Unreadable
        self._awaited.append((re.sub(r"""\\(.)|["']""", r"\1", self.text[start:end]), tabs))
        return end

    def _bodies(self, at: int) -> int:
        """Skip the bodies of the heredocs that this line began; each goes to ``spans``, its last line stays."""
        while self._awaited:
            delimiter, tabs = self._awaited.pop(0)
            start = at
            while at < len(self.text):
                end = self._line_end(at)
                line = self.text[at:end]
                if (line.lstrip("\t") if tabs else line) == delimiter:
                    break
                at = min(end + 1, len(self.text))
            if at > start:
                stop = at - 1 if self.text[at - 1] == "\n" else at
                self.spans.append((start, stop))
            at = self._line_end(at)
            if self._awaited:
                at = min(at + 1, len(self.text))
        return at

    def _blanks(self, at: int) -> int:
        while at < len(self.text) and self.text[at] in _BLANK:
            at += 1
        return at

    def _line_end(self, at: int) -> int:
        end = self.text.find("\n", at)
        return len(self.text) if end < 0 else end
