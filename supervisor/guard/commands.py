"""What a Bash command text is worth: listed and plain, to be asked, or refused whatever anyone agrees to (PP-27, X-16, X-48).

A command is free only when the whole text is one simple command, every word of it known as it stands, and the policy lists
it. Everything that a shell would have to work out first is unlisted. The judgement only ever hardens the tool's own verdict.
"""
from __future__ import annotations

from collections.abc import Sequence

from supervisor.guard.families import SINKS, TooDeep, assignments, refused_family
from supervisor.guard.lattice import ALLOWED, Judgement, strictest
from supervisor.guard.perimeter import outside
from supervisor.settings.patterns import CommandPattern
from supervisor.settings.scanner import scan
from supervisor.settings.words import Piece, Redirection
from supervisor.types import Reason, Verdict

LIMIT = 128 * 1024 - 1  # MAX_ARG_STRLEN of Linux: a longer text cannot be bash's argument, so it is not judged at all


def judge_command(text: str, listed: Sequence[Sequence[CommandPattern]], *, redirections: bool = False) -> Judgement:
    """Judge a command text against the policy's lists (each list must cover it). ``redirections``: the policy's word.

    A carriage return is judged both as a blank and as a line end, and the stricter verdict wins.
    """
    if "\r" in text:
        readings = (text.replace("\r", " "), text.replace("\r", "\n"))
        each = [judge_command(reading, listed, redirections=redirections) for reading in readings]
        return strictest(*each, _unlisted("it holds a carriage return"))
    try:
        size = len(text.encode("utf-8"))
    except UnicodeEncodeError:
        return _failed("a lone surrogate, which no byte sequence stands for")
    if size > LIMIT:
        return _failed(f"longer than {LIMIT} bytes")
    if "\0" in text:
        return _failed("a NUL character")
    found = scan(text.strip(" \t\n"))
    if found.too_deep:
        return _failed("too many shell texts within one another")
    for piece in found.pieces:
        try:
            family = refused_family(piece.words, piece.redirections)
        except TooDeep as deep:
            return _failed(str(deep))
        if family is not None:
            why = f"{family}: refused whatever anyone agrees to"
            return Judgement(Verdict.EXCLUDE, Reason.REFUSED_FAMILY, "refused family", why)
    if found.unterminated:
        return _failed("an unterminated quote")
    if found.opaque or found.operators or len(found.pieces) != 1:
        return _unlisted("it is more than one plain command")
    return _judge_piece(found.pieces[0], listed, redirections)


def _judge_piece(piece: Piece, listed: Sequence[Sequence[CommandPattern]], redirections: bool) -> Judgement:
    if not piece.words or assignments(piece.words):
        return _unlisted("it assigns variables or names no command")
    if any(not word.known for word in piece.words) or piece.words[0].globs or piece.words[0].expands:
        return _unlisted("it holds an expansion, known only when it runs")
    for redirection in piece.redirections:
        if not _harmless(redirection, redirections):
            return Judgement(Verdict.ASK, Reason.NOT_LISTED, "redirection", "it writes a file by redirection")
    rules = []
    for patterns in listed:
        rule = next((pattern for pattern in patterns if pattern.covers(piece.words)), None)
        if rule is None:
            return _unlisted("the policy does not list it")
        rules.append(rule.text)
    return Judgement(Verdict.ALLOW, None, "; ".join(rules)) if rules else ALLOWED


def _harmless(redirection: Redirection, allowed: bool) -> bool:
    """Whether a redirection hardens nothing: it reads, goes to a sink, or the policy allows writes to its place."""
    target = redirection.target
    if not target.known or target.globs or target.expands:
        return False
    if not redirection.writes or SINKS.fullmatch(target.text):
        return True
    return allowed and ((target.text.startswith("/tmp/") and "/../" not in target.text + "/") or not outside(target.text))


def _unlisted(why: str) -> Judgement:
    return Judgement(Verdict.ASK, Reason.NOT_LISTED, "unlisted", why)


def _failed(why: str) -> Judgement:
    """The evaluation itself failed: refused, never a question (PP-30)."""
    return Judgement(Verdict.EXCLUDE, Reason.EVALUATION_FAILED, "evaluation failed", f"the command cannot be judged: {why}")
