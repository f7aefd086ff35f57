"""The probes decide what the suite proves, so they are tested themselves."""
from __future__ import annotations

import pytest

from support import needs


def test_every_probe_answers_with_none_or_a_reason() -> None:
    for name in needs.PROBES:
        why = needs.missing(name)
        assert why is None or (why and "\n" not in why), name


def test_one_of_the_two_identities_holds() -> None:
    assert (needs.missing("root") is None) != (needs.missing("unprivileged") is None)


def test_a_lack_skips_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(needs.PROBES, "wings", lambda: "pigs have none")
    with pytest.raises(pytest.skip.Exception, match="needs wings: pigs have none"):
        needs.require("wings")


@pytest.mark.parametrize("declared", ["wings", "userns, wings", "all"])
def test_a_declared_lack_fails(monkeypatch: pytest.MonkeyPatch, declared: str) -> None:
    monkeypatch.setitem(needs.PROBES, "wings", lambda: "pigs have none")
    monkeypatch.setenv(needs.MUST_RUN, declared)
    with pytest.raises(pytest.fail.Exception, match="declares wings"):
        needs.require("wings")


def test_an_identity_never_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    other = "root" if needs.missing("root") else "unprivileged"
    monkeypatch.setenv(needs.MUST_RUN, "all")
    with pytest.raises(pytest.skip.Exception):
        needs.require(other)


def test_an_unknown_name_is_a_mistake() -> None:
    with pytest.raises(KeyError):
        needs.require("no such thing")
