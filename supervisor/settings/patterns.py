"""Free commands as the policy lists them: word patterns, and the shipped sets an administrator may opt into (PP-05, PP-07).

``pytest tests/*.py *``: an entry is cut into words by the shell's rules; an unquoted ``*`` inside a word stands for any
characters of that word; a final lone ``*`` stands for any number of further words; ``*`` alone covers every command.
"""
from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from supervisor.settings.scanner import scan
from supervisor.settings.words import Word


@dataclass(frozen=True, slots=True)
class CommandPattern:
    """``words``: each a sequence of literal runs between stars. ``open_end``: a final lone ``*``, which covers any words but
    those that match ``unless``."""

    text: str
    words: tuple[tuple[str, ...], ...]
    open_end: bool
    unless: re.Pattern[str] | None = None

    def covers(self, words: Sequence[Word]) -> bool:
        """Whether the whole command matches. A word that the shell may change (a glob) matches the open end only."""
        if len(words) < len(self.words) or (len(words) > len(self.words) and not self.open_end):
            return False
        for word in words:
            if not word.known:
                return False
        if self.unless is not None and any(self.unless.fullmatch(word.text) for word in words[len(self.words):]):
            return False
        return all(
            not (word.globs or word.expands) and _matches(runs, word.text)
            for runs, word in zip(self.words, words, strict=False)
        )


def parse_pattern(text: str) -> CommandPattern:
    """Read one entry; ValueError says what is wrong with it."""
    if text.rstrip().endswith(")") and text.split("(", 1)[0].strip().isalnum():
        raise ValueError("bare patterns only: write the command itself, without Bash(…)")
    found = scan(text)
    if found.opaque or found.unterminated or found.operators or found.comments or len(found.pieces) != 1:
        raise ValueError("one simple command is expected, without operators, expansions or open quotes")
    piece = found.pieces[0]
    if piece.redirections:
        raise ValueError("a pattern holds no redirection; `redirections: allow` is the key for these")
    words = list(piece.words)
    if any(not word.known for word in words):
        raise ValueError("a pattern holds no expansion")
    open_end = words[-1].chars == (("*", False),)
    if open_end:
        words.pop()
    return CommandPattern(text, tuple(_runs(word) for word in words), open_end)


def _runs(word: Word) -> tuple[str, ...]:
    runs = [""]
    for char, quoted in word.chars:
        if char == "*" and not quoted:
            runs.append("")
        else:
            runs[-1] += char
    return tuple(runs)


def _matches(runs: tuple[str, ...], text: str) -> bool:
    """Glob match by greedy search, linear in practice and never exponential."""
    first, *rest = runs
    if not rest:
        return text == first
    last = rest.pop()
    if len(text) < len(first) + len(last) or not text.startswith(first) or not text.endswith(last):
        return False
    at, end = len(first), len(text) - len(last)
    for run in rest:
        found = text.find(run, at, end)
        if found < 0:
            return False
        at = found + len(run)
    return True


# What a set frees runs in the sandbox like everything else: a set is a convenience, never a boundary.
COMMAND_SETS: dict[str, tuple[str, ...]] = {
    "read-only": (
        "ls *", "cat *", "head *", "tail *", "wc *", "pwd", "true", "echo *", "stat *", "file *", "du *", "tree *", "grep *",
        "git status *", "git log *", "git diff *", "git show *", "git blame *", "git ls-files *", "git rev-parse *",
    ),
    "build": (
        "make", "make all", "make build", "cmake --build *", "ninja *", "cargo build *", "cargo check *", "go build *",
        "npm run build *", "mvn compile *", "mvn package *", "gradle build *", "./gradlew build *", "python -m build *",
    ),
    "test": (
        "make test", "make check", "pytest *", "python -m pytest *", "python3 -m pytest *", "python -m unittest *",
        "python3 -m unittest *", "tox *", "nox *", "cargo test *", "go test *", "npm test *", "npm run test *", "ctest *",
        "mvn test *", "gradle test *", "./gradlew test *",
    ),
    "format": (
        "black *", "ruff format *", "ruff check *", "isort *", "mypy *", "gofmt *", "go vet *", "cargo fmt *",
        "cargo clippy *", "clang-format *", "prettier *", "eslint *", "npm run format *", "npm run lint *",
    ),
}

# Options of commands in the set ``read-only`` that write a file or run a program after all, as far as they can be shortened.
_ACTS = {
    "git": re.compile(r"--ou.*|--ext.*"),
    "file": re.compile(r"-[^-]*C.*|--c(om.*)?"),
    "tree": re.compile(r"-[^-]*o.*|--output.*"),
}


def command_set(name: str) -> tuple[CommandPattern, ...]:
    """The patterns of a shipped set. KeyError for an unknown name."""
    patterns = (parse_pattern(text) for text in COMMAND_SETS[name])
    return tuple(replace(p, unless=_ACTS.get(p.words[0][0]) if name == "read-only" else None) for p in patterns)
