"""Commands of a served sandbox: how they start, end and fail to start, and requests that make no sense."""
from __future__ import annotations

import errno
import fcntl
import os
import resource
import signal
import socket
from pathlib import Path

import pytest

from supervisor.sandbox import launch, wire
from support import initbox, needs

pytestmark = pytest.mark.kernel
SLEEP = (b"/bin/sleep", b"1000")


@pytest.fixture(autouse=True)
def namespaces() -> None:
    needs.require("userns")


# --- ends ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [0, 1, 42, 255])
def test_the_exit_code_is_the_commands(code: int) -> None:
    with initbox.ready() as box:
        assert box.shell(f"exit {code}")[0] == code


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGSEGV, signal.SIGPIPE])
def test_a_signal_that_ends_the_command_is_told(number: signal.Signals) -> None:
    with initbox.ready() as box:
        ended, _ = box.run(b"/bin/sh", b"-c", b"kill -%d $$" % number)
        assert os.WTERMSIG(ended.status) == number
        assert not os.WCOREDUMP(ended.status)


def test_what_a_command_used_is_told() -> None:
    with initbox.ready() as box:
        ended, _ = box.run(b"/usr/bin/python3", b"-c", b"b = bytearray(60 << 20)\nfor i in range(2000000): pass")
        assert ended.max_rss > 60 << 20
        assert ended.utime_us > 10_000
        assert ended.utime_us + ended.stime_us < 20_000_000


def test_started_is_told_when_asked_for() -> None:
    with initbox.ready() as box:
        id = box.start(b"/bin/true", flags=wire.ANNOUNCE)
        assert isinstance(started := box.receive(), wire.Started)
        assert (started.id, started.pid > 1) == (id, True)
        assert isinstance(box.receive(), wire.Exited)
        assert box.receive() == wire.Gone(id, True)


def test_standard_streams_are_those_given_and_apart() -> None:
    with initbox.ready() as box:
        given, out, err = initbox.Output(), initbox.Output(), initbox.Output()
        os.write(given.writer, b"input")
        id = box.start(b"/bin/sh", b"-c", b"cat; echo error >&2", stdio=[given.reader, out.writer, err.writer])
        for pipe in (given, out, err):
            pipe.given()
        os.close(given.reader)
        assert (out.read(), err.read()) == (b"input", b"error\n")
        box.expect(wire.Gone, id)


def test_end_of_output_comes_with_the_last_process_that_holds_it() -> None:
    """Neither the init nor a shim keeps an end of a command's pipes."""
    with initbox.ready() as box:
        idle = box.start(*SLEEP)
        assert box.shell("echo done") == (0, "done\n")  # reads to the end of file
        box.ask(wire.Request.KILL, idle)
        box.expect(wire.Gone, idle)


def test_a_background_process_survives_its_command_whose_end_comes_at_once() -> None:
    with initbox.ready() as box:
        id = box.start(b"/bin/sh", b"-c", b"sleep 1000 & exit 3")
        assert os.waitstatus_to_exitcode(box.expect(wire.Exited, id).status) == 3
        assert len(processes(box)) == 3  # the init, the shim, what was left in the background
        assert not any(isinstance(r, wire.Gone) and r.id == id for r in box.backlog)
        box.ask(wire.Request.KILL, id)
        assert box.expect(wire.Killed, id).count == 1
        assert box.expect(wire.Gone, id).told


def test_commands_run_side_by_side() -> None:
    with initbox.ready() as box:
        first, second = box.start(*SLEEP, flags=wire.ANNOUNCE), box.start(*SLEEP, flags=wire.ANNOUNCE)
        assert {box.expect(wire.Started).id, box.expect(wire.Started).id} == {first, second}
        assert box.shell("grep -l '^sleep' /proc/[0-9]*/comm | wc -l") == (0, "2\n")
        box.ask(wire.Request.KILL, first)
        box.expect(wire.Gone, first)
        assert box.shell("grep -l '^sleep' /proc/[0-9]*/comm | wc -l") == (0, "1\n")
        box.ask(wire.Request.KILL, second)
        box.expect(wire.Gone, second)


def test_hundreds_of_commands_leave_nothing_behind() -> None:
    with initbox.ready() as box:
        box.null()
        fds = os.listdir(f"/proc/{os.getpid()}/fd")
        for _ in range(300):
            id = box.start(b"/bin/true")
            assert box.expect(wire.Exited, id).status == 0
            box.expect(wire.Gone, id)
        assert processes(box) == [box.pid]
        assert len(os.listdir(f"/proc/{os.getpid()}/fd")) == len(fds)


@pytest.mark.slow
def test_ten_thousand_commands_leave_no_zombie() -> None:
    with initbox.ready() as box:
        for number in range(10_000):
            id = box.start(b"/bin/sh", b"-c", b"true & true &") if number % 10 == 0 else box.start(b"/bin/true")
            box.expect(wire.Gone, id)
        assert processes(box) == [box.pid]


def processes(box: initbox.Box) -> list[int]:
    return initbox.processes_of_namespace(box.pid)


# --- how a command begins ----------------------------------------------------------------------------------------------


def test_a_command_is_leader_of_its_session_with_default_signals() -> None:
    with initbox.ready() as box:
        _, text = box.shell("cat /proc/$$/stat; cat /proc/self/status")
        pid, _, _, _, group, session, terminal = text.split()[:7]
        assert pid == group == session
        assert terminal == "0"
        assert "SigBlk:\t0000000000000000" in text
        # a write over the file size then fails and does not kill
        assert f"SigIgn:\t{1 << signal.SIGXFSZ - 1:016x}" in text


def test_a_pipe_without_reader_ends_a_writer() -> None:
    """SIGPIPE, which Python ignores, has its default action inside."""
    with initbox.ready() as box:
        out = initbox.Output()
        os.close(out.reader)
        ended_id = box.start(b"/usr/bin/yes", stdio=[box.null(), out.writer, box.null()])
        out.given()
        assert os.WTERMSIG(box.expect(wire.Exited, ended_id).status) == signal.SIGPIPE


def test_environment_and_arguments_are_those_given_and_nothing_else() -> None:
    with initbox.ready() as box:
        env = [(b"A", b"1"), (b"EMPTY", b""), (b"RAW", b"\xff\n=x")]
        _, text = box.run(b"/usr/bin/env", b"-0", env=env)
        assert text == b"A=1\0EMPTY=\0RAW=\xff\n=x\0"
        _, text = box.run(b"/usr/bin/printf", b"%s|", b"", b"a b", b"\xfe", b"")
        assert text == b"|a b|\xfe||"


def test_arguments_larger_than_a_message_travel_in_a_memfd() -> None:
    with initbox.ready() as box:
        many = [b"x" * 1000] * 1500
        _, text = box.run(b"/bin/sh", b"-c", b"echo $# ${#1}", b"sh", *many)
        assert text == b"1500 1000\n"
        _, text = box.run(b"/bin/sh", b"-c", b"echo ${#BIG}", env=[(b"BIG", b"y" * 131_000)])
        assert text == b"131000\n"
        fds = box.run(b"/bin/sh", b"-c", b"ls /proc/self/fd", b"sh", *many)[1]
        assert fds == b"0\n1\n2\n3\n"


def test_one_string_too_long_for_the_kernel_is_its_own_error() -> None:
    with initbox.ready() as box:
        id = box.start(b"/bin/true", b"x" * 140_000)
        assert box.expect(wire.RunFailed, id) == wire.RunFailed(id, wire.Stage.EXEC, errno.E2BIG)
        assert box.expect(wire.Gone, id).told


def test_limits_are_the_commands_own() -> None:
    with initbox.ready() as box:
        _, text = box.run(b"/bin/sh", b"-c", b"ulimit -n; ulimit -c", limits=[(resource.RLIMIT_NOFILE, 50, 60)])
        assert text == b"50\n0\n"  # 1 byte of core is 0 blocks: no dump, and no handler of the host is run
        show = b"import resource; print(resource.getrlimit(resource.RLIMIT_CORE))"
        assert box.run(b"/usr/bin/python3", b"-c", show)[1] == b"(1, 1)\n"
        id = box.start(b"/bin/true", limits=[(resource.RLIMIT_NOFILE, 1 << 40, 1 << 40)])
        assert box.expect(wire.RunFailed, id).stage is wire.Stage.LIMITS


@pytest.mark.parametrize(
    ("path", "error"),
    [(b"/absent", errno.ENOENT), (b"/etc/passwd", errno.EACCES), (b"/workspace/odd", errno.ENOEXEC), (b"/usr", errno.EACCES),
     (b"/etc/passwd/x", errno.ENOTDIR)],
)  # fmt: skip
def test_a_program_that_cannot_be_executed_is_told_with_its_errno(path: bytes, error: int) -> None:
    with initbox.ready() as box:
        box.shell("printf 'no program' > odd; chmod 755 odd")
        id = box.start(path)
        assert box.receive() == wire.RunFailed(id, wire.Stage.EXEC, error)
        assert box.receive() == wire.Gone(id, True)


def test_no_process_can_be_had_is_told() -> None:
    if initbox.is_root():
        limit = [(resource.RLIMIT_NPROC, 0, 0)]
        with initbox.ready() as box:
            id = box.start(b"/bin/sh", b"-c", b"true & wait", limits=limit)
            assert isinstance(box.receive(), wire.Exited | wire.RunFailed)
            box.expect(wire.Gone, id)
    else:
        pytest.skip("a limit on one's own uid counts processes outside too")


# --- the working directory -----------------------------------------------------------------------------------------------


def test_the_command_starts_where_asked_beneath_the_working_directory() -> None:
    with initbox.ready() as box:
        box.shell("mkdir -p a/b")
        assert box.run(b"/bin/pwd", cwd=b"a/b")[1] == b"/workspace/a/b\n"
        assert box.run(b"/bin/pwd", cwd=b"a/../a/./b")[1] == b"/workspace/a/b\n"
        assert box.run(b"/bin/pwd")[1] == b"/workspace\n"


@pytest.mark.parametrize(
    ("cwd", "error"),
    [(b"..", errno.EXDEV), (b"a/../..", errno.EXDEV), (b"/", errno.EXDEV), (b"/workspace/a", errno.EXDEV),
     (b"out", errno.EXDEV), (b"up", errno.EXDEV),
     (b"absent", errno.ENOENT), (b"file", errno.ENOTDIR), (b"closed", 0), (b"loop", errno.ELOOP)],
)  # fmt: skip
def test_no_working_directory_leads_out(cwd: bytes, error: int) -> None:
    with initbox.ready() as box:
        box.shell("mkdir a; ln -s /tmp out; ln -s ../tmp up; touch file; mkdir closed; chmod 0 closed; ln -s loop loop")
        id = box.start(b"/bin/pwd", cwd=cwd)
        if error:
            assert box.receive() == wire.RunFailed(id, wire.Stage.CWD, error)
        else:
            assert isinstance(failed := box.receive(), wire.RunFailed)
            assert failed.errno == errno.EACCES  # the command's own rights decide, not the init's
        assert box.receive() == wire.Gone(id, True)


# --- signals ----------------------------------------------------------------------------------------------------------------


def test_a_signal_goes_to_the_commands_group() -> None:
    with initbox.ready() as box:
        out = initbox.Output()
        script = b"trap 'echo got; exit 7' INT; echo up; while :; do sleep 1000 >/dev/null 2>&1 & wait; done"
        id = box.start(b"/bin/sh", b"-c", script, stdio=[box.null(), out.writer, out.writer])
        out.given()
        assert os.read(out.reader, 10) == b"up\n"
        box.ask(wire.Request.SIGNAL, id, signal.SIGINT)
        assert box.expect(wire.Signalled, id).errno == 0
        assert os.waitstatus_to_exitcode(box.expect(wire.Exited, id).status) == 7
        assert out.read() == b"got\n"
        box.ask(wire.Request.KILL, id)  # the sleep in the background


def test_a_signal_to_nobody_and_no_signal_are_told() -> None:
    with initbox.ready() as box:
        box.ask(wire.Request.SIGNAL, 99, signal.SIGINT)
        assert box.receive() == wire.Signalled(99, errno.ESRCH)
        box.ask(wire.Request.SIGNAL, 99, 0)
        assert box.receive() == wire.Refused(wire.Request.SIGNAL, 99, errno.EINVAL)
        box.ask(wire.Request.SIGNAL, 99, 65)
        assert box.receive() == wire.Refused(wire.Request.SIGNAL, 99, errno.EINVAL)
        id = box.start(b"/bin/sh", b"-c", b"sleep 1000 & exit 0")
        box.expect(wire.Exited, id)
        box.ask(wire.Request.SIGNAL, id, signal.SIGTERM)  # its leader is gone, its background process is not to be hit
        assert box.expect(wire.Signalled, id).errno == errno.ESRCH


# --- requests that make no sense -------------------------------------------------------------------------------------------


def raw(box: initbox.Box, message: bytes, fds: list[int] | None = None) -> None:
    socket.send_fds(box.socket, [message], fds or [])


def head(kind: int, flags: int = 0, id: int = 5, argument: int = 0, size: int = 0) -> bytes:
    return wire.REQUEST.pack(kind, flags, id, argument, size)


def memfd(content: bytes, sealed: bool) -> int:
    fd = os.memfd_create("test", os.MFD_ALLOW_SEALING | os.MFD_CLOEXEC)
    os.write(fd, content)
    if sealed:
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE)
    return fd


def test_an_unknown_request_is_an_error_and_the_init_serves_on() -> None:
    with initbox.ready() as box:
        for kind in (0, 1, 9, 77, 0xFFFF_FFFF):
            raw(box, head(kind))
            assert box.receive() == wire.Refused(kind, 5, errno.ENOSYS)
        assert box.shell("echo on") == (0, "on\n")


@pytest.mark.parametrize(
    "message",
    [b"x", head(2)[:-1], head(2, size=10) + b"short", head(2, size=3) + b"longer", head(2, flags=1, size=9) + b"123456789"],
)  # fmt: skip
def test_a_malformed_message_is_an_error_and_the_init_serves_on(message: bytes) -> None:
    with initbox.ready() as box:
        raw(box, message, [box.null()] * 3)
        assert isinstance(refused := box.receive(), wire.Refused)
        assert refused.errno == errno.EPROTO
        assert box.shell("ls /proc/self/fd | wc -l") == (0, "4\n")


def test_a_payload_that_could_still_change_is_refused() -> None:
    payload = wire.encode_run([b"/bin/true"], [])
    with initbox.ready() as box:
        for content, sealed, size in ((payload, False, len(payload)), (payload, True, len(payload) - 1), (b"", True, 0)):
            fd = memfd(content, sealed)
            raw(box, head(2, flags=wire.IN_MEMFD, size=size), [fd, *[box.null()] * 3])
            os.close(fd)
            assert box.receive() == wire.Refused(wire.Request.RUN, 5, errno.EPROTO)
        raw(box, head(2, flags=wire.IN_MEMFD, size=len(payload)), [box.null()])
        assert isinstance(box.receive(), wire.Refused)
        assert box.shell("echo on") == (0, "on\n")


@pytest.mark.parametrize("count", [0, 1, 2, 4, 200])
def test_a_command_without_its_three_streams_is_refused(count: int) -> None:
    payload = wire.encode_run([b"/bin/true"], [])
    with initbox.ready() as box:
        raw(box, head(2, size=len(payload)) + payload, [box.null()] * count)
        assert box.receive() == wire.RunFailed(5, wire.Stage.REQUEST, errno.EPROTO)
        assert box.receive() == wire.Gone(5, True)
        assert box.shell("echo on") == (0, "on\n")


def test_strings_that_do_not_add_up_are_refused() -> None:
    good = wire.encode_run([b"/bin/true", b"x"], [(b"A", b"1")])
    with initbox.ready() as box:
        empty, many = wire.RUN.pack(0, 0, 0, 0) + b".\0", good[:8] + b"\xff" * 4 + good[12:]
        for id, payload in enumerate((good[:-1], good + b"\0", empty, many, b"")):
            raw(box, head(2, id=id, size=len(payload)) + payload, [box.null()] * 3)
            assert box.receive() == wire.RunFailed(id, wire.Stage.REQUEST, errno.EPROTO)
            assert box.receive() == wire.Gone(id, True)


def test_an_id_in_use_is_refused_and_the_command_that_has_it_stays() -> None:
    with initbox.ready() as box:
        id = box.start(*SLEEP)
        box.next = id
        box.start(b"/bin/true")
        assert box.receive() == wire.Refused(wire.Request.RUN, id, errno.EEXIST)
        box.ask(wire.Request.KILL, id)
        box.expect(wire.Gone, id)


def test_more_commands_than_the_init_can_watch_are_refused_one_by_one() -> None:
    if not initbox.is_root():
        needs.require("root")
    with initbox.ready() as box:
        for _ in range(wire.COMMANDS_MAX):
            box.expect(wire.Started, box.start(*SLEEP, flags=wire.ANNOUNCE))
        over = box.start(b"/bin/true")
        assert box.expect(wire.RunFailed, over) == wire.RunFailed(over, wire.Stage.FORK, errno.EAGAIN)
        box.expect(wire.Gone, over)
        box.ask(wire.Request.KILL_ALL)
        for _ in range(wire.COMMANDS_MAX):
            box.expect(wire.Gone)
        assert box.shell("echo on") == (0, "on\n")


def test_a_full_channel_is_told_and_nothing_is_lost() -> None:
    with initbox.ready() as box:
        signal.pidfd_send_signal(box.pidfd, signal.SIGSTOP)
        box.socket.setblocking(False)
        sent = 0
        with pytest.raises(BlockingIOError):  # noqa: PT012
            while True:
                launch.send(box.channel, wire.Request.SIGNAL, sent, argument=1)
                sent += 1
        signal.pidfd_send_signal(box.pidfd, signal.SIGCONT)
        box.socket.settimeout(initbox.TIMEOUT)
        for number in range(sent):
            assert box.receive() == wire.Signalled(number, errno.ESRCH)


def test_the_init_says_nothing_of_a_command_to_another(tmp_path: Path) -> None:
    """Descriptors of one command are not open in the next."""
    with initbox.ready() as box, open(tmp_path / "secret", "w+") as file:
        id = box.start(*SLEEP, stdio=[file.fileno()] * 3)
        _, text = box.shell("ls -l /proc/self/fd /proc/[0-9]*/fd 2>/dev/null | grep secret | wc -l")
        assert text.strip() in ("0", "3")  # its own process of the same uid may be looked at; its shim and init may not
        box.ask(wire.Request.KILL, id)
        box.expect(wire.Gone, id)


def test_init_keeps_nothing_of_what_a_running_command_was_given() -> None:
    """Its argv and environment may be two megabytes."""
    environment = [(b"V%d" % number, b"x" * 100_000) for number in range(15)]
    with initbox.ready() as box:
        before = resident(box.pid)
        ids = [box.start(b"/bin/sleep", b"100", env=environment, flags=wire.ANNOUNCE) for _ in range(20)]
        for id in ids:
            box.expect(wire.Started, id)
        assert initbox.wait_until(lambda: resident(box.pid) - before < 2 << 20), resident(box.pid)
        for id in ids:
            box.ask(wire.Request.KILL, id)
            box.expect(wire.Gone, id)
        assert resident(box.pid) - before < 200 << 10


def resident(pid: int) -> int:
    """Resident bytes of a process."""
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.partition("VmRSS:")[2].split()[0]) << 10
