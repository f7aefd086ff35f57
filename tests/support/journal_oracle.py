"""The journal's record once more, in plain Python and from its description alone: what the fast code is compared with."""
from __future__ import annotations

import hashlib
import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

ZERO = "0" * 64


def domain(journal: str) -> bytes:
    return (b"lemniscate.journal/1\0" + journal.encode()).ljust(64, b"\0")


def text(value: str) -> str:
    """RFC 8785, 3.2.2.2."""
    short = {8: "\\b", 9: "\\t", 10: "\\n", 12: "\\f", 13: "\\r", 34: '\\"', 92: "\\\\"}
    return '"' + "".join(short.get(ord(c)) or (f"\\u{ord(c):04x}" if ord(c) < 32 else c) for c in value) + '"'


def canonical(value: Any) -> str:
    """The canonical form of a value of the closed subset; ValueError for anything else."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int() if abs(value) < 2**53:
            return str(value)
        case str():
            return text(value)
        case list() | tuple():
            return "[" + ",".join(map(canonical, value)) + "]"
        case dict():
            return "{" + ",".join(f"{text(k)}:{canonical(value[k])}" for k in sorted(value)) + "}"
    raise ValueError(value)


def seal(body: str | bytes, journal: str, algorithm: str = "sha256") -> bytes:
    """A line from everything before its seal: whatever it says, its hash is right."""
    raw = body.encode() if isinstance(body, str) else body
    return raw + b',"~h":"' + hashlib.new(algorithm, domain(journal) + raw).hexdigest().encode() + b'"}\n'


def line(entry: dict[str, Any], journal: str, algorithm: str = "sha256") -> bytes:
    """A whole line from an entry with ``_p`` and without ``~h``."""
    return seal(canonical(entry)[:-1], journal, algorithm)


def head_of(raw: bytes) -> str:
    return str(json.loads(raw)["~h"])


def when(micros: int) -> str:
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)).strftime("%Y-%m-%dT%H:%M:%S.%fZ").rjust(27, "0")


def entries(path: Path) -> list[dict[str, Any]]:
    return [json.loads(raw) for raw in path.read_bytes().split(b"\n")[:-1]]


def rechain(raws: list[bytes], journal: str) -> list[bytes]:
    """Every line linked and sealed anew, without changing what else it says: a forger who knows the format."""
    result, head = [], ZERO
    for raw in raws:
        body = re.sub(rb'^\{"_p":"[0-9a-f]*"', b'{"_p":"' + head.encode() + b'"', raw.rpartition(b',"~h":"')[0])
        result.append(seal(body, journal))
        head = head_of(result[-1])
    return result


def is_canonical(members: str) -> bool:
    """Whether ``members`` (``"a":1,"b":2``) is the inside of a canonical object of the subset, by Python's own parser."""
    def refuse(_: str) -> Any:
        raise ValueError

    def pairs(found: list[tuple[str, Any]]) -> dict[str, Any]:
        keys = [key for key, _ in found]
        if keys != sorted(set(keys)) or not all(re.fullmatch("[a-z][a-z0-9_]*", key) for key in keys):
            raise ValueError
        return dict(found)

    def depth(value: Any) -> int:
        inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
        return 0 if inner is None else 1 + max(map(depth, inner), default=0)

    try:
        value = json.loads("{" + members + "}", parse_float=refuse, parse_constant=refuse, object_pairs_hook=pairs)
        return canonical(value) == "{" + members + "}" and depth(value) <= 8 and bool(members.encode())
    except (ValueError, RecursionError):
        return False
