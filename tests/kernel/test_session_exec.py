"""``lemni exec``'s session: the command's own output and status, the same sandbox, the changes kept."""
from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from pathlib import Path

import pytest
import trio

from profiles.load import shipped
from supervisor.sandbox import facts
from supervisor.session.exec import run_exec
from supervisor.session.request import ExecOutcome
from supervisor.workspace.store import Store
from support.sessions import FREE, Recorder, entries, group_or_skip, journals, processes_with, request

pytestmark = [pytest.mark.kernel, pytest.mark.needs("userns", "seccomp", "bash")]


async def run(repo: Path, home: Path, *argv: str, policy: str | None = None, seen: Recorder | None = None) -> ExecOutcome:
    made = request(repo, home, policy, surface="exec")
    return await run_exec(made, [word.encode() for word in argv], seen or Recorder())


@pytest.mark.parametrize(("argv", "code"), [
    (("true",), 0), (("bash", "-c", "exit 42"), 42), (("bash", "-c", "kill -9 $$"), 137), (("no-such-command-here",), 127),
    (("./README",), 126), (("sudo", "id"), 125), (("env", "A=1", "mkfs.ext4", "/dev/sda"), 125),
])
async def test_the_exit_status_is_the_commands(repo: Path, home: Path, argv: tuple[str, ...], code: int) -> None:
    outcome = await run(repo, home, *argv)
    assert outcome.exit == code
    assert (outcome.refusal is not None) == (code == 125)
    written = [entry["ev"] for entry in entries(outcome.closing.journal)]
    assert ("call.executed" in written) == (code != 125)


async def test_no_policy_question_but_an_excluded_bash_refuses(repo: Path, home: Path) -> None:
    assert (await run(repo, home, "true", policy="version: 1\ndefaults: {tools: {'*': ask}}")).exit == 0
    assert (await run(repo, home, "true", policy="version: 1\ndefaults: {tools: {Bash: exclude}}")).exit == 125


async def test_output_is_relayed_whole(repo: Path, home: Path) -> None:
    seen = Recorder()
    outcome = await run(repo, home, "bash", "-c", "head -c 20000000 /dev/zero; echo err >&2", seen=seen)
    assert outcome.exit == 0
    assert len(seen.outputs["exec", 1]) == 20_000_000
    assert seen.outputs["exec", 2] == b"err\n"
    assert outcome.execution is not None
    assert outcome.execution.stdout == b""


async def test_it_runs_where_the_person_stands_and_keeps_the_changes(repo: Path, home: Path) -> None:
    seen = Recorder()
    outcome = await run(repo / "src", home, "bash", "-c", "pwd; echo x > 'made here'", seen=seen)
    assert seen.outputs["exec", 1] == b"/workspace/src\n"
    assert not (repo / "src/made here").exists()
    assert outcome.closing.files == 1
    store = Store(home / "state")
    record = store.load(outcome.closing.session)
    assert [entry.path for entry in store.load_changes(record).proposed] == [b"src/made here"]
    assert (record.kind, record.exit, record.files) == ("exec", 0, 1)


async def test_what_keeps_a_command_from_starting_is_said(repo: Path, home: Path) -> None:
    seen = Recorder()
    assert (await run(repo, home, "A=b", seen=seen)).exit == 127
    assert b"A=b" in seen.outputs["exec", 2]
    (repo / "closed").mkdir(mode=0o000)
    seen = Recorder()
    if os.geteuid() == 0:  # the person can stand there, the command cannot
        assert (await run(repo / "closed", home, "true", seen=seen)).exit == 126
        assert b"working directory" in seen.outputs["exec", 2]


async def test_nothing_of_lemnis_own_is_in_a_home_that_is_a_project(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """State, cached filters, settings and the model's key, wherever they lie in the project: not seen, not proposed."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "cache"))
    (home / "cache/lemniscate").mkdir(parents=True)
    (home / "cache/other").touch()
    (home / "token").write_text("hunter2\n")
    model = {"name": "m", "provider": "openai", "apiBase": "http://[::1]:1", "model": "m", "apiKeyFile": str(home / "token")}
    made = request(home, home, config=json.dumps({"models": [model]}), surface="exec")
    seen = Recorder()
    script = (
        "ls -A . cache; ! cat token state/journal/* .lemniscate/*; mkdir -p .lemniscate cache/lemniscate state;"
        " for at in token state/x .lemniscate/policy.yaml cache/lemniscate/x notes; do echo x > $at; done"
    )
    outcome = await run_exec(made, [b"bash", b"-c", script.encode()], seen)
    assert outcome.exit == 0, seen.outputs
    shown = seen.outputs["exec", 1].split()
    assert b"other" in shown
    assert not {b"token", b"state", b".lemniscate", b"lemniscate"} & set(shown)
    store = Store(home / "state")
    found = store.load_changes(store.load(outcome.closing.session))
    assert [change.path for change in found.proposed] == [b"notes"]


async def test_the_settings_folder_can_be_a_project(home: Path) -> None:
    made = request(home / ".lemniscate", home, surface="exec")
    seen = Recorder()
    assert (await run_exec(made, [b"ls"], seen)).exit == 0
    assert seen.outputs["exec", 1] == b"policy.yaml\n"


async def test_the_decision_is_a_humans(repo: Path, home: Path) -> None:
    outcome = await run(repo, home, "true")
    decided = [entry for entry in entries(outcome.closing.journal) if entry["ev"] == "call.decided"]
    assert [(entry["answer"], entry["attribution"]) for entry in decided] == [("approved", "human")]


async def test_a_limit_of_the_session_is_exit_3(repo: Path, home: Path) -> None:
    group_or_skip(facts.read(shipped("default")).layers)
    outcome = await run(repo, home, "bash", "-c", "tail -c 1G /dev/zero | tail", policy=FREE + "  limits: {memory: 128MiB}\n")
    assert outcome.exit == 3
    assert outcome.closing.reason == "resource:memory"


async def test_cancelled_it_leaves_nothing(repo: Path, home: Path) -> None:
    marker = uuid.uuid4().hex
    seen = Recorder()

    async def command() -> None:
        await run(repo, home, "bash", "-c", f"echo go; python3 -c 'import time; time.sleep(300)' {marker}", seen=seen)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(command)
        while not seen.outputs:
            await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
    assert list(processes_with(marker)) == []
    (journal,) = journals(home)
    assert entries(journal)[-1]["exit"] == 130


KILLED = """\
import sys, trio
from pathlib import Path
sys.path[:0] = {path!r}
from support.sessions import Numbers, Recorder, request
from supervisor.session.live import open_session

async def main():
    class Loud(Recorder):
        def output(self, call_id, stream, data):
            print("running", flush=True)
    seen = Loud()
    async with open_session(request(Path({repo!r}), Path({home!r})), seen, seen) as session:
        await session.begin("x")
        await session.submit(Numbers().bash("touch made; echo go; sleep 300; true {marker}"))

trio.run(main)
"""


async def test_a_killed_supervisor_takes_its_sandbox_along_and_the_next_start_sweeps(repo: Path, home: Path) -> None:
    marker = uuid.uuid4().hex
    path = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2])]
    program = KILLED.format(path=path, repo=str(repo), home=str(home), marker=marker)
    child = await trio.to_thread.run_sync(
        lambda: subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
    )
    assert child.stdout is not None
    assert await trio.to_thread.run_sync(child.stdout.readline) == b"running\n"
    assert list(processes_with(marker))
    child.kill()
    await trio.to_thread.run_sync(child.wait)
    child.stdout.close()
    with trio.fail_after(5):
        while list(processes_with(marker)):
            await trio.lowlevel.checkpoint()
    assert not (repo / "made").exists()
    assert list((home / "state/scratch").iterdir())
    await run(repo, home, "true")
    assert list((home / "state/scratch").iterdir()) == []
