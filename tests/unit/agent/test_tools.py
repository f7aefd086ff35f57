"""The catalogue is closed; arguments are read strictly, and a refusal says what is accepted."""
from __future__ import annotations

import json
import re
from typing import Any

import pytest

from agent.calls import Call, parse_arguments
from agent.tools.catalogue import CATALOGUE, Catalogue
from supervisor.types import TOOL_OF, BashCall, EditCall, ListCall, Proposal, ReadCall, Reason, SearchCall, WriteCall

ALL = Catalogue(tuple(TOOL_OF.values()))


def propose(tool: str, raw: str | dict[str, Any], catalogue: Catalogue = ALL) -> Proposal:
    text = raw if isinstance(raw, str) else json.dumps(raw)
    read = parse_arguments(text)
    fault = read if isinstance(read, str) else ""
    return catalogue.propose(Call("c00000001", tool, text, None if isinstance(read, str) else read, fault))


@pytest.mark.parametrize("raw", ["{", '{"path"', '{"path": "a"', "[1,", '"half'])
def test_arguments_that_end_too_early_are_never_said_to_go_on(raw: str) -> None:
    fault = parse_arguments(raw)
    assert isinstance(fault, str)
    found = re.search(r"character (\d+) of (\d+)", fault)
    assert found is None or int(found[1]) <= int(found[2]), fault


def test_the_catalogue_is_that_of_the_supervisor_in_its_order() -> None:
    assert [tool.name for tool in CATALOGUE] == list(TOOL_OF.values())
    assert ALL.names == tuple(TOOL_OF.values())
    assert Catalogue(("Bash", "Read", "Nonsense")).names == ("Read", "Bash")


@pytest.mark.parametrize(
    ("tool", "arguments", "action"),
    [
        ("Read", {"path": "a"}, ReadCall("a")),
        ("Read", {"path": "a", "offset": 3, "limit": 1}, ReadCall("a", 3, 1)),
        ("List", {"path": "."}, ListCall(".")),
        ("Search", {"pattern": "$(x)"}, SearchCall("$(x)")),
        ("Search", {"pattern": "x", "path": "src", "glob": "*.py"}, SearchCall("x", "src", "*.py")),
        ("Write", {"path": "a", "content": ""}, WriteCall("a", "")),
        ("Edit", {"path": "a", "old": "x", "new": ""}, EditCall("a", "x", "")),
        ("Edit", {"path": "a", "old": "x", "new": "y", "all": True}, EditCall("a", "x", "y", True)),
        ("Bash", {"command": "true"}, BashCall("true")),
        ("Bash", {"command": "true", "timeout": 5}, BashCall("true", 5)),
        ("Read", {"path": "b\udcff"}, ReadCall("b\udcff")),
    ],
)
def test_right_arguments(tool: str, arguments: dict[str, Any], action: object) -> None:
    proposal = propose(tool, arguments)
    assert proposal.action == action
    assert proposal.fault is None
    assert proposal.raw_arguments == json.dumps(arguments)


@pytest.mark.parametrize(
    ("tool", "arguments", "says"),
    [
        ("Read", {}, "path is missing. Accepted: path, offset (optional), limit (optional)"),
        ("Read", {"file": "a"}, '"file" is no argument of Read. Accepted: path'),
        ("Read", {"path": "a", "extra": 1}, '"extra" is no argument'),
        ("Read", {"path": 1}, "path is a whole number; a string is accepted"),
        ("Read", {"path": None}, "path is null"),
        ("Read", {"path": ["a"]}, "path is an array"),
        ("Read", {"path": ""}, "path is empty"),
        ("Read", {"path": "a\0b"}, "U+0000"),
        ("Read", {"path": "a" * 5000}, "at most 4096"),
        ("Read", {"path": "\ud800"}, "\\ud800"),
        ("Read", {"path": "a", "offset": 0}, "offset is out of range; 1 to"),
        ("Read", {"path": "a", "offset": "1"}, "offset is a string; a whole number"),
        ("Read", {"path": "a", "offset": True}, "offset is a boolean"),
        ("Read", {"path": "a", "offset": 1.0}, "offset is a number; a whole number"),
        ("Read", {"path": "a", "limit": None}, "limit is null"),
        ("Read", {"path": "a", "offset": 10**30}, "out of range"),
        ("Search", {"pattern": ""}, "pattern is empty"),
        ("Write", {"path": "a", "content": "\udcff"}, "half of a surrogate pair"),
        ("Edit", {"path": "a", "old": "", "new": "x"}, "old is empty"),
        ("Edit", {"path": "a", "old": "x", "new": "x"}, "nothing to change"),
        ("Edit", {"path": "a", "old": "x", "new": "y", "all": "yes"}, "all is a string; true or false"),
        ("Bash", {"command": " "}, "command is empty"),
        ("Bash", {"command": "true", "timeout": 0}, "timeout is out of range"),
        ("Bash", {"command": "true", "timeout": 2.5}, "a whole number"),
        ("Bash", {"command": "true", "background": True}, "background"),
        ("Bash", {"command": "x" * 200_000}, "at most 131072"),
    ],
)
def test_wrong_arguments_say_what_is_accepted(tool: str, arguments: dict[str, Any], says: str) -> None:
    proposal = propose(tool, arguments)
    assert proposal.action is None
    assert proposal.fault is Reason.MALFORMED
    assert says in proposal.fault_text
    assert proposal.fault_text.startswith(f"{tool}: ")


def test_a_duplicate_key_is_malformed() -> None:
    proposal = propose("Read", '{"path": "a", "path": "b"}')
    assert proposal.fault is Reason.MALFORMED
    assert "twice" in proposal.fault_text


@pytest.mark.parametrize("name", ["Frobnicate", "read", "Read ", "ReadList", "Read\n<b>", "x" * 1000, "\ud800"])
def test_an_unknown_tool_names_those_that_there_are(name: str) -> None:
    proposal = propose(name, "", Catalogue(("Read", "List")))
    assert proposal.fault is Reason.UNKNOWN_TOOL
    assert "Tools of this session: Read, List." in proposal.fault_text
    assert len(proposal.tool) <= 70
    proposal.fault_text.encode()
    proposal.tool.encode()


def test_a_tool_outside_the_session_is_still_proposed() -> None:
    assert propose("Bash", {"command": "true"}, Catalogue(("Read",))).action == BashCall("true")


def test_schemas_and_readers_agree() -> None:
    for tool in CATALOGUE:
        schema = tool.schema()["function"]["parameters"]
        assert schema["additionalProperties"] is False
        fields = {field.name: field for field in tool.fields}
        assert list(schema["properties"]) == list(fields)
        assert schema["required"] == [name for name, field in fields.items() if field.required]
        json.dumps(tool.schema())
