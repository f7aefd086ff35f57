"""The shell texts in the words of one simple command: ``sh -c TEXT``, ``env -S TEXT``, ``trap TEXT EXIT``, ``sh <<< TEXT``.

What such a text says is as much part of the command as its words. What is only known when it runs (a pipe into a shell, a
script file) is not here.
"""
from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from supervisor.settings.words import Redirection, Word

_SHELLS = frozenset({"sh", "bash", "rbash", "dash", "ash", "zsh", "ksh", "mksh", "fish"})
_VALUED = frozenset({"-o", "+o", "-O", "+O", "--rcfile", "--init-file"})  # shell options with their value beside them
_OPTION = {  # the options that take a shell text, alone or at the end of a cluster of single letters
    "env": re.compile(r"-[0iv]*S|--split-string"),
    "script": re.compile(r"-[aefq]*c|--command"),
    "mapfile": re.compile(r"-C"),
    "readarray": re.compile(r"-C"),
}


def scripts(name: str, arguments: Sequence[Word], redirections: Sequence[Redirection]) -> Iterator[str]:
    """The texts, each known in full."""
    words = [word.text if word.known else "" for word in arguments]
    if name in _SHELLS:
        yield from _commands(words)
        yield from (r.target.text for r in redirections if r.operator == "<<<" and r.target.known)
    elif name == "trap":
        yield from [word for word in words if not word.startswith("-")][:1]
    elif (option := _OPTION.get(name)) is not None:
        yield from (after for before, after in pairwise(words) if option.fullmatch(before))
        for word in words:
            if (found := option.match(word)) and len(word) > found.end():
                yield word[found.end():].removeprefix("=")


def _commands(words: Sequence[str]) -> Iterator[str]:
    """The operand of a shell's ``-c``: the first word that is no option."""
    at, commands = 0, False
    while at < len(words) and words[at].startswith(("-", "+")):
        commands |= words[at].startswith("-") and not words[at].startswith("--") and "c" in words[at]
        at += 2 if words[at] in _VALUED else 1
    if commands and at < len(words):
        yield words[at]
