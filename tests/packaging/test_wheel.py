"""What is shipped works: sdist from the sources, wheel from that sdist, installed elsewhere, run from elsewhere."""
from __future__ import annotations

import shutil
import stat
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from supervisor.version import VERSION
from support import needs
from support.lemni import ROOT, lemni
from support.source import project_files


@dataclass(frozen=True, slots=True)
class Shipped:
    """What was built, and from which files."""

    sources: list[Path]
    sdist: Path
    wheel: Path


def build(kind: str, source: Path, target: Path) -> Path:
    """Build as PyPA's front end does, with the requirements that are installed here: no network is needed."""
    done = subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", kind, "--outdir", str(target), str(source)],
        cwd=target, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    (built,) = target.glob("*.tar.gz" if kind == "--sdist" else "*.whl")
    return built


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> Shipped:
    """The sdist, made from a copy of the sources, and the wheel, made from the unpacked sdist."""
    needs.require("cc")
    clone, places = tmp_path_factory.mktemp("clone"), [tmp_path_factory.mktemp(name) for name in ("sdist", "open", "wheel")]
    sources = project_files()
    for path in sources:
        (clone / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / path, clone / path)
    sdist = build("--sdist", clone, places[0])
    subprocess.run(["tar", "-xzf", str(sdist)], cwd=places[1], check=True)
    return Shipped(sources, sdist, build("--wheel", places[1] / f"lemniscate-{VERSION}", places[2]))


@pytest.fixture(scope="module")
def installed(shipped: Shipped, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh environment with the wheel in it and this one's third-party packages beside it."""
    environment = tmp_path_factory.mktemp("venv")
    venv.create(environment, with_pip=False, symlinks=True)
    python = environment / "bin/python"
    packages = Path(
        subprocess.run(
            [python, "-c", "import sysconfig; print(sysconfig.get_path('platlib'))"], check=True, capture_output=True, text=True
        ).stdout.strip()
    )
    (packages / "third-party.pth").write_text(sysconfig.get_path("platlib") + "\n")
    subprocess.run(
        [sys.executable, "-m", "pip", "--python", str(python), "install", "-qq", "--no-deps", "--no-index", str(shipped.wheel)],
        check=True, stdin=subprocess.DEVNULL,
    )
    return environment


def test_the_sdist_holds_every_source(shipped: Shipped) -> None:
    with tarfile.open(shipped.sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert sorted({path.as_posix() for path in shipped.sources} - names) == []


def test_the_wheel_holds_what_runs_and_nothing_else(shipped: Shipped) -> None:
    with zipfile.ZipFile(shipped.wheel) as wheel:
        modes = {info.filename: info.external_attr >> 16 for info in wheel.infolist()}
    for path in shipped.sources:
        if path.parts[0] in {"supervisor", "agent", "native", "profiles"} and path.suffix in {".py", ".pyi", ".toml"}:
            assert (path.as_posix() in modes) != path.name.endswith("_build.py"), path
    assert stat.S_IMODE(modes["native/lemni-init"]) & 0o111 == 0o111
    assert any(name.endswith("share/man/man1/lemni.1") for name in modes)
    assert {"agent/py.typed", "native/py.typed", "profiles/py.typed", "supervisor/py.typed"} <= modes.keys()
    native = [path.name for path in shipped.sources if path.parts[0] == "native"]
    compiled = {name.removesuffix(".pyx") for name in native if name.endswith(".pyx")}
    compiled |= {"_" + name.removesuffix("_build.py") for name in native if name.endswith("_build.py")}
    assert {name.split("/")[1].split(".")[0] for name in modes if name.endswith(".so")} == compiled
    assert not [name for name in modes if name.endswith((".c", ".h", ".pyx", ".o")) or name.startswith(("tests", "demo"))]


def test_the_installed_lemni_says_its_version(installed: Path, tmp_path: Path) -> None:
    ended = lemni("--version", cwd=tmp_path, home=tmp_path, argv=[str(installed / "bin/lemni")], env={"PYTHONPATH": ""})
    assert (ended.code, ended.out, ended.err) == (0, f"lemni {VERSION}\n", "")


def test_the_installed_lemni_opens_a_sandbox(installed: Path, repo: Path, home: Path) -> None:
    needs.require("userns", "overlay")
    ended = lemni(
        "exec", "--", "sh", "-c", "echo $$ && cat README", cwd=repo, home=home, argv=[str(installed / "bin/lemni")],
        env={"PYTHONPATH": ""},
    )
    assert ended.code == 0, ended.err
    assert ended.out.endswith("\na repository\n")
