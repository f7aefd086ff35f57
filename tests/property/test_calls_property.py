"""Calls under any fragmentation and interleaving; arguments under any text."""
from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from agent.calls import Assembler, Call, CallDelta, Extent, Numbering, parse_arguments
from agent.tools.catalogue import CATALOGUE, Catalogue
from supervisor.types import CallState, Proposal

CHARS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | CHARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(CHARS, inner, max_size=3),
    max_leaves=8,
)
ARGUMENTS = st.dictionaries(CHARS, VALUES, max_size=4)
NAMES = st.sampled_from([tool.name for tool in CATALOGUE])


@st.composite
def _pieces(draw: st.DrawFn, raw: str) -> list[str]:
    cuts = sorted(draw(st.lists(st.integers(0, len(raw)), max_size=8)))
    return [raw[a:b] for a, b in zip([0, *cuts], [*cuts, len(raw)], strict=True)]


@st.composite
def interleaved(draw: st.DrawFn) -> tuple[list[tuple[str, object]], list[CallDelta], str]:
    """Some calls, their fragments in any interleaving, in a dialect that says where each belongs."""
    calls = draw(st.lists(st.tuples(NAMES, ARGUMENTS), min_size=1, max_size=5))
    dialect = draw(st.sampled_from(["index", "index and id", "index and same id", "id", "index, all repeated"]))
    queues: list[list[CallDelta]] = []
    for number, (name, arguments) in enumerate(calls):
        index = None if dialect == "id" else number
        id = {"index": None, "index and same id": "same"}.get(dialect, f"id{number}")
        always = dialect == "index, all repeated"
        pieces = draw(_pieces(json.dumps(arguments, ensure_ascii=draw(st.booleans()))))
        head = [CallDelta(index, id, name)]
        keep = id if dialect == "id" or always else None
        queues.append(head + [CallDelta(index, keep, name if always else None, piece) for piece in pieces])
    order = draw(st.permutations([number for number, queue in enumerate(queues) for _ in queue]))
    return [(name, arguments) for name, arguments in calls], [queues[number].pop(0) for number in order], dialect


@given(interleaved())
def test_every_interleaving_gives_the_calls_back(case: tuple[list[tuple[str, object]], list[CallDelta], str]) -> None:
    calls, deltas, _dialect = case
    assembler = Assembler(Numbering())
    for delta in deltas:
        assembler.feed(delta)
    found = [(call.tool, call.arguments, call.fault) for call in assembler.finish(cut=False)]
    begun: dict[int | str | None, int] = {}
    for delta in deltas:  # calls come in the order in which they began
        begun.setdefault(delta.index if delta.index is not None else delta.id, len(begun))
    expected = sorted(range(len(calls)), key=lambda n: begun[n if n in begun else f"id{n}"])
    assert found == [(calls[n][0], calls[n][1], "") for n in expected]


@given(st.lists(st.tuples(NAMES, ARGUMENTS), min_size=1, max_size=4), st.data())
def test_one_after_the_other_with_nothing_but_names(calls: list[tuple[str, object]], data: st.DataObject) -> None:
    assembler = Assembler(Numbering())
    for name, arguments in calls:
        pieces = data.draw(_pieces(json.dumps(arguments)))
        assembler.feed(CallDelta(name=name))
        for piece in pieces:
            assembler.feed(CallDelta(fragment=piece))
    found = assembler.finish(cut=False)
    assert [(call.tool, call.arguments) for call in found if not call.fault] == calls


DELTAS = st.builds(
    CallDelta, st.none() | st.integers(0, 3), st.none() | st.sampled_from(["", "a", "b"]),
    st.none() | st.sampled_from(["", "Read", "List"]),
    st.sampled_from(["", "{", "}", '"', "\\", ":", "path", '{"path": "x"}', " ", "[", "\ud83d", "\ude00"]) | CHARS,
)


@given(st.lists(DELTAS, max_size=30), st.booleans())
def test_any_deltas_end_in_calls_and_lose_nothing(deltas: list[CallDelta], cut: bool) -> None:
    numbering = Numbering()
    assembler = Assembler(numbering)
    for delta in deltas:
        assembler.feed(delta)
    calls = assembler.finish(cut=cut)
    assert len({call.call_id for call in calls}) == len(calls)
    for call in calls:
        assert call.tool in ("", "Read", "List")
        assert call.state is (CallState.ERRORED if call.fault else CallState.GENERATED)
        if not call.fault:
            assert json.loads(call.raw) == call.arguments
            assert call.tool
        call.raw.encode()
    if not any("\ud83d" in d.fragment or "\ude00" in d.fragment for d in deltas):
        assert sum(len(call.raw) for call in calls) == sum(len(delta.fragment) for delta in deltas)


@given(st.text() | CHARS.map(lambda text: '{"path": ' + text) | ARGUMENTS.map(json.dumps))
def test_arguments_are_one_object_or_a_text(raw: str) -> None:
    read = parse_arguments(raw)
    if not isinstance(read, str):
        assert json.loads(raw) == read
    call = Call("c00000001", "Read", raw, None if isinstance(read, str) else read, read if isinstance(read, str) else "")
    for name in ("Read", "Nonsense", ""):
        proposal = Catalogue(("Read",)).propose(Call("c00000001", name, raw, call.arguments, call.fault or "no name"))
        assert isinstance(proposal, Proposal)
        assert (proposal.action is None) == (proposal.fault is not None)


@given(ARGUMENTS, st.data())
def test_the_extent_does_not_depend_on_the_cuts(arguments: object, data: st.DataObject) -> None:
    raw = json.dumps(arguments) + data.draw(st.sampled_from(["", " ", "\n", "x", "{}"]))
    whole, cut = Extent(), Extent()
    whole.feed(raw)
    for piece in data.draw(_pieces(raw)):
        cut.feed(piece)
    assert (whole.closed, whole.excess) == (cut.closed, cut.excess)
    assert whole.closed
