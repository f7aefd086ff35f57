"""The state directory: private, ours, and where the standard says."""
from __future__ import annotations

import os
from pathlib import Path

import pytest

from supervisor.errors import StoreError
from supervisor.session.state import private_directory, state_directory


def test_it_stands_where_xdg_says_or_below_home(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert state_directory() == home / ".local/state/lemniscate"
    assert state_directory().stat().st_mode & 0o777 == 0o700
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "xdg"))
    assert state_directory() == tmp_path / "xdg/lemniscate"
    monkeypatch.setenv("XDG_STATE_HOME", "relative")  # the standard: a relative path is ignored
    assert state_directory() == home / ".local/state/lemniscate"


def test_others_may_not_write_in_it(tmp_path: Path) -> None:
    open_to_all = tmp_path / "state"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    with pytest.raises(StoreError) as refused:
        private_directory(open_to_all)
    assert refused.value.code == "state_untrusted"
    assert refused.value.remedy == f"chmod 700 {open_to_all}"


def test_a_file_in_its_place_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "state").touch()
    with pytest.raises(StoreError):
        private_directory(tmp_path / "state")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give a directory away")
def test_it_is_ours(tmp_path: Path) -> None:
    given = tmp_path / "state"
    given.mkdir()
    os.chown(given, 4242, 4242)
    with pytest.raises(StoreError):
        private_directory(given)
