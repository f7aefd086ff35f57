"""A YAML file read as marked nodes, so that every refusal names the file, the line and the value (CF-10, EM-21).

Nothing is constructed from tags: scalars are read as the text that stands in the file, and each reader below says what it
accepts. ``off`` is thus the word "off" where a word is wanted, ``1e3`` is no number, and ``yes`` is no boolean.
"""
from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from supervisor.errors import SettingError

MAX_BYTES = 1 << 20  # a policy is written by people: a megabyte of it is a mistake, and YAML parsing costs 1 s a megabyte
_INTEGER = re.compile(r"[0-9]{1,18}")
_SIZE = re.compile(r"([0-9]{1,18})(B|KiB|MiB|GiB|TiB)?")
_UNITS = {None: 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}


def decimal(text: str) -> int | None:
    """A decimal integer without sign, blank, exponent or leading-zero tricks (O-19); None when it is not one."""
    return int(text) if _INTEGER.fullmatch(text) else None


@dataclass(frozen=True, slots=True)
class Document:
    """Where a text came from, and which error its faults are."""

    source: str
    error: type[SettingError]

    def parse(self, data: bytes) -> Node | None:
        """The root node, or None for a file that holds nothing but comments."""
        if len(data) > MAX_BYTES:
            raise self.error("read the file", on=self.source, why=f"larger than {MAX_BYTES} bytes")
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError as bad:
            line = data.count(b"\n", 0, bad.start) + 1
            raise self.error("read the file", on=f"{self.source}:{line}", why="not UTF-8") from None
        try:
            return yaml.compose(text, Loader=yaml.SafeLoader)
        except yaml.MarkedYAMLError as bad:
            mark = bad.problem_mark or bad.context_mark
            where = f"{self.source}:{mark.line + 1}" if mark else self.source
            raise self.error("read the file", on=where, why=f"invalid YAML, {bad.problem or bad.context}") from None
        except yaml.reader.ReaderError as bad:
            where = f"{self.source}:{text.count(chr(10), 0, bad.position) + 1}"
            code = bad.character if isinstance(bad.character, int) else ord(bad.character)
            raise self.error("read the file", on=where, why=f"invalid YAML, U+{code:04X} may not stand there") from None
        except (yaml.YAMLError, RecursionError, ValueError) as bad:
            raise self.error("read the file", on=self.source, why=f"invalid YAML, {type(bad).__name__}") from None

    def place(self, node: Node) -> str:
        return f"{self.source}:{node.start_mark.line + 1}"

    def refusal(self, node: Node, key: str, accepted: str) -> SettingError:
        """The error for a value that ``key`` does not accept."""
        return self.error(f"read {key}", on=self.place(node), why=f"{_shown(node)} is not accepted: {accepted}")

    def mapping(self, node: Node, key: str, known: Collection[str] | None = None) -> dict[str, Node]:
        """Keys to nodes. An unknown key and a repeated key are refused; ``known=None`` takes any key."""
        if not isinstance(node, MappingNode):
            raise self.refusal(node, key, "a mapping is expected")
        found: dict[str, Node] = {}
        for name_node, value in node.value:
            if not isinstance(name_node, ScalarNode):
                raise self.refusal(name_node, key, "keys are plain words")
            name = str(name_node.value)
            if known is not None and name not in known:
                raise self.error(
                    f"read {key}", on=self.place(name_node),
                    why=f"unknown key {name!r}; known: {', '.join(sorted(known))}",
                )
            if name in found:
                raise self.error(f"read {key}", on=self.place(name_node), why=f"the key {name!r} stands twice")
            found[name] = value
        return found

    def items(self, node: Node, key: str) -> list[Node]:
        if not isinstance(node, SequenceNode):
            raise self.refusal(node, key, "a list is expected")
        return list(node.value)

    def scalar(self, node: Node, key: str, accepted: str) -> str:
        """The text of a scalar as it stands in the file, whatever YAML would make of it; null is no text."""
        if not isinstance(node, ScalarNode) or (node.style is None and node.tag.endswith(":null")):
            raise self.refusal(node, key, accepted)
        return str(node.value)

    def text(self, node: Node, key: str) -> str:
        """A text that is not empty and holds no NUL."""
        value = self.scalar(node, key, "a text is expected")
        if not value or "\0" in value:
            raise self.refusal(node, key, "a text that is not empty is expected")
        return value

    def texts(self, node: Node, key: str) -> tuple[str, ...]:
        return tuple(self.text(item, key) for item in self.items(node, key))

    def word(self, node: Node, key: str, words: Collection[str]) -> str:
        accepted = "one of " + ", ".join(words)
        value = self.scalar(node, key, accepted)
        if value not in words:
            raise self.refusal(node, key, accepted)
        return value

    def boolean(self, node: Node, key: str) -> bool:
        """``true`` or ``false``, and no other spelling (LD-13)."""
        return self.word(node, key, ("true", "false")) == "true"

    def integer(self, node: Node, key: str, low: int, high: int) -> int:
        accepted = f"a whole number from {low} to {high} is expected"
        value = decimal(self.scalar(node, key, accepted))
        if value is None or not low <= value <= high or getattr(node, "style", None) is not None:
            raise self.refusal(node, key, accepted)
        return value

    def size(self, node: Node, key: str, low: int, high: int) -> int:
        """Bytes: a whole number with an optional unit B, KiB, MiB, GiB or TiB (powers of 1024)."""
        accepted = f"a size such as 512MiB or 4GiB, from {low} to {high} bytes, is expected"
        match = _SIZE.fullmatch(self.scalar(node, key, accepted))
        value = int(match[1]) * _UNITS[match[2]] if match else -1
        if not low <= value <= high:
            raise self.refusal(node, key, accepted)
        return value


def _shown(node: Node) -> str:
    """The value as a person finds it: quoted, at most 80 characters."""
    if isinstance(node, ScalarNode):
        value = str(node.value)
        return repr(value if len(value) <= 80 else value[:77] + "...")
    return "a mapping" if isinstance(node, MappingNode) else "a list"
