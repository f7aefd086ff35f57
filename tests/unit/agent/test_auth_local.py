"""The identity comes from the name service and the real uid, whatever the environment says."""
from __future__ import annotations

import os
import pwd

import pytest

from agent.auth.local import identify
from agent.errors import IdentityError


def test_the_real_uid_through_the_name_service(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("USER", "mallory")
    monkeypatch.setenv("LOGNAME", "mallory")
    identity = identify()
    assert (identity.name, identity.uid, identity.source) == (pwd.getpwuid(os.getuid()).pw_name, os.getuid(), "nss")


def test_an_unknown_uid_is_refused() -> None:
    unknown = next(uid for uid in range(3_000_000_000, 3_000_100_000) if not _known(uid))
    with pytest.raises(IdentityError) as caught:
        identify(unknown)
    assert caught.value.code == "identity_unresolved"
    assert caught.value.remedy


def _known(uid: int) -> bool:
    try:
        pwd.getpwuid(uid)
    except KeyError:
        return False
    return True
