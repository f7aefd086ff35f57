"""Bounds: defaults < environment < configuration, capped by the policy; every deviation announced."""
from __future__ import annotations

import pytest

from supervisor.errors import SettingError
from supervisor.settings.bounds import VARIABLES, Bounds, compute_bounds
from supervisor.settings.config import Config, parse_config
from supervisor.settings.parse import command_sets, parse_policy
from supervisor.settings.policy import Policy, resolve


def policy(text: str = "{}") -> Policy:
    file = parse_policy(f"version: 1\ndefaults: {text}".encode(), "P")
    return resolve(file.defaults, origin="user", sha256="0" * 64, project=None, sets=command_sets())


def config(text: str = "{}") -> Config:
    return parse_config(f"execution: {text}".encode(), "C")


def test_defaults() -> None:
    found = compute_bounds({}, config(), policy())
    assert found == Bounds()
    assert (found.actions, found.minutes, found.extensions, found.loop_threshold) == (150, 45, 5, 3)
    assert (found.command_seconds, found.command_output_bytes) == (600, 10485760)
    assert found.announcements == ()


@pytest.mark.parametrize(("variable", "key", "field"), [
    ("LEMNISCATE_SESSION_MAX_ACTIONS", "sessionMaxActions", "actions"),
    ("LEMNISCATE_SESSION_MAX_MINUTES", "sessionMaxMinutes", "minutes"),
    ("LEMNISCATE_SESSION_MAX_EXTENSIONS", "sessionMaxExtensions", "extensions"),
])
def test_precedence(variable: str, key: str, field: str) -> None:
    both = compute_bounds({variable: "4"}, config(f"{{{key}: 2}}"), policy())
    assert getattr(both, field) == 2
    assert getattr(compute_bounds({variable: "4"}, config(), policy()), field) == 4
    capped = compute_bounds({variable: "4"}, config(), policy(f"{{budgets: {{{field}: 3}}}}"))
    assert getattr(capped, field) == 3
    assert "the policy" in capped.announcements[0].text


def test_a_policy_without_budget_sets_no_ceiling_and_with_one_does_not_raise() -> None:
    assert compute_bounds({}, config("{sessionMaxActions: 5000}"), policy()).actions == 5000
    assert compute_bounds({}, config(), policy("{budgets: {actions: 5000}}")).actions == 150


def test_every_deviation_is_announced_with_its_origin_and_direction() -> None:
    found = compute_bounds(
        {"LEMNISCATE_COMMAND_MAX_SECONDS": "5"},
        config("\n  sessionMaxActions: 200\n  toolLoopDetection: false\n  toolLoopThreshold: 3"
               "\n  continueAfterToolRejection: true"),
        policy("{budgets: {modelBytes: 1MiB}}"),
    )
    said = {announcement.key: (announcement.direction, announcement.origin) for announcement in found.announcements}
    assert said == {
        "sessionMaxActions": ("loosens", "C:2"),
        "toolLoopDetection": ("switches off", "C:3"),
        "continueAfterToolRejection": ("loosens", "C:5"),
        "LEMNISCATE_COMMAND_MAX_SECONDS": ("tightens", "LEMNISCATE_COMMAND_MAX_SECONDS"),
        "budgets.modelBytes": ("tightens", "the policy"),
    }
    assert found.announcements[0].text == "sessionMaxActions is 200 (default 150): C:2 loosens it"
    off = next(a for a in found.announcements if a.key == "toolLoopDetection")
    assert off.text == f"toolLoopDetection is false (default true): {off.origin} switches it off"


@pytest.mark.parametrize("variable", sorted(VARIABLES))
@pytest.mark.parametrize("value", ["abc", "", " 5", "+5", "-3", "1.5", "1e3", "0x10", "5 ", "٣", "inf", "9" * 30, "null"])
def test_an_unreadable_variable_is_refused_even_when_configured(variable: str, value: str) -> None:
    with pytest.raises(SettingError) as refused:
        compute_bounds({variable: value}, config("{sessionMaxActions: 5}"), policy())
    assert refused.value.on == variable
    assert repr(value) in str(refused.value)


@pytest.mark.parametrize("text", [
    "{sessionMaxActions: 0}", "{sessionMaxActions: 1000000000}", "{sessionMaxMinutes: 'x'}", "{sessionMaxMinutes: 1.5}",
    "{toolLoopThreshold: 0}", "{toolLoopThreshold: null}", "{toolLoopDetection: 0}", "{toolLoopDetection: no}",
    "{toolLoopDetection: null}", "{sessionMaxAction: 5}", "[1]",
])
def test_an_unreadable_key_is_refused(text: str) -> None:
    with pytest.raises(SettingError) as refused:
        config(text)
    assert refused.value.on == "C:1"


def test_zero_extensions_are_a_bound() -> None:
    assert compute_bounds({"LEMNISCATE_SESSION_MAX_EXTENSIONS": "0"}, config(), policy()).extensions == 0


@pytest.mark.parametrize("value", ["docker", "Server", "", "workstation ", "SERVER"])
def test_an_unknown_place_is_refused_with_both_accepted_ones(value: str) -> None:
    with pytest.raises(SettingError) as refused:
        compute_bounds({"LEMNISCATE_AGENT_EXECUTION": value}, config(), policy())
    assert refused.value.code == "execution_refused"
    assert repr(value) in str(refused.value)
    assert "workstation or server" in str(refused.value)


def test_places() -> None:
    for value, text, code in (
        ("server", "{}", "gateway_missing"),
        ("workstation", "{execution: [server]}", "execution_refused"),
        ("server", "{execution: [workstation]}", "execution_refused"),
    ):
        with pytest.raises(SettingError) as refused:
            compute_bounds({"LEMNISCATE_AGENT_EXECUTION": value}, config(), policy(text))
        assert refused.value.code == code
    assert compute_bounds({"LEMNISCATE_AGENT_EXECUTION": "workstation"}, config(), policy()).execution == "workstation"


MODELS = """\
models:
  - name: local
    provider: openai
    apiBase: http://127.0.0.1:8000/v1
    model: qwen3-coder
    apiKeyEnv: LEMNI_API_KEY
  - {name: demo, provider: scripted, script: path.yaml}
"""


def test_models() -> None:
    found = parse_config(MODELS.encode(), "C")
    assert found.model().name == "local"
    assert found.model().api_base == "http://127.0.0.1:8000/v1"
    assert found.model("demo").script == "path.yaml"
    assert found.model("demo").origin == "C:7"
    for name, empty, code in (("other", found, "model_unknown"), (None, Config(), "model_missing")):
        with pytest.raises(SettingError) as refused:
            empty.model(name)
        assert refused.value.code == code


@pytest.mark.parametrize("text", [
    "models: [{name: a}]", "models: [{provider: openai, apiBase: http://x, model: m}]", "models: [{name: a, provider: other}]",
    "models: [{name: a, provider: openai, model: m}]", "models: [{name: a, provider: openai, apiBase: ftp://x, model: m}]",
    "models: [{name: a, provider: scripted}]", "models: [{name: a, provider: scripted, script: x, key: y}]",
    "models: [{name: a, provider: scripted, script: x}, {name: a, provider: scripted, script: y}]",
    "models: [{name: a, provider: openai, apiBase: http://x, model: m, apiKeyEnv: A, apiKeyFile: b}]",
    "models: {}", "model: []",
])
def test_wrong_models_are_refused(text: str) -> None:
    with pytest.raises(SettingError):
        parse_config(text.encode(), "C")


def test_the_users_configuration_lies_over_the_hosts() -> None:
    host = parse_config(b"models: [{name: a, provider: scripted, script: h}, {name: b, provider: scripted, script: h}]\n"
                        b"execution: {sessionMaxActions: 5, sessionMaxMinutes: 6}", "H")
    user = parse_config(b"models: [{name: a, provider: scripted, script: u}]\nexecution: {sessionMaxActions: 7}", "U")
    both = user.over(host)
    assert [(model.name, model.script) for model in both.models] == [("a", "u"), ("b", "h")]
    assert (both.execution.session_max_actions, both.execution.session_max_minutes) == (7, 6)
    assert dict(both.origins) == {"sessionMaxActions": "U:2", "sessionMaxMinutes": "H:2"}


@pytest.mark.parametrize("url", ["http://x:99999/v1", "http://x:0", "http://", "http://ada:sk-secret@x/v1", "http://x/v1?key=sk-secret",
                                 "http://x/v1#sk-secret", "http://[::1/v1"])
def test_an_address_that_is_none_is_refused_by_its_line_and_not_shown(url: str) -> None:
    with pytest.raises(SettingError) as refused:
        parse_config(f"models:\n- {{name: a, provider: openai, model: m, apiBase: '{url}'}}".encode(), "C")
    assert refused.value.on == "C:2"
    assert "sk-secret" not in str(refused.value)
