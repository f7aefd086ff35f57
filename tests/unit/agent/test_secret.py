"""A key does not show itself, and is read only from where it is kept with care."""
from __future__ import annotations

import os
import pickle
from pathlib import Path

import pytest

from agent.errors import SecretError
from agent.providers.endpoint import Endpoint
from agent.providers.secret import Secret, secret_from_environment, secret_from_file

KEY = "sk-very-secret-0123456789"


def test_a_secret_does_not_print() -> None:
    secret = Secret(KEY)
    endpoint = Endpoint("n", "http://h/v1", "m", secret)
    shown = [repr(secret), str(secret), f"{secret}", f"{secret!r}", repr([secret]), repr(endpoint)]
    assert not [text for text in shown if KEY in text]
    assert secret.reveal() == KEY
    assert secret.redact(f"bad key {KEY}!") == "bad key [key]!"
    with pytest.raises(TypeError):
        pickle.dumps(secret)
    assert not hasattr(secret, "__dict__")


def test_from_the_environment() -> None:
    assert secret_from_environment("K", {"K": KEY}).reveal() == KEY
    for environment in ({}, {"K": ""}, {"K": "a b"}, {"K": "a\nx: y"}, {"K": "é"}, {"K": "x" * 10_000}):
        with pytest.raises(SecretError) as caught:
            secret_from_environment("K", environment)
        assert caught.value.on == "K"


def test_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text(KEY + "\n")
    file.chmod(0o600)
    assert secret_from_file(file).reveal() == KEY
    file.chmod(0o644)
    with pytest.raises(SecretError, match="every user can read it") as caught:
        secret_from_file(file)
    assert caught.value.remedy == f"chmod 600 {file}"
    file.chmod(0o600)
    file.write_bytes(b"\xff\xfe\n")
    with pytest.raises(SecretError):
        secret_from_file(file)


def test_files_that_are_none(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    for path in (tmp_path / "absent", tmp_path, fifo):
        with pytest.raises(SecretError) as caught:
            secret_from_file(path)
        assert caught.value.on == str(path)
