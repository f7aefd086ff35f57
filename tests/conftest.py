"""What holds for every test: needs are checked before it starts, and the environment is the test's own.

A test touches only what it made. It gets a private HOME and no ``LEMNI_*``/``LEMNISCATE_*`` variable of the person who
runs the suite, so that it passes on any machine, in any order, twice, and beside another run of itself.
"""
from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from support import needs

# A busy machine is no failure. ``make test-long`` takes the second profile.
settings.register_profile("suite", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("long", settings.get_profile("suite"), max_examples=2000)
settings.load_profile("suite")

KEPT = {needs.MUST_RUN}


def pytest_runtest_setup(item: pytest.Item) -> None:
    """``@pytest.mark.needs("userns", "landlock")``: the same as calling ``needs.require`` first."""
    for mark in item.iter_markers("needs"):
        needs.require(*mark.args)


def pytest_report_header() -> list[str]:
    """Say at the top what the machine lacks: it is what will be skipped."""
    capabilities = (name for name in needs.PROBES if name not in needs.IDENTITIES)
    lacking = [f"{name} ({why})" for name in capabilities if (why := needs.missing(name))]
    return [f"uid: {os.geteuid()}", "lacks: " + ("; ".join(lacking) if lacking else "nothing")]


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No setting of the caller reaches a test."""
    for name in list(os.environ):
        if name.startswith(("LEMNI_", "LEMNISCATE_", "XDG_")) and name not in KEPT:
            monkeypatch.delenv(name)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A private, empty HOME, in force for the test and what it starts."""
    directory = tmp_path / "home"
    directory.mkdir(mode=0o700)
    monkeypatch.setenv("HOME", str(directory))
    return directory


@pytest.fixture
def public_tmp() -> Iterator[Path]:
    """A temporary directory that other users may enter (``tmp_path`` is closed to them), for tests that run as root."""
    directory = Path(tempfile.mkdtemp(prefix="lemni-test-"))
    directory.chmod(0o755)
    yield directory
    for here, names, _ in os.walk(directory):  # overlayfs leaves a directory that its owner may not enter
        for name in names:
            path = os.path.join(here, name)
            if not os.path.islink(path):
                with contextlib.suppress(OSError):
                    os.chmod(path, 0o700)
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def repo(public_tmp: Path) -> Path:
    """A small git repository with one commit (``README``, ``src/a.py``), owned by the user that runs the test."""
    needs.require("git")
    directory = public_tmp / "repo"
    (directory / "src").mkdir(parents=True)
    (directory / "README").write_text("a repository\n")
    (directory / "src/a.py").write_text("print('a')\n")
    identity = ("-c", "user.name=Test", "-c", "user.email=test@example.invalid")
    for arguments in (("init", "-q", "-b", "main"), ("add", "."), (*identity, "commit", "-q", "-m", "first")):
        subprocess.run(["git", *arguments], cwd=directory, check=True, stdin=subprocess.DEVNULL)
    return directory
