"""Limits of the record: what is refused when it is written, and that the chain then goes on."""
from __future__ import annotations

from typing import Any

import pytest

from native.chain import Chain, Refused
from native.record import MAX_INTEGER, MAX_LINE, Schema
from native.scan import Scanner
from support.journal_oracle import ZERO, head_of, seal

SCHEMA = Schema({"e": (("n", "I?"), ("t", "T?"), ("l", "L"), ("f", "B"), ("h", "H?"), ("c", "U")), "end": ()})
GOOD: dict[str, Any] = {"n": 1, "t": "x", "l": (), "f": True, "h": "a" * 64, "c": 0}


def chain(algorithm: str = "sha256") -> Chain:
    return Chain(SCHEMA, "j", {"boot": "b", "sess": "s", "uid": 0, "who": "w"}, algorithm)


def put(chain: Chain, **changed: Any) -> int:
    return chain.append("e", tuple((GOOD | changed).values()), 0, 0)


@pytest.mark.parametrize("changed", [
    {"n": float("nan")}, {"n": 1.0}, {"n": 2**53}, {"n": -(2**53)}, {"n": 2**80}, {"n": True}, {"n": "1"},
    {"t": "\ud800"}, {"t": "a\udcff"}, {"t": b"x"}, {"t": 1},
    {"l": ["x"]}, {"l": (1,)}, {"l": ("\udfff",)}, {"l": None}, {"l": (("x",),)},
    {"f": 1}, {"f": None}, {"h": "A" * 64}, {"h": "a" * 63}, {"h": 1}, {"c": -1}, {"c": None},
    {"t": "x" * MAX_LINE}, {"t": "\x01" * (MAX_LINE // 5)},
])  # fmt: skip
def test_what_has_no_canonical_form_is_refused_and_the_chain_goes_on(changed: dict[str, Any]) -> None:
    fast = chain()
    put(fast)
    head, pending = fast.head, fast.pending
    with pytest.raises(Refused):
        put(fast, **changed)
    assert (fast.head, fast.pending, fast.seq) == (head, pending, 1)
    assert put(fast) == 1
    scanner = Scanner(SCHEMA, "j")
    batch = fast.take()
    assert scanner.feed(batch) == len(batch)
    assert (scanner.fault, scanner.entries) == ("", 2)


def test_unknown_events_and_wrong_numbers_of_values_are_refused() -> None:
    fast = chain()
    for event, values in (("nothing", ()), ("e", ()), ("end", (1,))):
        with pytest.raises(Refused):
            fast.append(event, values, 0, 0)
    with pytest.raises(Refused):
        fast.append("end", (), -1, 0)
    with pytest.raises(Refused):
        fast.append("end", (), 0, -1)
    with pytest.raises(Refused):
        fast.append("end", (), 253_402_300_800_000_000, 0)
    assert fast.pending == 0


def test_the_longest_line_is_written_and_verified() -> None:
    fast = chain()
    put(fast, t="")
    room = MAX_LINE - fast.pending
    fast = chain()
    put(fast, t="x" * room, n=MAX_INTEGER % 10)
    assert fast.pending == MAX_LINE
    scanner = Scanner(SCHEMA, "j")
    assert scanner.feed(fast.take()) == MAX_LINE
    with pytest.raises(Refused):
        put(chain(), t="x" * (room + 1))


def test_line_separators_stay_in_one_line() -> None:
    fast = chain()
    put(fast, t="a\u2028b\u2029c\x85d\ne\rf")
    batch = fast.take()
    assert batch.count(b"\n") == 1
    assert Scanner(SCHEMA, "j").feed(batch) == len(batch)


def test_sha384() -> None:
    fast = chain("sha384")
    put(fast)
    put(fast)
    batch = fast.take()
    assert len(fast.head) == 96
    assert batch.split(b"\n")[0] + b"\n" == seal(batch.partition(b',"~h":"')[0], "j", "sha384")
    scanner = Scanner(SCHEMA, "j", "sha384")
    assert scanner.feed(batch) == len(batch)
    with pytest.raises(ValueError, match="algorithm"):
        chain("md5")


def test_the_journal_id_is_in_the_hash() -> None:
    fast = chain()
    put(fast)
    scanner = Scanner(SCHEMA, "k")
    assert scanner.feed(fast.take()) == 0
    assert scanner.fault == "hash"


def test_lines_fed_in_pieces() -> None:
    fast = chain()
    for _ in range(10):
        put(fast)
    batch = fast.take()
    scanner, at = Scanner(SCHEMA, "j"), 0
    for end in range(0, len(batch) + 1, 7):
        at += scanner.feed(batch[at:end])
    at += scanner.feed(batch[at:])
    assert (at, scanner.entries) == (len(batch), 10)
    assert scanner.feed(b"") == 0


def test_goes_on_from_a_head() -> None:
    fast = chain()
    put(fast)
    first = fast.take()
    again = Chain(SCHEMA, "j", {"boot": "b", "sess": "s", "uid": 0, "who": "w"}, head=head_of(first), seq=1)
    put(again)
    scanner = Scanner(SCHEMA, "j")
    scanner.feed(first + again.take())
    assert scanner.entries == 2


@pytest.mark.parametrize(("depth", "fault"), [(7, "seq"), (8, "canonical"), (5000, "canonical")])
def test_depth_is_bounded(depth: int, fault: str) -> None:
    scanner = Scanner(SCHEMA, "j")
    scanner.feed(seal(f'{{"_p":"{ZERO}","v":1,"x":{"[" * depth}{"]" * depth}', "j"))
    assert scanner.fault == fault


@pytest.mark.parametrize("members", [
    '"b":1,"a":1', '"a":1,"a":1', '"A":1', '"1":1', '"_a":1', '"":1', '"a" :1', '"a":9007199254740992', '"a":01', '"a":-',
    '"a":+1', '"a":1.0', '"a":1E2', '"a":[1,]', '"a":{"b":1,}', '"a":{"b":1,"a":2}', '"a":"\\x"', '"a":"\\u00e9"',
    '"a":"\\b\\u0008"', '"a":"\\u001F"', '"a":"\x7f\x1f"', '"a":nul', '"a"', '"a":', ',"a":1',
])  # fmt: skip
def test_other_spellings_are_not_canonical(members: str) -> None:
    scanner = Scanner(SCHEMA, "j")
    scanner.feed(seal(f'{{"_p":"{ZERO}",{members}', "j"))
    assert scanner.fault == "canonical"


def test_schemas_that_contradict_themselves() -> None:
    for forms in ({"e": (("a", "T"), ("a", "T"))}, {"e": (("at", "T"),)}, {"e": (("A", "T"),)}, {"e": (("a", "X"),)},
                  {"E": ()}, {"e": tuple((f"a{i}", "T") for i in range(60))}):
        with pytest.raises(ValueError):  # noqa: PT011
            Schema(forms)
