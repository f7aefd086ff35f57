"""The arguments of a tool, declared once: the JSON schema that the model is shown and the strict reading of what it sent.

Strict means: an unknown key, a missing key, a wrong type or a value out of range is refused with a text that says what is
accepted; nothing is converted, trimmed or filled in. ``true`` is no number, ``"5"`` is no number, ``5.0`` is no whole number.
"""
from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from agent.calls import kind_of, shown
from supervisor.types import Action

MAX_PATH = 4096
"""Characters of a path: PATH_MAX of linux/limits.h; the kernel counts bytes and has the last word."""
MAX_TEXT = 4 * 1024 * 1024
"""Characters of a file's text in one call: far above what a model writes in one turn, far below what would hurt."""
MAX_COMMAND = 128 * 1024
"""Characters of a command: MAX_ARG_STRLEN of linux/binfmts.h, above which execve answers E2BIG."""


class Refused(ValueError):
    """An argument is not what the schema accepts. The message is a sentence for the model."""


class Field(Protocol):
    """One argument."""

    @property
    def name(self) -> str: ...
    @property
    def required(self) -> bool: ...
    def schema(self) -> dict[str, Any]: ...
    def read(self, value: object) -> Any: ...


@dataclass(frozen=True, slots=True)
class Text:
    """A text. ``blank``: may be empty. ``nul``: may hold U+0000, which no path and no command can carry.

    ``raw_bytes``: may hold the surrogate escapes U+DC80 to U+DCFF, which stand for the bytes of a name that is not UTF-8.
    """

    name: str
    about: str
    limit: int
    required: bool = True
    blank: bool = False
    nul: bool = False
    raw_bytes: bool = False

    def schema(self) -> dict[str, Any]:
        return {"type": "string", "description": self.about} | ({} if self.blank else {"minLength": 1})

    def read(self, value: object) -> str:
        if not isinstance(value, str):
            raise Refused(f"{self.name} is {kind_of(value)}; a string is accepted.")
        if not self.blank and not value.strip():
            raise Refused(f"{self.name} is empty; a string with something in it is accepted.")
        if len(value) > self.limit:
            raise Refused(f"{self.name} has {len(value)} characters; at most {self.limit} are accepted.")
        if not self.nul and "\0" in value:
            raise Refused(f"{self.name} holds the character U+0000, which is not accepted there.")
        lone = "[\ud800-\udc7f\udd00-\udfff]" if self.raw_bytes else "[\ud800-\udfff]"
        if found := re.search(lone, value):
            half = f"\\u{ord(found[0]):04x}"
            raise Refused(f"{self.name} holds half of a surrogate pair ({half}); whole characters are accepted.")
        return value


@dataclass(frozen=True, slots=True)
class Whole:
    """A whole number in a closed range."""

    name: str
    about: str
    least: int
    most: int
    required: bool = False

    def schema(self) -> dict[str, Any]:
        return {"type": "integer", "description": self.about, "minimum": self.least, "maximum": self.most}

    def read(self, value: object) -> int:
        if not isinstance(value, int) or isinstance(value, bool):
            raise Refused(f"{self.name} is {kind_of(value)}; a whole number is accepted.")
        if not self.least <= value <= self.most:
            raise Refused(f"{self.name} is out of range; {self.least} to {self.most} is accepted.")
        return value


@dataclass(frozen=True, slots=True)
class Flag:
    """true or false."""

    name: str
    about: str
    required: bool = False

    def schema(self) -> dict[str, Any]:
        return {"type": "boolean", "description": self.about}

    def read(self, value: object) -> bool:
        if not isinstance(value, bool):
            raise Refused(f"{self.name} is {kind_of(value)}; true or false is accepted.")
        return value


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool of the catalogue: what the model is told, and how its arguments become an action.

    ``make`` receives the arguments that were sent, already read, and may refuse their combination with ``Refused``.
    """

    name: str
    about: str
    fields: tuple[Field, ...]
    make: Callable[..., Action]

    def schema(self) -> dict[str, Any]:
        """The entry of a chat completions request's ``tools``."""
        parameters = {
            "type": "object",
            "properties": {f.name: f.schema() for f in self.fields},
            "required": [f.name for f in self.fields if f.required],
            "additionalProperties": False,
        }
        return {"type": "function", "function": {"name": self.name, "description": self.about, "parameters": parameters}}

    def parse(self, arguments: Mapping[str, Any]) -> Action:
        """The action that these arguments ask for; raises ``Refused``."""
        known = {f.name: f for f in self.fields}
        accepted = ", ".join(f.name if f.required else f"{f.name} (optional)" for f in self.fields)
        for key in arguments:
            if key not in known:
                raise Refused(f"{shown(key)} is no argument of {self.name}. Accepted: {accepted}.")
        for field in self.fields:
            if field.required and field.name not in arguments:
                raise Refused(f"{field.name} is missing. Accepted: {accepted}.")
        return self.make(**{key: known[key].read(value) for key, value in arguments.items()})


def path_field(about: str, *, required: bool = True) -> Text:
    return Text("path", about, MAX_PATH, required=required, raw_bytes=True)
