"""The words of a shell text, as far as they can be known without running a shell.

One scanner serves two readers: the policy's ``commands`` patterns, and the guard's judgement of a command. It cuts a text
into pieces (simple commands) at operators and line ends, and each piece into words with the quoting of every character
kept. It follows bash's quoting rules and knows where its knowledge ends: an expansion makes a word *unknown*, and after a
construct that nests another shell text (``$(``, a backtick, a here-document …) the text is *opaque*, because the quotes that
follow may belong to the inner text. Judging too little known is the caller's business: unknown is never free.

Sources: POSIX.1-2017 XCU 2.2 (quoting), 2.3 (tokens), 2.7 (redirection); bash(1) QUOTING, REDIRECTION.
"""
from __future__ import annotations

from dataclasses import dataclass, field

_OPERATORS = frozenset(";&|\n()")
_BLANKS = frozenset(" \t")


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
    """``pieces`` in order; ``opaque`` when part of the text could not be read; ``unterminated`` when a quote stays open."""

    pieces: tuple[Piece, ...]
    operators: int  # separators met between or after pieces
    opaque: bool
    unterminated: bool
    comments: bool


def scan(text: str) -> Scan:
    """Cut ``text``. Total: any text has an answer."""
    return _Scanner(text).run()


class _Scanner:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
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
        self.heredoc = False

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
            elif char in _OPERATORS:
                self._operator(char)
                if char == "\n" and self.heredoc:
                    break  # what follows is text of the here-document: not commands, and its end is not looked for
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
        return Scan(tuple(self.pieces), self.operators, self.opaque, self.unterminated and not self.opaque, self.comments)

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
        """A parameter, command or arithmetic expansion, or ``$'…'``: the word is unknown from here on."""
        following = self.text[self.at + 1: self.at + 2]
        if self.text[self.at] == "$" and (not following or following in _BLANKS or (following in '"\n' and quoted)):
            self._add("$", quoted=True)  # a dollar that stands alone is itself
        else:
            self.known = False
            self._add(self.text[self.at], quoted=quoted)
            if self.text[self.at] == "`" or following in ("(", "{", "'", '"', "["):
                self.opaque = True
        self.at += 1

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
            self.opaque = self.heredoc = True
            self.pending = operator
        else:
            self.pending = operator

    def _operator(self, char: str) -> None:
        self._cut()
        self.at += 1

    def _cut(self) -> None:
        self.operators += 1
        self._end_piece()

    def _end_word(self) -> None:
        if not self.in_word:
            return
        word = Word(tuple(self.chars), self.known)
        if self.pending is not None:
            self.piece.redirections.append(Redirection(self.pending, word))
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
