"""Settings on any input: a value, or a refusal with its place; never another exception, never a wider policy."""
from __future__ import annotations

from collections.abc import Callable

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from supervisor.errors import SettingError
from supervisor.guard.commands import judge_command
from supervisor.settings.config import parse_config
from supervisor.settings.parse import SPELLINGS, command_sets, parse_policy
from supervisor.settings.patterns import parse_pattern
from supervisor.settings.policy import Policy, resolve, restrict
from supervisor.settings.scanner import scan
from supervisor.types import Verdict

KEYS = st.sampled_from([
    "version", "defaults", "projects", "id", "roots", "users", "tools", "commands", "commandSets", "budgets", "limits",
    "execution",
    "environment", "thirdPartyFiles", "history", "apparmor", "memory", "actions", "Read", "*", "models", "name", "provider",
])
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8),
    st.sampled_from(["allow", "ask", "/", "4GiB", "server", "off", "1", "make *", "openai"]),
)
TREES = st.recursive(
    SCALARS, lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.one_of(KEYS, SCALARS), inner, max_size=5)),
    max_leaves=25,
)


def place(parse: Callable[[bytes, str], object], data: bytes) -> str:
    """Where the refusal says the fault is; FILE when there is none."""
    try:
        parse(data, "FILE")
    except SettingError as refused:
        return str(refused.on)
    return "FILE"


@settings(deadline=None)
@given(st.one_of(st.binary(max_size=200), TREES.map(lambda tree: yaml.safe_dump(tree, allow_unicode=True).encode())))
def test_any_bytes_are_a_policy_or_a_refusal_with_a_place(data: bytes) -> None:
    for parse in (parse_policy, parse_config):
        assert place(parse, data).startswith("FILE")


@settings(deadline=None)
@given(TREES)
def test_any_section_is_read_or_refused(tree: object) -> None:
    text = yaml.safe_dump(tree, default_flow_style=True).replace("\n...", "")
    assert place(parse_policy, b"version: 1\ndefaults: " + text.encode()).startswith("FILE")


VERDICTS = st.dictionaries(st.sampled_from(["Read", "Bash", "Write", "*"]), st.sampled_from(sorted(SPELLINGS)), max_size=4)


def made(tools: dict[str, str], actions: int) -> Policy:
    text = yaml.safe_dump({"version": 1, "defaults": {"tools": tools, "budgets": {"actions": actions}}})
    file = parse_policy(text.encode(), "P")
    return resolve(file.defaults, origin="administrator", sha256="0" * 64, project=None, sets=command_sets())


@given(VERDICTS, st.integers(1, 9), VERDICTS, st.integers(1, 9))
def test_a_restriction_never_widens(theirs: dict[str, str], their_actions: int, mine: dict[str, str], my_actions: int) -> None:
    base = made(theirs, their_actions)
    text = yaml.safe_dump({"version": 1, "defaults": {"tools": mine, "budgets": {"actions": my_actions}}})
    found = restrict(base, parse_policy(text.encode(), "U").defaults, source="U", sets=command_sets())
    for tool in ("Read", "Bash", "Write", "Other"):
        assert found.tool(tool) >= base.tool(tool)
    assert found.budgets.actions == min(their_actions, my_actions)


SHELL = st.text(alphabet="abrm -/$`'\"\\{}()<>|&;#*?~=!\n\r\t0123", max_size=40)


@given(st.one_of(SHELL, st.text(max_size=40)))
def test_any_command_has_a_verdict_and_what_is_free_is_plain(text: str) -> None:
    everything = [[parse_pattern("*")]]
    found = judge_command(text, everything)
    assert (found.reason is None) == (found.verdict is Verdict.ALLOW)
    if found.verdict is Verdict.ALLOW:
        pieces = scan(text.strip(" \t\n"))
        assert len(pieces.pieces) == 1
        assert all(word.known for word in pieces.pieces[0].words)
        assert not set("$`") & {char for word in pieces.pieces[0].words for char, quoted in word.chars if not quoted}
    assert judge_command(text, [[]]).verdict is not Verdict.ALLOW


@given(SHELL)
def test_a_dangerous_line_after_any_closed_text_is_refused(text: str) -> None:
    found = scan(text)
    if found.opaque or found.unterminated or text.endswith("\\"):
        return
    for tail in ("\nsudo id", "\nrm -rf /"):
        assert judge_command(text + tail, [[parse_pattern("*")]]).verdict is Verdict.EXCLUDE


@given(st.text(max_size=20))
def test_any_text_is_a_pattern_or_a_value_error(text: str) -> None:
    try:
        parse_pattern(text)
    except ValueError:
        return
    if "*" not in text:
        with pytest.raises(ValueError, match=r"\w"):
            parse_pattern(text + " > f")
