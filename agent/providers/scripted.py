"""The scripted model: a YAML file replayed turn by turn. For demonstrations and tests; never chosen without configuration.

    turns:
      - calls: [{tool: List, args: {path: .}}]
        text: I look around.                      # optional beside calls
      - calls: [{tool: Bash, rawArgs: '{"command": ', id: x}]      # rawArgs: sent as it stands
        expect: "setup.py"                        # searched in the results since the last turn
      - text: Done.

It streams like a server: in small pieces, the calls of one turn interleaved. A script that runs out, or an ``expect`` that
does not match, is an error.
"""
from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

import trio
import yaml

from agent.calls import CallDelta, clean
from agent.context import Conversation, openai_messages
from agent.errors import ScriptError
from agent.providers.base import Done, Meter, ModelEvent, TextDelta
from supervisor.errors import SettingError

_PIECE = 24  # characters of a streamed piece: about what servers send
_MAX_SCRIPT = 8 * 1024 * 1024  # bytes


@dataclass(frozen=True, slots=True)
class ScriptedCall:
    tool: str
    raw: str
    id: str | None = None


@dataclass(frozen=True, slots=True)
class ScriptedTurn:
    text: str
    calls: tuple[ScriptedCall, ...]
    expect: re.Pattern[str] | None = None


def load_script(path: Path) -> tuple[ScriptedTurn, ...]:
    """Read a script strictly: ``SettingError`` names the file and the turn, and says what is accepted."""
    doing = "reading the model's script"
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_SCRIPT + 1)
    except OSError as error:
        raise SettingError(doing, on=str(path), errno=error.errno) from None
    if len(content) > _MAX_SCRIPT:
        raise SettingError(doing, on=str(path), why=f"it is longer than {_MAX_SCRIPT} bytes")
    try:
        return parse_script(content.decode())
    except (ValueError, yaml.YAMLError, RecursionError) as error:
        raise SettingError(doing, on=str(path), why=" ".join(str(error).split())) from None


def parse_script(text: str) -> tuple[ScriptedTurn, ...]:
    """The turns of a script's text; ``ValueError`` says what is accepted where."""
    script = _mapping(yaml.safe_load(text), "the script", {"turns"})
    turns = script.get("turns")
    if not isinstance(turns, list) or not turns:
        raise ValueError("turns: a list with at least one turn is accepted")
    return tuple(_turn(turn, f"turn {number}") for number, turn in enumerate(turns, 1))


def _turn(value: object, where: str) -> ScriptedTurn:
    turn = _mapping(value, where, {"text", "calls", "expect"})
    text, calls, expect = turn.get("text", ""), turn.get("calls", []), turn.get("expect")
    if not isinstance(text, str):
        raise ValueError(f"{where}: text is a string")
    if not isinstance(calls, list):
        raise ValueError(f"{where}: calls is a list")
    if not text and not calls:
        raise ValueError(f"{where}: text or calls is needed")
    pattern = None
    if expect is not None:
        try:
            pattern = re.compile(str(expect), re.MULTILINE)
        except re.error as error:
            raise ValueError(f"{where}: expect is no regular expression ({error})") from None
    return ScriptedTurn(text, tuple(_call(call, f"{where}, call {n}") for n, call in enumerate(calls, 1)), pattern)


def _call(value: object, where: str) -> ScriptedCall:
    call = _mapping(value, where, {"tool", "args", "rawArgs", "id"})
    if ("args" in call) == ("rawArgs" in call):
        raise ValueError(f"{where}: exactly one of args and rawArgs is accepted")
    tool, id = call.get("tool"), call.get("id")
    if not isinstance(tool, str) or not (id is None or isinstance(id, str)):
        raise ValueError(f"{where}: tool is a string, id an optional string")
    if "rawArgs" not in call:
        arguments = _mapping(call["args"], f"{where}, args", None)
        try:
            return ScriptedCall(tool, json.dumps(arguments), id)
        except TypeError as error:
            raise ValueError(f"{where}: args has a value that JSON cannot carry ({error})") from None
    if not isinstance(call["rawArgs"], str):
        raise ValueError(f"{where}: rawArgs is a string")
    return ScriptedCall(tool, call["rawArgs"], id)


def _mapping(value: object, where: str, known: set[str] | None) -> dict[str, Any]:
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise ValueError(f"{where}: a mapping is accepted")
    if known is not None and (unknown := sorted(set(value) - known)):
        raise ValueError(f"{where}: unknown key {unknown[0]!r}; accepted: {', '.join(sorted(known))}")
    return value


class ScriptedProvider:
    """See ``providers.base.Provider``."""

    def __init__(self, name: str, turns: tuple[ScriptedTurn, ...]) -> None:
        self._name = name
        self._turns = turns
        self._next = 0

    @property
    def name(self) -> str:
        return self._name

    async def exchange(
        self, conversation: Conversation, tools: list[dict[str, Any]], deliver: Callable[[ModelEvent], None], meter: Meter
    ) -> None:
        meter.send(len(json.dumps([openai_messages(conversation), tools]).encode()))
        await trio.lowlevel.checkpoint()
        if self._next >= len(self._turns):
            raise ScriptError(
                "asking the scripted model", on=self._name, why=f"its script ended after {len(self._turns)} turns",
                code="script_exhausted", remedy="add a turn to the script",
            )
        turn = self._turns[self._next]
        self._next += 1
        self._check(turn, conversation)
        for event in _stream(turn):
            piece = event.text if isinstance(event, TextDelta) else event.fragment
            meter.receive(len(clean(piece).encode()))
            deliver(event)
            await trio.lowlevel.checkpoint()
        deliver(Done("tool_calls" if turn.calls else "stop"))

    def _check(self, turn: ScriptedTurn, conversation: Conversation) -> None:
        if turn.expect is None:
            return
        seen = "\n".join(result.text for result in conversation.last_results())
        if not turn.expect.search(seen):
            raise ScriptError(
                "asking the scripted model", on=f"{self._name}, turn {self._next}", code="script_expectation",
                why=f"the last results do not match {turn.expect.pattern!r}; they were {clean(seen[:500])!r}",
                remedy="compare the script with what the tools answered",
            )


def _stream(turn: ScriptedTurn) -> Iterator[TextDelta | CallDelta]:
    for piece in _pieces(turn.text):
        yield TextDelta(piece)
    for index, call in enumerate(turn.calls):
        yield CallDelta(index, call.id, call.tool)
    for row in zip_longest(*(_pieces(call.raw) for call in turn.calls)):
        for index, piece in enumerate(row):
            if piece:
                yield CallDelta(index, fragment=piece)


def _pieces(text: str) -> list[str]:
    return [text[at : at + _PIECE] for at in range(0, len(text), _PIECE)]
