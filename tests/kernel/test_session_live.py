"""Sessions with the real parts: what runs, what is refused, what is recorded, and that nothing is left."""
from __future__ import annotations

import errno
import os
import shlex
import shutil
import subprocess
import threading
import uuid
from dataclasses import replace
from pathlib import Path

import pytest
import trio
import trio.testing

from supervisor.errors import JournalBroken, LemniError
from supervisor.session.live import Session, open_session
from supervisor.session.prepare import WALL_GRACE, prepare
from supervisor.session.request import Answer, ApprovalRequest, Closing, Outcome, SessionRequest
from supervisor.types import CallState, EditCall, ListCall, Reason, SearchCall, StopKind, WriteCall
from supervisor.workspace import open as workspace_open
from supervisor.workspace.store import Store
from support import needs
from support.sessions import (
    FREE,
    Numbers,
    Recorder,
    entries,
    events,
    group_or_skip,
    journals,
    processes_with,
    request,
)

pytestmark = [pytest.mark.kernel, pytest.mark.needs("userns", "seccomp", "bash")]


def left(home: Path, marker: str = "") -> list[object]:
    """What a session must not leave: scratch directories and processes."""
    scratch = home / "state/scratch"
    found: list[object] = list(scratch.iterdir()) if scratch.exists() else []
    return found + (list(processes_with(marker)) if marker else [])


async def test_a_session_works_in_its_copy_and_the_repository_stays(repo: Path, home: Path) -> None:
    new, seen = Numbers(), Recorder()
    async with open_session(request(repo, home), seen, seen) as session:
        await session.begin("do it")
        assert await session.before_model_call() is None
        await session.model_exchange(10, 20, 30)
        read = await session.submit(new.read("README"))
        assert (read.state, read.untrusted) == (CallState.DONE, True)
        assert "a repository" in read.text
        listed = await session.submit(new(ListCall(".")))
        assert "src" in listed.text
        found = await session.submit(new(SearchCall("print", ".")))
        assert "src/a.py" in found.text
        await session.submit(new(WriteCall("new/file.txt", "made by a session\n")))
        await session.submit(new(EditCall("src/a.py", "'a'", "'b'")))
        ran = await session.submit(new.bash("cat src/a.py new/file.txt; echo oops >&2; exit 7"))
        assert ran.state is CallState.DONE
        assert ran.execution is not None
        assert (ran.execution.code, ran.execution.stderr) == (7, b"oops\n")
        assert "exit status 7" in ran.text
        assert "print('b')\nmade by a session" in ran.text
        closing = await session.finish(Outcome.DONE)
        assert await session.finish(Outcome.ERROR) is closing
    assert (closing.exit, closing.reason, closing.stop) == (0, "done", None)
    assert closing.changes is not None
    assert {entry.path for entry in closing.changes.proposed} >= {b"new/file.txt", b"src/a.py"}
    assert (repo / "src/a.py").read_text() == "print('a')\n"
    assert not (repo / "new").exists()
    assert (closing.actions, closing.commands) == (6, 1)
    assert closing.memory_peak >= 0
    assert left(home) == []
    written = events(closing.journal)
    assert written[0] == "session.frame"
    assert written[-1] == "session.closed"
    stages = [entry["n"] for entry in entries(closing.journal) if entry["ev"] == "session.stage"]
    assert stages == [1, 2, 3, 4, 5]
    for name in ("prompt", "model.exchange", "call.proposed", "call.executed", "file.touched", "changes.collected"):
        assert name in written
    text = closing.journal.read_text()
    assert "made by a session" not in text
    assert "do it" not in text


async def test_every_start_is_on_record_before_its_end(repo: Path, home: Path) -> None:
    new, seen = Numbers(), Recorder()
    async with open_session(request(repo, home), seen, seen) as session:
        await session.begin("x")
        for command in ("true", "false"):
            await session.submit(new.bash(command))
        closing = await session.finish(Outcome.DONE)
    kinds = [(entry["ev"], entry.get("call")) for entry in entries(closing.journal) if str(entry["ev"]).startswith("call.")]
    expected = ["call.proposed", "call.judged", "call.decided", "call.started", "call.executed", "call.ended"]
    assert kinds == [(event, call) for call in ("call-1", "call-2") for event in expected]
    assert seen.states == [(call, state) for call in ("call-1", "call-2") for state in (
        CallState.GENERATED, CallState.CALLING, CallState.DONE,
    )]


def test_the_sandbox_lives_as_long_as_the_policy_says_or_as_the_session(repo: Path, home: Path) -> None:
    asked = request(repo, home)
    prepared = prepare(asked, asked.identity)
    assert prepared.limits.wall_seconds == 45 * 60 + WALL_GRACE
    longer = replace(prepared, bounds=replace(prepared.bounds, minutes=600))
    assert longer.limits.wall_seconds == 600 * 60 + WALL_GRACE
    said = replace(longer, policy=replace(prepared.policy, limits=replace(prepared.policy.limits, minutes=1)))
    assert said.limits.wall_seconds == 60


@pytest.mark.parametrize("few", [10_000, 0])  # looked at before opening, and beside the work
async def test_a_file_that_cannot_be_read_is_announced(
    repo: Path, home: Path, monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    monkeypatch.setattr(workspace_open, "FEW", few)
    (repo / "src/closed").write_text("x")
    (repo / "src/closed").chmod(0)
    (repo / ".env").write_text("x")
    (repo / ".env").chmod(0)  # hidden anyway
    new, seen = Numbers(), Recorder()
    async with open_session(request(repo, home), seen, seen) as session:
        await session.begin("x")
        with trio.fail_after(20):
            while not any("session cannot read" in text for _, text in seen.notices):
                await trio.lowlevel.checkpoint()
        assert ("workspace", "the session cannot read: src/closed") in seen.notices
        assert (await session.submit(new.bash("cat src/closed"))).execution is not None
        closing = await session.finish(Outcome.DONE)
    assert any("src/closed" in notice for notice in closing.notices)
    assert any("src/closed" in str(entry.get("text")) for entry in entries(closing.journal))


async def test_a_session_that_ends_at_once_has_looked_all_the_same(
    repo: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workspace_open, "FEW", 0)
    (repo / "src/closed").write_text("x")
    (repo / "src/closed").chmod(0)
    seen = Recorder()
    async with open_session(request(repo, home), seen, seen) as session:
        await session.begin("x")
        closing = await session.finish(Outcome.DONE)
    assert "the session cannot read: src/closed" in closing.notices
    assert any("src/closed" in str(entry.get("text")) for entry in entries(closing.journal))


@pytest.mark.needs("unprivileged")
@pytest.mark.parametrize("name", [".git", ".git/HEAD"])
async def test_gits_own_directory_that_cannot_be_read_is_announced(repo: Path, home: Path, name: str) -> None:
    mode = (repo / name).stat().st_mode
    (repo / name).chmod(0)
    seen = Recorder()
    try:
        async with open_session(request(repo, home), seen, seen):
            pass
    finally:
        (repo / name).chmod(mode)
    assert [text for _, text in seen.notices if "git does not work in the session" in text] == [
        f"{repo / name} cannot be read: git does not work in the session"
    ]


async def test_a_journal_that_fails_under_a_late_notice_ends_the_session_in_order(
    repo: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[Session] = []
    begun = threading.Event()

    def look(workspace: object, going_on: object) -> str:
        assert begun.wait(20)
        # as a full disk does, just before the notice is written
        failure = JournalBroken("writing the journal", errno=errno.ENOSPC)
        trio.from_thread.run_sync(opened[0]._journal._fail, failure)
        return "found late"

    monkeypatch.setattr(workspace_open, "FEW", 0)
    monkeypatch.setattr(workspace_open.Workspace, "look", look)
    new, seen = Numbers(), Recorder()
    async with open_session(request(repo, home), seen, seen) as session:
        opened.append(session)
        await session.begin("x")
        begun.set()
        with trio.fail_after(20):
            while ("workspace", "found late") not in seen.notices:
                await trio.lowlevel.checkpoint()
        assert (await session.submit(new.bash("true"))).state is CallState.CANCELED
        closing = await session.finish(Outcome.DONE)
    assert (closing.exit, closing.stop is not None) == (1, True)


@pytest.mark.parametrize("where", ["repository", "worktree"])
async def test_nobodys_name_and_no_credential_is_in_gits_configuration(
    repo: Path, home: Path, public_tmp: Path, where: str
) -> None:
    def git(*words: str) -> None:
        subprocess.run(["git", "-c", "safe.directory=*", "-C", str(repo), *words], check=True, capture_output=True)

    for key, value in (
        ("user.name", "Ada NONCE"), ("user.email", "NONCE@example.com"), ("remote.origin.url", "https://bob:NONCE@example.com/x"),
        ("http.https://example.com/.extraheader", "AUTHORIZATION: NONCE"), ("alias.st", "status"),
    ):
        git("config", key, value)
    opened = repo
    if where == "worktree":
        opened = public_tmp / "linked"
        git("worktree", "add", "-q", str(opened))
    git("worktree", "add", "-q", str(public_tmp / "another"))
    for directory in (repo / ".git/worktrees/another", repo / ".git/modules/part"):
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "config.worktree").write_text("[credential]\n\thelper = store NONCE\n")
    (repo / ".git/modules/part/HEAD").write_text("ref: refs/heads/main\n")
    (repo / ".git/modules/part/config").write_text("[user]\n\temail = NONCE@example.com\n")
    config = (repo / ".git/config").read_text()
    new, seen = Numbers(), Recorder()
    async with open_session(request(opened, home), seen, seen) as session:
        await session.begin("x")
        script = (
            "git config -l; find $(git rev-parse --git-common-dir)/ -name 'config*' -exec cat {} +;"
            "git commit -q --allow-empty -m x && git log -1 --format='by %an %ae'; git st"
        )
        said = (await session.submit(new.bash(script))).text
        closing = await session.finish(Outcome.DONE)
    assert "NONCE" not in said
    assert "https://example.com/x" in said
    assert "by lemni session " in said
    assert "nothing to commit" in said
    assert any("without its identity and credentials" in text for _, text in seen.notices)
    assert (repo / ".git/config").read_text() == config
    assert closing.changes is not None
    assert not closing.changes.proposed


async def test_nothing_of_the_workstation_is_in_the_environment(
    repo: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "nonce-4711")
    monkeypatch.setenv("BASH_ENV", "/tmp/x")
    new, seen = Numbers(), Recorder()
    policy = FREE + "  environment: {CI: 'yes'}\n"
    async with open_session(request(repo, home, policy), seen, seen) as session:
        await session.begin("x")
        shown = (await session.submit(new.bash("env; pwd; shopt -q login_shell && echo login; cat ~/.gitconfig"))).text
    assert "nonce-4711" not in shown
    assert "BASH_ENV" not in shown
    assert "\nlogin" not in shown
    assert "CI=yes" in shown
    assert "HOME=/home/agent" in shown
    assert "\n/workspace\n" in shown
    assert "checkStat = minimal" in shown


async def test_git_works_inside(repo: Path, home: Path) -> None:
    needs.require("git")
    new, seen = Numbers(), Recorder()
    async with open_session(request(repo, home), seen, seen) as session:
        await session.begin("x")
        script = "git status --porcelain && git rev-parse HEAD && echo 1 >> README && git commit -qam x"
        status = await session.submit(new.bash(script))
    assert status.execution is not None
    assert status.execution.code == 0, status.text


async def test_refusals_run_nothing_and_the_session_goes_on(repo: Path, home: Path) -> None:
    policy = "version: 1\ndefaults: {tools: {Read: allow, Write: exclude, Bash: allow}, commands: [true]}"
    new, seen = Numbers(), Recorder()
    async with open_session(request(repo, home, policy), seen, seen) as session:
        assert "Write" not in session.catalogue
        await session.begin("x")
        reasons = [
            (await session.submit(proposal)).reason
            for proposal in (
                new(WriteCall("a", "b")), new.read("/etc/passwd"), new.read("../x"), new.plain("sudo id"),
                new.plain("touch marker"), new(ListCall(".")), new.plain("true"),
            )
        ]
        closing = await session.finish(Outcome.DONE)
    assert reasons == [
        Reason.POLICY, Reason.PERIMETER, Reason.PERIMETER, Reason.REFUSED_FAMILY, Reason.NOT_LISTED,
        Reason.NEEDS_APPROVAL, None,
    ]
    assert seen.asked == []
    assert events(closing.journal).count("call.started") == 1
    assert (closing.exit, closing.files) == (0, 0)


async def test_a_link_out_of_the_project_is_refused_by_the_kernel(repo: Path, home: Path) -> None:
    (repo / "out").symlink_to("/etc/passwd")
    new, seen = Numbers(), Recorder()
    async with open_session(request(repo, home), seen, seen) as session:
        await session.begin("x")
        result = await session.submit(new.read("out"))
    assert (result.state, result.reason) == (CallState.ERRORED, Reason.PERIMETER)
    assert "root:" not in result.text


async def test_without_a_policy_the_remedy_is_named(repo: Path, home: Path) -> None:
    new, seen = Numbers(), Recorder()
    async with open_session(request(repo, home, None), seen, seen) as session:
        await session.begin("x")
        assert (await session.submit(new.read("README"))).reason is Reason.NEEDS_APPROVAL
    assert any("lemni policy init" in text for code, text in seen.notices if code == "refused_needs_approval")


async def test_a_person_is_asked_and_obeyed(repo: Path, home: Path) -> None:
    new = Numbers()
    for answer, state in ((Answer.APPROVE, CallState.DONE), (Answer.REFUSE, CallState.CANCELED)):
        seen = Recorder(answer)
        async with open_session(request(repo, home, None, interactive=True), seen, seen) as session:
            await session.begin("x")
            result = await session.submit(new.bash("echo hello"))
            closing = await session.finish(Outcome.DONE)
        assert result.state is state
        assert [asked.tool for asked in seen.asked] == ["Bash"]
        decided = [entry for entry in entries(closing.journal) if entry["ev"] == "call.decided"]
        assert [entry["attribution"] for entry in decided] == ["human"]


async def test_a_bound_ends_the_turn_and_keeps_the_changes(repo: Path, home: Path) -> None:
    new, seen = Numbers(), Recorder()
    config = "execution: {sessionMaxActions: 2}"
    async with open_session(request(repo, home, config=config), seen, seen) as session:
        await session.begin("x")
        await session.submit(new(WriteCall("kept", "1")))
        await session.submit(new.bash("true"))
        late = await session.submit(new.bash("touch never"))
        stop = await session.before_model_call()
        assert await session.wait_stopped() is stop
        await session.model_exchange(1, 1, 1)
        closing = await session.finish(Outcome.DONE)
    assert (late.state, late.reason) == (CallState.CANCELED, Reason.BOUND)
    assert stop is not None
    assert (stop.kind, stop.what) == (StopKind.BOUND, "actions")
    assert (closing.exit, closing.reason) == (3, "bound:actions")
    assert closing.changes is not None
    assert [entry.path for entry in closing.changes.proposed] == [b"kept"]
    assert any(code == "setting" and "sessionMaxActions is 2" in text for code, text in seen.notices)


async def test_a_loop_ends_the_session(repo: Path, home: Path) -> None:
    new, seen = Numbers(), Recorder()
    async with open_session(request(repo, home), seen, seen) as session:
        await session.begin("x")
        results = [await session.submit(new.bash("echo x >> log; wc -l < log")) for _ in range(4)]
        closing = await session.finish(Outcome.DONE)
    assert [result.reason for result in results] == [None, None, None, Reason.LOOP]
    assert "\n3" in results[2].text
    assert (closing.exit, closing.reason) == (3, "loop:Bash")


async def test_a_command_over_its_time_is_killed_with_what_it_started(repo: Path, home: Path) -> None:
    marker = uuid.uuid4().hex
    new, seen = Numbers(), Recorder()
    async with open_session(request(repo, home), seen, seen) as session:
        await session.begin("x")
        stubborn = f"trap '' TERM; python3 -c 'import time; time.sleep(300)' {marker}"
        command = f"echo before; setsid bash -c {shlex.quote(stubborn)} & sleep 300"
        result = await session.submit(new.bash(command, timeout=1))
        assert (result.state, result.reason) == (CallState.ERRORED, Reason.TIMEOUT)
        assert "timed out after 1 s" in result.text
        assert "before" in result.text
        assert list(processes_with(marker)) == []
        assert (await session.submit(new.bash("echo still here"))).state is CallState.DONE
    assert left(home, marker) == []


async def run_until(session: Session, new: Numbers, seen: Recorder, command: str) -> None:
    await session.submit(new.bash(command))


async def started(seen: Recorder) -> None:
    """Until the command has said something: it runs."""
    while not seen.outputs:
        await trio.lowlevel.checkpoint()


async def test_an_interrupt_kills_the_command_and_the_session_can_go_on(repo: Path, home: Path) -> None:
    marker = uuid.uuid4().hex
    new, seen = Numbers(), Recorder()
    results = []

    async def command(session: Session) -> None:
        results.append(await session.submit(new.bash(f"echo go; python3 -c 'import time; time.sleep(300)' {marker}")))
        results.append(await session.submit(new.bash("true")))

    async with open_session(request(repo, home), seen, seen) as session:
        await session.begin("x")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(command, session)
            await started(seen)
            await session.interrupt()
        assert [(r.state, r.reason) for r in results] == [
            (CallState.ERRORED, Reason.INTERRUPTED), (CallState.CANCELED, Reason.INTERRUPTED),
        ]
        assert list(processes_with(marker)) == []
        await session.begin("again")
        assert (await session.submit(new.bash("true"))).state is CallState.DONE
        closing = await session.finish(Outcome.DONE)
    assert events(closing.journal).count("session.interrupted") == 1
    assert closing.exit == 0


async def test_the_developers_stop_rejects_what_was_written(repo: Path, home: Path) -> None:
    new, seen = Numbers(), Recorder()
    async with open_session(request(repo, home), seen, seen) as session:
        await session.begin("x")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run_until, session, new, seen, "touch made; echo go; sleep 300")
            await started(seen)
            await session.halt()
        assert (await session.submit(new.bash("true"))).reason is Reason.STOPPED
        closing = await session.finish(Outcome.DONE)
    assert (closing.exit, closing.reason, closing.changes) == (3, "stop", None)
    assert "changes.decided" in events(closing.journal)


@pytest.mark.parametrize(("outcome", "code"), [
    (Outcome.INTERRUPTED, 130), (Outcome.TERMINATED, 143), (Outcome.HANGUP, 129), (Outcome.QUIT, 131),
])
async def test_signals_reject_what_was_written(repo: Path, home: Path, outcome: Outcome, code: int) -> None:
    new, seen = Numbers(), Recorder()
    async with open_session(request(repo, home), seen, seen) as session:
        await session.begin("x")
        await session.submit(new.bash("touch made"))
        closing = await session.finish(outcome)
    assert (closing.exit, closing.changes) == (code, None)


@pytest.mark.parametrize(("outcome", "code"), [
    (Outcome.INTERRUPTED, 130), (Outcome.TERMINATED, 143), (Outcome.HANGUP, 129), (Outcome.QUIT, 131),
])
async def test_a_signal_while_it_closes_rejects_too(repo: Path, home: Path, outcome: Outcome, code: int) -> None:
    new, seen = Numbers(), Recorder()
    async with open_session(request(repo, home), seen, seen) as session:
        await session.begin("x")
        await session.submit(new.bash("echo changed > made"))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(session.finish, Outcome.DONE)
            await trio.testing.wait_all_tasks_blocked()
            session.withdraw(outcome)
        closing = await session.finish(Outcome.DONE)
    assert (closing.exit, closing.reason, closing.changes, closing.files) == (code, outcome.value, None, 0)
    decided = [entry for entry in entries(closing.journal) if entry["ev"] == "changes.decided"]
    assert [entry["answer"] for entry in decided] == ["rejected"]
    assert not [path for path in (home / "state/sessions").rglob("*") if path.is_file() and b"changed" in path.read_bytes()]


async def test_a_caller_that_is_cancelled_leaves_nothing(repo: Path, home: Path) -> None:
    marker = uuid.uuid4().hex
    new, seen = Numbers(), Recorder()
    with trio.CancelScope() as scope:
        async with open_session(request(repo, home), seen, seen) as session, trio.open_nursery() as nursery:
            await session.begin("x")
            nursery.start_soon(run_until, session, new, seen, f"echo go; python3 -c 'import time; time.sleep(300)' {marker}")
            await started(seen)
            scope.cancel()
    assert scope.cancelled_caught
    assert left(home, marker) == []
    (journal,) = journals(home)
    written = entries(journal)
    assert written[-1]["ev"] == "session.closed"
    assert (written[-1]["exit"], written[-1]["reason"]) == (130, "interrupted")
    assert "call.ended" in [entry["ev"] for entry in written]


async def test_a_caller_that_fails_keeps_its_own_error_and_the_changes(repo: Path, home: Path) -> None:
    new, seen = Numbers(), Recorder()

    async def fail() -> None:
        async with open_session(request(repo, home), seen, seen) as session:
            await session.begin("x")
            await session.submit(new.bash("touch made"))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    (journal,) = journals(home)
    assert (entries(journal)[-1]["exit"], entries(journal)[-1]["reason"]) == (1, "error")
    assert left(home) == []


async def test_memory_over_the_limit_stops_the_session_by_name(repo: Path, home: Path) -> None:
    new, seen = Numbers(), Recorder()
    policy = FREE + "  limits: {memory: 128MiB}\n"
    async with open_session(request(repo, home, policy), seen, seen) as session:
        group_or_skip(session.layers)
        await session.begin("x")
        result = await session.submit(new.bash("tail -c 1G /dev/zero | tail"))
        with trio.fail_after(10):
            stop = await session.wait_stopped()
        closing = await session.finish(Outcome.DONE)
    assert result.state in (CallState.ERRORED, CallState.DONE)
    assert (stop.kind, stop.what) == (StopKind.RESOURCE, "memory")
    assert (closing.exit, closing.reason) == (3, "resource:memory")
    assert "resource.exceeded" in events(closing.journal)
    assert left(home) == []


async def test_nothing_runs_after_a_command_that_was_killed_for_a_cap(repo: Path, home: Path) -> None:
    new, seen = Numbers(), Recorder()
    policy = FREE + "  limits: {memory: 128MiB}\n"
    async with open_session(request(repo, home, policy), seen, seen) as session:
        group_or_skip(session.layers)
        await session.begin("x")
        await session.submit(new.bash("tail -c 1G /dev/zero | tail; exit 5"))
        after = await session.submit(new.bash("true"))
        closing = await session.finish(Outcome.DONE)
    assert (after.state, after.reason) == (CallState.CANCELED, Reason.STOPPED)
    assert closing.commands == 1
    assert events(closing.journal).count("resource.exceeded") == 1


async def test_a_sandbox_that_dies_is_a_failure_not_a_guard_stop(repo: Path, home: Path) -> None:
    new, seen = Numbers(), Recorder()
    async with open_session(request(repo, home), seen, seen) as session:
        await session.begin("x")
        await session._house.sandbox.kill()
        result = await session.submit(new.bash("true"))
        closing = await session.finish(Outcome.DONE)
    assert (result.state, result.reason) == (CallState.ERRORED, Reason.SANDBOX)
    assert closing.stop is not None
    assert closing.stop.kind is StopKind.FAILURE
    assert closing.exit == 1


async def test_nothing_runs_once_the_journal_cannot_be_written(repo: Path, home: Path) -> None:
    from supervisor.journal.entry import SessionClosed

    new, seen = Numbers(), Recorder()
    async with open_session(request(repo, home), seen, seen) as session:
        await session.begin("x")
        await session._journal.close(SessionClosed(0, "early"))  # every later write fails, as on a full disk
        result = await session.submit(new.bash("touch never"))
        again = await session.submit(new.bash("touch never"))
        closing = await session.finish(Outcome.DONE)
    assert result.state is CallState.ERRORED or result.state is CallState.CANCELED
    assert again.state is CallState.CANCELED
    assert closing.exit == 1
    assert closing.changes is not None
    assert closing.changes.entries == ()
    assert left(home) == []


async def test_nobody_is_asked_once_the_journal_cannot_be_written(repo: Path, home: Path) -> None:
    from supervisor.journal.entry import SessionClosed

    new, seen = Numbers(), Recorder()
    async with open_session(request(repo, home, None, interactive=True), seen, seen) as session:
        await session.begin("x")
        await session._journal.close(SessionClosed(0, "early"))
        result = await session.submit(new.bash("touch never"))
        closing = await session.finish(Outcome.DONE)
    assert result.state is CallState.CANCELED
    assert seen.asked == []
    assert closing.exit == 1


async def test_an_interrupt_withdraws_the_question(repo: Path, home: Path) -> None:
    class Slow(Recorder):
        def __init__(self) -> None:
            super().__init__()
            self.reached = trio.Event()

        async def ask(self, request: ApprovalRequest) -> Answer:
            self.reached.set()
            await trio.Event().wait()
            return Answer.APPROVE

    new, seen = Numbers(), Slow()
    results = []

    async def propose(session: Session) -> None:
        results.append(await session.submit(new.bash("touch never")))

    async with open_session(request(repo, home, None, interactive=True), seen, seen) as session:
        await session.begin("x")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(propose, session)
            await seen.reached.wait()
            await session.interrupt()
        closing = await session.finish(Outcome.DONE)
    assert [(result.state, result.reason) for result in results] == [(CallState.CANCELED, Reason.INTERRUPTED)]
    written = events(closing.journal)
    assert "call.decided" not in written
    assert "call.started" not in written
    assert closing.exit == 0


async def refused(made: SessionRequest) -> LemniError:
    seen = Recorder()
    try:
        async with open_session(made, seen, seen):
            pytest.fail("it was opened")
    except LemniError as error:
        return error


async def test_refused_sessions_start_nothing_and_are_on_record(repo: Path, home: Path) -> None:
    assert (await refused(request(repo, home, "version: 1\nbad: 1"))).code == "policy_invalid"
    assert (await refused(request(repo / ".git", home))).code == "inside_git_directory"
    assert (await refused(request(repo, home, FREE, "execution: {sessionMaxActions: 0}"))).code == "setting_invalid"
    other = "version: 1\nprojects: [{id: other, roots: [/nowhere]}]"
    assert (await refused(request(repo, home, other))).code == "project_not_authorised"
    assert (await refused(request(repo, home, FREE + "  profile: nothing-like-it\n"))).code == "policy_invalid"
    assert (await refused(request(repo, home, FREE + "  execution: [server]\n"))).code == "execution_refused"
    found = journals(home)
    assert len(found) == 6
    for journal in found:
        assert events(journal) == ["session.frame", "session.refused", "session.closed"]
    assert left(home) == []


async def test_a_screen_that_fails_while_opening_ends_it_at_once(repo: Path, home: Path) -> None:
    class Broken(Recorder):
        def notice(self, code: str, text: str) -> None:
            raise BrokenPipeError

    seen = Broken()
    with trio.fail_after(10), pytest.raises(BrokenPipeError):
        async with open_session(request(repo, home, None), seen, seen):
            pytest.fail("it was opened")
    (journal,) = journals(home)
    assert entries(journal)[-1]["reason"] == "internal"
    assert left(home) == []


async def test_a_screen_that_fails_under_a_command_ends_the_session(repo: Path, home: Path) -> None:
    marker = uuid.uuid4().hex

    class Broken(Recorder):
        def output(self, call_id: str, stream: int, data: bytes) -> None:
            raise BrokenPipeError

    new, seen = Numbers(), Broken()

    async def run() -> None:
        async with open_session(request(repo, home), seen, seen) as session:
            await session.begin("x")
            await session.submit(new.bash(f"echo go; python3 -c 'import time; time.sleep(300)' {marker}"))

    with trio.fail_after(10), pytest.raises((BrokenPipeError, BaseExceptionGroup)):
        await run()
    (journal,) = journals(home)
    assert (entries(journal)[-1]["exit"], entries(journal)[-1]["reason"]) == (1, "error")
    assert left(home, marker) == []


async def test_plan_mode_offers_reading_only(repo: Path, home: Path) -> None:
    new, seen = Numbers(), Recorder()
    async with open_session(request(repo, home, mode="plan"), seen, seen) as session:
        assert session.catalogue == ("Read", "List", "Search")
        await session.begin("x")
        assert (await session.submit(new.bash("true"))).reason is Reason.POLICY
        assert (await session.submit(new.read("README"))).state is CallState.DONE


async def test_a_subdirectory_is_the_same_project(repo: Path, home: Path) -> None:
    new, seen = Numbers(), Recorder()
    async with open_session(request(repo / "src", home), seen, seen) as session:
        await session.begin("x")
        assert (await session.submit(new.read("README"))).state is CallState.DONE


@pytest.mark.parametrize("name", [b"plain", b"caf\xe9", b"two words", b"line\nbreak", "é€😀".encode(), b"-rf", b"a:b,c\\d"])
async def test_any_directory_of_any_name_is_a_project(public_tmp: Path, home: Path, name: bytes) -> None:
    root = os.fsencode(public_tmp) + b"/" + name
    os.mkdir(root)
    new, seen = Numbers(), Recorder()
    made = replace(request(public_tmp, home), directory=root)
    async with open_session(made, seen, seen) as session:
        await session.begin("x")
        result = await session.submit(new.bash("pwd; echo made > it"))
        closing = await session.finish(Outcome.DONE)
    assert "/workspace" in result.text
    assert closing.changes is not None
    assert [entry.path for entry in closing.changes.proposed] == [b"it"]
    assert events(closing.journal)[-1] == "session.closed"
    assert os.listdir(root) == []


async def test_a_state_directory_inside_the_project_is_not_seen(public_tmp: Path) -> None:
    new, seen = Numbers(), Recorder()
    async with open_session(request(public_tmp, public_tmp), seen, seen) as session:
        await session.begin("x")
        listed = await session.submit(new.bash("find . | head -50; cat state/journal/* | head -5; true"))
        closing = await session.finish(Outcome.DONE)
    assert session.id not in listed.text
    assert closing.changes is not None
    assert closing.changes.proposed == ()


async def test_a_journal_that_cannot_be_made_opens_nothing(repo: Path, home: Path) -> None:
    made = request(repo, home)
    (home / "state").mkdir(mode=0o700)
    (home / "state/journal").touch()
    assert (await refused(made)).code == "journal_unwritable"
    assert left(home) == []


@pytest.mark.parametrize(("part", "code"), [("sessions", "store_unwritable"), ("scratch", "workspace_failed")])
async def test_a_state_that_cannot_be_written_is_a_refusal_in_words(repo: Path, home: Path, part: str, code: str) -> None:
    made = request(repo, home)
    (home / "state").mkdir(mode=0o700)
    (home / "state" / part).touch()
    assert (await refused(made)).code == code
    (journal,) = journals(home)
    assert events(journal)[-2:] == ["session.refused", "session.closed"]
    if part == "scratch":  # it was listed as begun by then
        (listed,) = Store(home / "state").records()
        assert listed.exit == 1
        assert listed.ended_us > 0


async def test_changes_that_cannot_be_kept_are_an_error_in_words(repo: Path, home: Path) -> None:
    new, seen = Numbers(), Recorder()
    async with open_session(request(repo, home), seen, seen) as session:
        await session.begin("x")
        await session.submit(new.bash("echo made > it"))
        shutil.rmtree(home / "state/sessions")
        (home / "state/sessions").touch()  # as unusable as a full disk, for root too
        closing = await session.finish(Outcome.DONE)
    assert closing.exit == 1
    assert any("sessions" in notice for notice in closing.notices)
    assert entries(closing.journal)[-1]["exit"] == 1
    assert left(home) == []


async def test_two_sessions_side_by_side(repo: Path, home: Path) -> None:
    closings: list[Closing] = []

    async def one(name: str) -> None:
        new, seen = Numbers(), Recorder()
        async with open_session(request(repo, home), seen, seen) as session:
            await session.begin("x")
            shown = await session.submit(new.bash(f"echo {name} > mine; ls"))
            assert "other" not in shown.text.replace(name, "")
            closings.append(await session.finish(Outcome.DONE))

    async with trio.open_nursery() as nursery:
        for name in ("one", "other"):
            nursery.start_soon(one, name)
    assert len({closing.session for closing in closings}) == 2
    assert [closing.files for closing in closings] == [1, 1]


async def test_a_large_output_is_an_excerpt_for_the_model_and_whole_for_the_person(repo: Path, home: Path) -> None:
    new, seen = Numbers(), Recorder()
    async with open_session(request(repo, home), seen, seen) as session:
        await session.begin("x")
        result = await session.submit(new.bash("seq 200000"))
    assert result.execution is not None
    assert len(result.execution.stdout) == sum(len(str(n)) + 1 for n in range(1, 200001))
    assert len(result.text) < 34 << 10
    assert result.text.endswith("200000\n")
    assert seen.outputs["call-1", 1] == result.execution.stdout
