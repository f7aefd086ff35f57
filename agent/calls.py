"""From streamed fragments to complete calls: pure, and never a guess (LC-03, LC-07 to LC-10, X-04).

Theory of operation. A model server sends a tool call in pieces, and the dialects differ: with or without ``index``, with or
without ``id``, the name once or in every piece, the arguments in fragments or whole. ``Assembler`` gives every fragment to
exactly one call; it shows fragments at once and judges nothing before the end. ``finish`` then returns each call once, in
the order in which they began, either complete (GENERATED) or with a fault in words for the model (ERRORED).

Which call does a fragment belong to? First by ``index`` (where one index holds several calls, the id tells them apart), then
by ``id``, then it continues the last call. Two rules keep two calls from being merged:

* a piece that says a name and brings an object, after a call whose arguments are already complete, opens another call, and so
  does a different name;
* a fragment that says nothing of where it belongs, while several calls are open, tangles them: all of them become errors.

Provider ids serve within one stream only. The conversation knows calls by our own ids, so that an id which a provider
uses again in a later turn crosses nothing.
"""
from __future__ import annotations

import itertools
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from supervisor.types import CallState

MAX_CALLS = 64
"""Calls of one turn. The largest batches seen in the field have about ten; beyond this bound a stream is a flood."""

_BLANKS = " \t\r\n"  # JSON's, RFC 8259 section 2
_IN_STRING = re.compile(r'"|\\(?:.|$)', re.DOTALL)
_OUTSIDE = re.compile(r"[^ \t\r\n]")
_MAX_DEPTH = 64  # of nested arrays and objects in arguments; the catalogue needs one
_MAX_DIGITS = 4000  # of an integer in arguments

_LEGAL = {
    CallState.GENERATING: {CallState.GENERATED, CallState.ERRORED, CallState.CANCELED},
    CallState.GENERATED: {CallState.CALLING, CallState.CANCELED, CallState.ERRORED},
    CallState.CALLING: {CallState.DONE, CallState.ERRORED},
    CallState.DONE: set[CallState](),
    CallState.ERRORED: set[CallState](),
    CallState.CANCELED: set[CallState](),
}


def may_become(before: CallState, after: CallState) -> bool:
    """Whether the life of a call has this step (LC-25)."""
    return after in _LEGAL[before]


@dataclass(frozen=True, slots=True)
class CallDelta:
    """One streamed piece of a call, as the provider sent it. Absent, null and empty are the same: None or ``""``."""

    index: int | None = None
    id: str | None = None
    name: str | None = None
    fragment: str = ""


@dataclass(frozen=True, slots=True)
class Call:
    """One call at the end of its stream.

    ``raw`` is the argument text exactly as sent; ``arguments`` is the one JSON object that it is, None where it is not;
    ``fault`` is empty for a complete call, else what is wrong with it, in words for the model.
    """

    call_id: str
    tool: str
    raw: str
    arguments: Mapping[str, Any] | None
    fault: str = ""

    @property
    def state(self) -> CallState:
        return CallState.ERRORED if self.fault else CallState.GENERATED


class Numbering:
    """Our call ids: ``c00000001`` and so on, unique in one conversation.

    Nine letters and digits: the one form that every known server accepts in a history (some accept no other).
    """

    def __init__(self) -> None:
        self._numbers = itertools.count(1)

    def next(self) -> str:
        return f"c{next(self._numbers):08d}"


class Extent:
    """Follows JSON text piece by piece and knows when its outermost object is closed. Linear, and no parser: text that it
    calls complete may still be malformed, but text that is one JSON object is complete exactly at its end.
    """

    __slots__ = ("_depth", "_escaped", "_string", "closed", "excess")

    def __init__(self) -> None:
        self.closed = False  # the outermost object or array is closed
        self.excess = False  # something that is not blank came after that
        self._depth = 0
        self._string = False
        self._escaped = False

    def feed(self, text: str) -> None:
        at = 1 if self._escaped and text else 0
        self._escaped = self._escaped and not text
        while not self.excess and (found := (_IN_STRING if self._string else _OUTSIDE).search(text, at)):
            at = found.end()
            match found[0]:
                case '"' if self._string:
                    self._string = False
                case escape if self._string:
                    # An escape may be cut after its backslash: then the next piece's first character belongs to it.
                    self._escaped = len(escape) == 1
                case _ if self.closed:
                    self.excess = True
                case '"':
                    self._string = True
                case "{" | "[":
                    self._depth += 1
                case "}" | "]":
                    self._depth -= 1
                    self.closed = self._depth <= 0


@dataclass(slots=True)
class _Draft:
    """A call that is being generated."""

    call_id: str
    index: int | None
    id: str | None
    name: str = ""
    pieces: list[str] = field(default_factory=list)
    extent: Extent = field(default_factory=Extent)
    tangled: bool = False
    announced: bool = False  # its name came once more after its arguments were complete

    @property
    def open(self) -> bool:
        return not self.extent.closed


class Assembler:
    """The calls of one model turn. ``feed`` each piece, then ``finish`` (or ``abandon``) once."""

    def __init__(self, numbering: Numbering) -> None:
        self._numbering = numbering
        self._drafts: list[_Draft] = []
        self.flooded = False

    def feed(self, delta: CallDelta) -> tuple[str, str] | None:
        """Give one piece to its call; returns (our call id, name so far) for the screen, None when it was dropped."""
        draft = self._place(delta)
        if draft is None:
            return None
        if delta.id and draft.id is None:
            draft.id = delta.id
        if delta.name and not draft.name:
            draft.name = delta.name
        if delta.fragment:
            draft.pieces.append(delta.fragment)
            draft.extent.feed(delta.fragment)
        return draft.call_id, draft.name

    def finish(self, *, cut: bool) -> tuple[Call, ...]:
        """Every call of the turn. ``cut``: the stream ended before the server said that it was complete."""
        return tuple(self._judge(draft, cut) for draft in self._drafts)

    def abandon(self) -> tuple[Call, ...]:
        """Every call begun, whatever its shape: for the history of an interrupted turn, in which none of them is judged."""
        return tuple(Call(d.call_id, d.name, joined(d.pieces), None) for d in self._drafts)

    def _place(self, delta: CallDelta) -> _Draft | None:
        peers = self._peers(delta)
        if not peers:
            return self._open(delta, delta.name)
        draft = next((d for d in reversed(peers) if delta.id and d.id == delta.id), peers[-1])
        if delta.id and draft.id not in (delta.id, None):
            return self._open(delta, delta.name)  # a new id at an index in use: servers that number every call 0
        if self._opens_another(draft, delta):
            return self._open(delta, delta.name or draft.name)
        if draft.extent.closed and delta.name:
            draft.announced = True
        if delta.index is None and not delta.id:
            self._tangle()
        return draft

    def _peers(self, delta: CallDelta) -> list[_Draft]:
        """The calls among which this piece may belong, oldest first."""
        if delta.index is not None:
            return [d for d in self._drafts if d.index == delta.index]
        if delta.id:
            return [d for d in self._drafts if d.id == delta.id]
        return [] if not self._drafts else self._drafts[-1:]

    @staticmethod
    def _opens_another(draft: _Draft, delta: CallDelta) -> bool:
        """Whether a piece that is placed at ``draft`` begins the next call there."""
        if delta.name and draft.name and delta.name != draft.name:
            return True
        if delta.index is not None and delta.id:
            return False  # fully identified
        content = delta.fragment.strip(_BLANKS)
        if draft.extent.closed:
            # The name once more, without arguments, may close a call or announce the next: what follows decides. A piece
            # that does neither is excess, and makes its call malformed.
            return content.startswith("{") and bool(delta.name or draft.announced)
        if delta.index is None and not delta.id and delta.name and draft.name:
            # The same name with nothing else to go by: servers that repeat the name send it along with a fragment from the
            # middle of a value, so one without a fragment, or with the start of an object, begins the next call.
            return not content or content.startswith("{")
        return False

    def _open(self, delta: CallDelta, name: str | None) -> _Draft | None:
        if len(self._drafts) >= MAX_CALLS:
            self.flooded = True
            return None
        draft = _Draft(self._numbering.next(), delta.index, delta.id or None, name or "")
        self._drafts.append(draft)
        return draft

    def _tangle(self) -> None:
        """A piece without index and id is only certain where at most one call is open."""
        unfinished = [d for d in self._drafts if d.open]
        if len(unfinished) > 1:
            for draft in unfinished:
                draft.tangled = True

    @staticmethod
    def _judge(draft: _Draft, cut: bool) -> Call:
        raw = joined(draft.pieces)
        read = parse_arguments(raw)
        fault = ""
        if draft.tangled:
            fault = (
                "The fragments of several calls came mixed, without an index or an id to tell them apart. Nothing was run; "
                "send one call at a time."
            )
        elif not draft.name:
            fault = "The call has no tool name. Nothing was run."
        elif cut and draft.open:
            fault = (
                "The stream ended in the middle of this call, before its arguments were complete. Nothing was run; send the "
                "call again."
            )
        elif isinstance(read, str):
            fault = read
        return Call(draft.call_id, draft.name, raw, None if isinstance(read, str) else read, fault)


class _Refused(Exception):
    """Raised inside the JSON hooks; its text is for the model."""


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise _Refused(f"The key {shown(key)} appears twice.")
        found[key] = value
    return found


def _no_constant(name: str) -> Any:
    raise _Refused(f"{name} is not JSON.")


def _integer(digits: str) -> int:
    if len(digits) > _MAX_DIGITS:  # reading them takes quadratic time, and not every Python has a bound of its own
        raise _Refused("It holds a number that is too long.")
    return int(digits)


def parse_arguments(raw: str) -> dict[str, Any] | str:
    """The arguments of a complete call: one JSON object and nothing else, else a text for the model that says what is wrong.

    Strict on purpose: no empty object for an empty text, no last-key-wins, no NaN, nothing after the object (LC-09).
    """
    if not raw.strip(_BLANKS):
        return "The arguments are empty. Send one JSON object, even for a tool without arguments: {}."
    if _too_deep(raw):
        return f"The arguments are nested deeper than {_MAX_DEPTH} levels."
    try:
        value = json.loads(raw, object_pairs_hook=_unique, parse_constant=_no_constant, parse_int=_integer)
    except _Refused as refused:
        return f"The arguments were refused: {refused}"
    except json.JSONDecodeError as error:
        what = error.msg.removesuffix(" at")
        where = f"at character {error.pos + 1} of {len(raw)}" if error.pos < len(raw) else f"but they end after {len(raw)}"
        return (
            f"The arguments are not one complete JSON value: {what} {where}. "
            "Nothing was run; send the call again with complete arguments."
        )
    if not isinstance(value, dict):
        return f"The arguments are {kind_of(value)}; one JSON object is expected."
    return value


def _too_deep(raw: str) -> bool:
    """Whether brackets outside strings nest beyond the bound: asked before the parser recurses over them."""
    if raw.count("{") + raw.count("[") <= _MAX_DEPTH:
        return False
    depth, string, escaped = 0, False, False
    for char in raw:
        if string:
            if escaped:
                escaped = False
            elif char == "\\":
                escaped = True
            elif char == '"':
                string = False
        elif char == '"':
            string = True
        elif char in "{[":
            depth += 1
            if depth > _MAX_DEPTH:
                return True
        elif char in "}]":
            depth -= 1
    return False


def kind_of(value: object) -> str:
    """JSON's name of a value's type, with its article."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    names: dict[type, str] = {dict: "an object", list: "an array", str: "a string", int: "a whole number", float: "a number"}
    return names.get(type(value), "a value")


def shown(text: str, limit: int = 80) -> str:
    """A piece of model text as it may stand in one of our sentences: quoted, escaped, bounded."""
    cut = text if len(text) <= limit else text[:limit] + "…"
    return json.dumps(cut)


def joined(pieces: list[str]) -> str:
    """Streamed pieces as one text. A server that cuts its text in UTF-16 units may put the halves of one character into two
    pieces; they become whole again here. A half that stays alone is shown by ``clean``."""
    text = "".join(pieces)
    if not _LONE.search(text):
        return text
    return clean(text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass"))


_LONE = re.compile("[\ud800-\udfff]")


def clean(text: str) -> str:
    """Text that can be sent as UTF-8: a byte that was none (a surrogate escape) is shown as ``\\xNN``, other lone surrogates as
    ``\\uNNNN``."""

    def escape(found: re.Match[str]) -> str:
        code = ord(found[0])
        return f"\\x{code - 0xDC00:02x}" if 0xDC80 <= code <= 0xDCFF else f"\\u{code:04x}"

    return _LONE.sub(escape, text)
