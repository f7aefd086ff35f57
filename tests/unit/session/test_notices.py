"""What a session announces before it opens."""
from __future__ import annotations

from supervisor.session import prepare
from supervisor.settings.bounds import compute_bounds
from supervisor.settings.config import Config
from supervisor.settings.policy import Budgets, Section, ThirdParty, resolve
from supervisor.types import Layer


def test_layers_that_are_off_for_one_reason_are_announced_together() -> None:
    policy = resolve(Section(), origin="user", sha256="a" * 64, project=None, sets={})
    layers = (
        Layer("seccomp", True, "kill"), Layer("apparmor", False, "absent"),
        Layer("cgroup memory", False, "not delegated", "delegate"), Layer("cgroup pids", False, "not delegated", "delegate"),
    )
    assert prepare._notices(policy, compute_bounds({}, Config(), policy), layers) == (
        ("layer_off", "apparmor is off: absent"),
        ("layer_off", "cgroup memory, cgroup pids are off: not delegated; delegate"),
    )


def test_what_the_policy_says_without_effect_is_announced_and_what_it_leaves_out_is_not() -> None:
    said = Section(history="hide", third_party=(("hooks", ThirdParty()),), budgets=Budgets(actions=3, extensions=1))
    policy = resolve(said, origin="user", sha256="a" * 64, project=None, sets={})
    notices = dict(prepare._notices(policy, compute_bounds({}, Config(), policy), ()))
    assert notices["without_effect"] == (
        "set in the policy, without effect in this version: budgets.extensions, history, thirdPartyFiles;"
        " the repository's commits can be read"
    )
    assert resolve(Section(), origin="user", sha256="a" * 64, project=None, sets={}).idle == frozenset()
