"""JSON for machines that a person may still look at: one line of ASCII, whatever bytes it tells of.

Everything beyond ASCII is written ``\\uXXXX``, so that no terminal obeys what passes; a byte that is not UTF-8 is shown as
``<0x9B>``, because JSON has no way to carry it.
"""
from __future__ import annotations

import json
import re
from typing import Any

from agent.cli.visible import visible

_SURROGATE = re.compile("[\ud800-\udfff]")


def dumps(value: Any) -> str:
    """One line of ASCII JSON; bytes and text that is not Unicode are made visible."""
    return json.dumps(_plain(value), ensure_ascii=True, separators=(", ", ": "))


def _plain(value: Any) -> Any:
    match value:
        case bytes():
            return _text(value.decode("utf-8", "surrogateescape"))
        case str():
            return _text(value)
        case dict():
            return {str(_plain(key)): _plain(item) for key, item in value.items()}
        case list() | tuple():
            return [_plain(item) for item in value]
        case _:
            return value


def _text(value: str) -> str:
    return _SURROGATE.sub(lambda found: visible(found[0]), value)
