"""The page about policy and configuration is true: its examples are read, hold every key, and state the real defaults."""
from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from supervisor.errors import PolicyError
from supervisor.settings.bounds import EXECUTION_VARIABLE, VARIABLES, Bounds, compute_bounds
from supervisor.settings.config import EXECUTION_KEYS, parse_config
from supervisor.settings.document import Document
from supervisor.settings.parse import _LIMITS, _SectionReader, command_sets, parse_policy
from supervisor.settings.policy import Section, resolve
from supervisor.workspace.exclusions import BUILT_IN

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/policy.md").read_text()
POLICY, CONFIGURATION = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)


def test_the_policy_on_the_page_is_the_default_one_and_holds_every_key() -> None:
    file = parse_policy(POLICY.encode(), "policy.md")
    shown = resolve(file.defaults, origin="none", sha256="", project=None, sets=command_sets())
    shown = replace(shown, idle=frozenset(), limits=replace(shown.limits, minutes=None))  # it follows the session's, 45 as well
    assert shown == resolve(Section(), origin="none", sha256="", project=None, sets=command_sets())
    for key in (*_SectionReader(Document("", PolicyError)).known, *_LIMITS):
        assert re.search(rf"^ +{key}:", POLICY, re.MULTILINE), key


def test_the_configuration_on_the_page_is_the_default_one_and_holds_every_key() -> None:
    config = parse_config(CONFIGURATION.encode(), "policy.md")
    policy = resolve(Section(), origin="none", sha256="", project=None, sets=command_sets())
    assert compute_bounds({}, config, policy) == Bounds()
    assert {key for key, _ in config.origins} == set(EXECUTION_KEYS)
    assert config.model().provider == "openai"


def test_every_variable_is_named() -> None:
    for name in (*VARIABLES, EXECUTION_VARIABLE):
        assert f"`{name}`" in PAGE


def test_the_exclusions_that_always_hold_are_named_exactly() -> None:
    (comment,) = re.findall(r"contextExclusions: .*beside (.*)", PAGE)
    (row,) = re.findall(r"It reads secrets inside the repository \| (.*), in any case", (ROOT / "SECURITY.md").read_text())
    assert comment.split() == re.findall(r"`(.*?)`", row) == list(BUILT_IN)
