"""The compiled chain against the plain one: same bytes for every value, and no second way to write them is accepted."""
from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from native.chain import Chain
from native.record import Schema
from native.scan import Scanner
from support.journal_oracle import ZERO, canonical, is_canonical, line, seal, when

JOURNAL = "0123456789abcdef0123456789abcdef"
FIELDS = (("words", "L"), ("text", "T?"), ("code", "I?"), ("count", "U"), ("flag", "B"), ("sha", "H"))
SCHEMA = Schema({"some.event": FIELDS, "last": ()})

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
integers = st.integers(-(2**53) + 1, 2**53 - 1)
counts = st.integers(0, 2**53 - 1)
micros = st.integers(0, 253_402_300_799_999_999)
values = st.tuples(st.lists(texts, max_size=4).map(tuple), st.none() | texts, st.none() | integers, counts, st.booleans(),
                   st.binary(min_size=32, max_size=32).map(bytes.hex))


def chain(who: str = "zoé", sess: str | None = "s", uid: int = 1000) -> Chain:
    return Chain(SCHEMA, JOURNAL, {"boot": "b", "sess": sess, "uid": uid, "who": who})


def scan(data: bytes) -> Scanner:
    scanner = Scanner(SCHEMA, JOURNAL)
    scanner.feed(data)
    return scanner


@given(st.lists(st.tuples(values, micros), min_size=1, max_size=5), texts, st.none() | texts, counts, texts, st.none() | texts)
def test_bytes_are_those_of_the_plain_chain(
    events: list[tuple[tuple[Any, ...], int]], who: str, sess: str | None, uid: int, agent: str, sub: str | None
) -> None:
    fast, expected, head = chain(who, sess, uid), b"", ZERO
    for seq, (value, at) in enumerate(events):
        assert fast.append("some.event", value, at, seq, agent, sub) == seq
        entry = dict(zip((key for key, _ in FIELDS), value, strict=True)) | {
            "_p": head, "at": when(at), "mono": seq, "boot": "b", "who": who, "uid": uid, "sess": sess, "sub": sub,
            "agent": agent, "seq": seq, "v": 1, "ev": "some.event"}
        expected += line(entry, JOURNAL)
        head = json.loads(expected.split(b"\n")[-2])["~h"]
    batch = fast.take()
    assert batch == expected
    assert fast.head == head
    scanner = scan(batch)
    assert (scanner.fault, scanner.entries, scanner.head) == ("", len(events), head)


@given(values, st.data())
@settings(max_examples=200)
def test_no_other_byte_is_accepted(value: tuple[Any, ...], data: st.DataObject) -> None:
    fast = chain()
    fast.append("some.event", value, 1, 1)
    batch = bytearray(fast.take())
    at = data.draw(st.integers(0, len(batch) - 2))
    batch[at] ^= data.draw(st.integers(1, 255))
    scanner = scan(bytes(batch))
    assert scanner.entries == 0


json_values = st.recursive(
    st.none() | st.booleans() | integers | texts,
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.from_regex(r"[a-z][a-z0-9_]{0,5}", fullmatch=True), inner, max_size=3),
    max_leaves=12,
)


@given(json_values)
def test_canonical_values_pass_the_form_and_meet_the_schema(value: Any) -> None:
    """The parser takes the whole subset; what it then says of an unknown field is *schema*, never *canonical*."""
    body = f'{{"_p":"{ZERO}","v":1,"x":{canonical(value)}'
    deep = canonical(value).count("[") + canonical(value).count("{") > 6
    assert scan(seal(body, JOURNAL)).fault in ({"seq"} | ({"canonical"} if deep else set()))


@given(json_values, st.sampled_from([", ", ": ", "0.0", "1e0", "00", "-0", "\\/", "\\u0041", "\\u000A", "\\ud800", "\\u2028",
                                     "\x01", "NaN", "tru", "]", "}", "{}x", " ", "\t", "\r"]))
def test_noise_behind_a_value_is_never_canonical(value: Any, noise: str) -> None:
    body = f'{{"_p":"{ZERO}","v":1,"x":{canonical(value)}{noise}'
    assert scan(seal(body, JOURNAL)).fault == "canonical"
    body = f'{{"_p":"{ZERO}","v":1,"x":"{noise}"'
    plain = json.dumps(noise, ensure_ascii=False) == f'"{noise}"'
    assert scan(seal(body, JOURNAL)).fault == ("seq" if plain else "canonical")


@given(st.dictionaries(st.from_regex(r"[a-z][a-z0-9_]{0,3}", fullmatch=True), json_values, min_size=1, max_size=4), st.data())
@settings(max_examples=400)
def test_the_form_is_what_python_finds_canonical(members: dict[str, Any], data: st.DataObject) -> None:
    """Edited at random, then judged by both: the compiled parser and Python's."""
    text = canonical(members)[1:-1]
    for _ in range(data.draw(st.integers(0, 3))):
        at = data.draw(st.integers(0, len(text)))
        piece = data.draw(st.text('{}[]",:\\abnu0019-.eE \té\u2028\x00', max_size=3))
        text = text[:at] + piece + text[at + data.draw(st.integers(0, 2)) :]
    if "\n" not in text and text:
        faults = {"schema", "version", "seq"} if is_canonical(text) else {"canonical"}
        assert scan(seal(f'{{"_p":"{ZERO}",{text}', JOURNAL)).fault in faults


@given(st.binary(max_size=30))
def test_strings_are_utf8_as_python_understands_it(raw: bytes) -> None:
    raw = raw.translate(None, b'"\\\n' + bytes(range(32)))
    try:
        raw.decode()
        good = True
    except UnicodeDecodeError:
        good = False
    body = b'{"_p":"' + ZERO.encode() + b'","v":1,"x":"' + raw + b'"'
    assert scan(seal(body, JOURNAL)).fault == ("seq" if good else "canonical")
