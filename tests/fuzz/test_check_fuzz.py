"""The init's checker under AddressSanitizer and UndefinedBehaviorSanitizer, fed with damaged plans and payloads."""
from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from supervisor.sandbox import ops, wire
from support import initbox, needs

HERE = Path(__file__).parent
CHECK = HERE.parents[1] / "native/init/check.c"
SANITIZE = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer"]


@pytest.fixture(scope="module")
def fuzzer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    needs.require("cc")
    built = tmp_path_factory.mktemp("fuzz") / "check_fuzz"
    done = subprocess.run(
        ["cc", "-O1", "-g", "-Wall", "-Wextra", "-Werror", *SANITIZE, "-o", built, HERE / "check_fuzz.c", CHECK],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if "cannot find" in done.stderr and "asan" in done.stderr:
        pytest.skip("the compiler has no AddressSanitizer run time")
    assert done.returncode == 0, done.stderr
    return built


@pytest.fixture(scope="module")
def seeds(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    directory = tmp_path_factory.mktemp("seeds")
    every = [
        *initbox.base(), ops.CgroupJoin(0), ops.UnshareCgroup(), ops.Dir(b"/a/b"), ops.File(b"/f", b"x" * 50),
        ops.MoveMount(1, b"/m", 3),
        ops.DevPts(b"/dev/pts"), ops.Mqueue(b"/dev/mqueue"), ops.Overlay(b"/o", 2, 3, 4),
        ops.ReadOnly(b"/", ops.RECURSIVE), ops.AdoptRoot(5), ops.HandOver(7), ops.BeginOverlays(),
        ops.LoopbackUp(), ops.Keyring(), ops.Rlimit(7, 1, 2),
        ops.LandlockRuleset(1, 2, 3), ops.LandlockRule(b"/usr", 5), ops.LandlockEnforce(), ops.Seccomp(b"\x06" * 64),
    ]  # fmt: skip
    contents = [
        b"p" + wire.encode_plan(every, 10),
        b"p" + wire.encode_plan([], 10),
        b"r" + wire.encode_run([b"/bin/sh", b"-c", b"true"], [(b"A", b"1"), (b"B", b"")], b"sub/dir", [(7, 1, 2), (1, 3, 4)]),
        b"r" + wire.encode_run([b"/bin/true"], []),
    ]
    files = []
    for number, content in enumerate(contents):
        (directory / str(number)).write_bytes(content)
        files.append(directory / str(number))
    return files


@pytest.mark.parametrize(
    ("seed", "rounds"), [(1, 40_000), (2, 40_000), pytest.param(3, 5_000_000, marks=pytest.mark.slow)]
)
def test_no_damage_leads_the_checker_astray(fuzzer: Path, seeds: list[Path], seed: int, rounds: int) -> None:
    done = subprocess.run([fuzzer, str(seed), str(rounds), *seeds], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > rounds // 100  # the fuzzer gets through, so the uses behind the check were exercised
