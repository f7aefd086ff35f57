"""Cuts a shell text into its words, as far as they can be known without running a shell.

One scanner serves two readers: the policy's ``commands`` patterns, and the guard's judgement of a command. It cuts a text
into pieces (simple commands) at operators and line ends, and each piece into words with the quoting of every character
kept. It follows bash's quoting rules and knows where its knowledge ends: an expansion makes a word *unknown*, and a construct
that nests another shell text (``$(``, a backtick, a here-document …) makes the whole text *opaque*: the pieces of the inner
text are among the pieces, as far as they can be seen, but nobody should take them for all that will run. Judging too little
known is the caller's business: unknown is never free.

Sources: POSIX.1-2017 XCU 2.2 (quoting), 2.3 (tokens), 2.7 (redirection); bash(1) QUOTING, REDIRECTION.
"""
from __future__ import annotations

import re

from supervisor.settings.words import Piece, Redirection, Scan, Word

_OPERATORS = frozenset(";&|\n()")
_BLANKS = frozenset(" \t")
_DEPTH = 32  # shell texts within one another; deeper than anybody writes, and each level looks at its text again
_ANSI = {"a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_ANSI_NUMBER = re.compile(r"([0-7]{1,3})|x([0-9A-Fa-f]{1,2})|u([0-9A-Fa-f]{1,4})|U([0-9A-Fa-f]{1,8})")


def scan(text: str) -> Scan:
    """Cut ``text``. Total: any text has an answer."""
    return _Scanner(text).run()


class _Scanner:
    """``closes``: the parenthesis that ends a nested text; ``depth``: how many texts this one is nested in."""

    def __init__(self, text: str, at: int = 0, *, closes: str = "", depth: int = 0) -> None:
        self.text = text
        self.at = at
        self.closes = closes
        self.depth = depth
        self.open = 0  # parentheses of our own
        self.too_deep = False
        self.pieces: list[Piece] = []
        self.piece = Piece()
        self.chars: list[tuple[str, bool]] = []
        self.in_word = False  # '' is a word without characters
        self.known = True
        self.pending: str | None = None  # a redirection operator that waits for its target
        self.operators = 0
        self.opaque = False
        self.unterminated = False
        self.comments = False
        self.heredocs: list[Redirection] = []  # whose bodies begin at the next line

    def run(self) -> Scan:
        text, end = self.text, len(self.text)
        while self.at < end:
            char = text[self.at]
            if char == "\\":
                self._backslash()
            elif char == "'":
                self._single()
            elif char == '"':
                self._double()
            elif char in "$`":
                self._expansion()
            elif char in "<>" or (char == "&" and text[self.at + 1: self.at + 2] == ">"):
                self._redirect()
            elif char == self.closes and not self.open:
                break
            elif char in _OPERATORS:
                self._operator(char)
            elif char in _BLANKS:
                self._end_word()
                self.at += 1
            elif char == "#" and not self.in_word:
                self.comments = True
                line_end = text.find("\n", self.at)
                self.at = end if line_end < 0 else line_end
            else:
                self._add(char, quoted=False)
                self.at += 1
        self._end_piece()
        unterminated = self.unterminated and not self.opaque
        return Scan(tuple(self.pieces), self.operators, self.opaque, unterminated, self.comments, self.too_deep)

    def _add(self, char: str, *, quoted: bool) -> None:
        self.in_word = True
        self.chars.append((char, quoted))

    def _backslash(self) -> None:
        following = self.text[self.at + 1: self.at + 2]
        if not following:
            self.opaque = True  # what it quotes was cut off, or is nothing
        elif following != "\n":  # a continued line is one line
            self._add(following, quoted=True)
        self.at += 2

    def _single(self) -> None:
        self.in_word = True
        close = self.text.find("'", self.at + 1)
        if close < 0:
            self.unterminated = True
            close = len(self.text)
        for char in self.text[self.at + 1: close]:
            self._add(char, quoted=True)
        self.at = close + 1

    def _double(self) -> None:
        self.in_word = True
        text, end = self.text, len(self.text)
        self.at += 1
        while self.at < end and text[self.at] != '"':
            char = text[self.at]
            if char == "\\" and text[self.at + 1: self.at + 2] in ("$", "`", '"', "\\", "\n"):
                if text[self.at + 1] != "\n":
                    self._add(text[self.at + 1], quoted=True)
                self.at += 2
            elif char in "$`":
                self._expansion(quoted=True)
            else:
                self._add(char, quoted=True)
                self.at += 1
        if self.at >= end:
            self.unterminated = True
        self.at += 1

    def _expansion(self, *, quoted: bool = False) -> None:
        """A parameter, command or arithmetic expansion, or a ``$`` that quotes."""
        char, following = self.text[self.at], self.text[self.at + 1: self.at + 2]
        if char == "$" and (not following or following in _BLANKS or (following in '"\n' and quoted)):
            self._add("$", quoted=True)  # a dollar that stands alone is itself
        elif char == "$" and following in ("'", '"') and not quoted:
            self.opaque = True
            if following == "'":
                self._ansi()
                return
        else:  # the word is unknown from here on
            self.known = False
            self._add(char, quoted=quoted)
            self.opaque |= char == "`" or following in ("(", "{", "'", "[")
            if char == "`":
                self._backticks(quoted)
                return
            if following == "(":
                self._substitution()
                return
        self.at += 1

    def _ansi(self) -> None:
        """``$'…'``: its escapes are characters. One that stands for a part of a character leaves the word unknown."""
        self.in_word = True
        self.at += 2
        while (char := self.text[self.at: self.at + 1]) not in ("'", ""):
            self.at += 1
            if char == "\\":
                char = self._escape()
            if char:
                self._add(char, quoted=True)
        self.unterminated |= self.at >= len(self.text)
        self.at += 1

    def _escape(self) -> str:
        """The character of an escape sequence of ``$'…'``, from behind its backslash; empty where it is none."""
        number = _ANSI_NUMBER.match(self.text, self.at)
        if number is not None:
            self.at = number.end()
            octal, *rest = number.groups()
            code = int(octal, 8) & 0xFF if octal else int(next(digits for digits in rest if digits), 16)
            if 0 < code < 0x80 or (number[0][0] in "uU" and 0x80 <= code < 0xD800):
                return chr(code)
            self.known = False  # NUL ends the string; a byte beyond ASCII is part of a character
            return ""
        char = self.text[self.at: self.at + 1]
        self.at += 1
        if char in _ANSI:
            return _ANSI[char]
        if char in ("\\", "'", '"', "?"):
            return char
        self.known = False  # \\c and what bash leaves as it stands
        return char

    def _substitution(self) -> None:
        """``$(…)``: the commands inside are pieces too."""
        inner = self._nested(self.text, self.at + 2, closes=")")
        self.unterminated |= inner is None or inner.at >= len(self.text)
        self.at = len(self.text) if inner is None else inner.at + 1

    def _backticks(self, quoted: bool) -> None:
        """`` `…` ``: the same, with one level of backslashes taken off first."""
        at, inner = self.at + 1, []
        while (char := self.text[at: at + 1]) not in ("`", ""):
            if char == "\\" and self.text[at + 1: at + 2] in ("\\", "$", "`", *('"' if quoted else ())):
                at += 1
            inner.append(self.text[at: at + 1])
            at += 1
        self.unterminated |= not char
        self.at = at + 1
        self._nested("".join(inner))

    def _nested(self, text: str, at: int = 0, *, closes: str = "") -> _Scanner | None:
        if self.depth >= _DEPTH:
            self.too_deep = True
            return None
        inner = _Scanner(text, at, closes=closes, depth=self.depth + 1)
        inner.run()
        self.pieces += inner.pieces
        self.too_deep |= inner.too_deep
        return inner

    def _redirect(self) -> None:
        descriptor = "".join(char for char, _ in self.chars)
        if self.in_word and descriptor.isdecimal() and not any(quoted for _, quoted in self.chars):
            self.chars, self.in_word = [], False  # the digits are the descriptor, not a word
        self._end_word()
        operator = next(o for o in _REDIRECTIONS if self.text.startswith(o, self.at))
        self.at += len(operator)
        if operator in ("<(", ">("):
            self.opaque = True
            self._cut()
        elif operator in ("<<", "<<-"):
            self.opaque = True
            self.pending = operator
        else:
            self.pending = operator

    def _operator(self, char: str) -> None:
        self._cut()
        self.open += (char == "(") - (char == ")" and self.open > 0)
        self.at += 1
        if char == "\n":
            bodies, self.heredocs = self.heredocs, []
            for heredoc in bodies:
                self._body(heredoc)

    def _body(self, heredoc: Redirection) -> None:
        """The lines of a here-document: text, in which substitutions run unless its delimiter is quoted."""
        start, end = self.at, len(self.text)
        while self.at < end:
            line_end = self.text.find("\n", self.at)
            line_end = end if line_end < 0 else line_end
            line, at = self.text[self.at: line_end], self.at
            self.at = min(line_end + 1, end)
            if (line.lstrip("\t") if heredoc.operator == "<<-" else line) == heredoc.target.text:
                end = at
        if any(quoted for _, quoted in heredoc.target.chars):
            return
        body = _Scanner(self.text[start:end], depth=self.depth)
        while body.at < len(body.text):
            if body.text[body.at] in "$`":
                body._expansion(quoted=True)
            else:
                body.at += 2 if body.text[body.at] == "\\" else 1
        self.pieces += body.pieces
        self.too_deep |= body.too_deep

    def _cut(self) -> None:
        self.operators += 1
        self._end_piece()

    def _end_word(self) -> None:
        if not self.in_word:
            return
        word = Word(tuple(self.chars), self.known)
        if self.pending is not None:
            redirection = Redirection(self.pending, word)
            self.piece.redirections.append(redirection)
            if self.pending in ("<<", "<<-"):
                self.heredocs.append(redirection)
            self.pending = None
        else:
            self.piece.words.append(word)
        self.chars, self.in_word, self.known = [], False, True

    def _end_piece(self) -> None:
        self._end_word()
        if self.pending is not None:  # `>` without a target: a syntax error, bash will say so
            self.opaque, self.pending = True, None
        if self.piece.words or self.piece.redirections:
            self.pieces.append(self.piece)
        self.piece = Piece()


_REDIRECTIONS = ("&>>", "&>", "<<<", "<<-", "<<", "<>", "<&", "<(", ">>", ">|", ">&", ">(", "<", ">")  # longest first
