"""Whatever a command did, killing it leaves nothing of it; and nothing of a sandbox outlives its supervisor."""
from __future__ import annotations

import contextlib
import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from supervisor.sandbox import ops, wire
from support import initbox, needs

pytestmark = pytest.mark.kernel
ROOT = Path(__file__).parents[2]

ESCAPES = {
    "plain": "sleep 1000",
    "background": "sleep 1000 & sleep 1000 & exec sleep 1000",
    "setsid": "setsid sleep 1000 & setsid -f sleep 1000; sleep 1000",
    "double fork": "(sleep 1000 & exit) ; (setsid sh -c 'sleep 1000 & exit' &) ; sleep 1000",
    "nohup": "trap '' HUP TERM INT; nohup sleep 1000 >/dev/null 2>&1 & sleep 1000",
    "stopped": "sleep 1000 & kill -STOP $! ; kill -STOP $$",
    "deep": "sh -c \"sh -c 'sh -c \\\"setsid -f sleep 1000\\\"; setsid -f sleep 1000; sleep 1000'; sleep 1000\"",
    "own subreaper": "python3 -c \"import ctypes, os; ctypes.CDLL(None).prctl(36, 1); os.fork() or os.fork() or os.setsid();"
    " os.execv('/bin/sleep', ['sleep', '1000'])\" & sleep 1000",
    "first thread ended": "python3 -c \"import ctypes, os, threading;"
    " threading.Thread(target=os.system, args=('sleep 1000',)).start();"
    f" ctypes.CDLL(None).syscall({60 if os.uname().machine == 'x86_64' else 93}, 0)\" & sleep 1000",  # SYS_exit
    "name with parentheses": "cp /bin/sleep '/tmp/a) Z 1 (b'; '/tmp/a) Z 1 (b' 1000 & sleep 1000",
}
# forks for ever: each process makes two children in a new session and ends
BOMB = """
import os
for _ in range(4): os.fork()
while True:
    try:
        if os.fork() == 0:
            os.setsid()
            if os.fork(): os._exit(0)
        elif os.getpid() % 3: os._exit(0)
        else: os.waitpid(-1, os.WNOHANG)
    except OSError: pass
"""
CAP = [(6, 300, 300)]  # RLIMIT_NPROC


@pytest.fixture(autouse=True)
def namespaces() -> None:
    needs.require("userns")


def started(box: initbox.Box, script: str, count: int, **options: object) -> int:
    """Start a script and wait until ``count`` processes beside the init's own run."""
    id = box.start(b"/bin/sh", b"-c", script.encode(), **options)  # type: ignore[arg-type]
    assert initbox.wait_until(lambda: len(initbox.processes_of_namespace(box.pid)) >= count + 2)
    return id


@pytest.mark.parametrize("name", ESCAPES)
def test_a_killed_command_leaves_nothing(name: str) -> None:
    with initbox.ready() as box:
        other = box.start(b"/bin/sleep", b"1000", flags=wire.ANNOUNCE)
        box.expect(wire.Started, other)  # else what counts as the script's may be ahead of it
        id = started(box, ESCAPES[name], {"plain": 1, "stopped": 2}.get(name, 2) + 2)
        box.ask(wire.Request.KILL, id)
        assert box.expect(wire.Killed, id).count >= 1
        assert os.WTERMSIG(box.expect(wire.Exited, id).status) == signal.SIGKILL
        assert box.expect(wire.Gone, id).told
        left = initbox.processes_of_namespace(box.pid)
        assert len(left) == 3, [Path(f"/proc/{p}/cmdline").read_bytes() for p in left]  # init, the other's shim, the other
        box.ask(wire.Request.KILL, other)
        assert box.expect(wire.Gone, other).told


@pytest.mark.parametrize("round", range(3))
def test_a_killed_fork_bomb_leaves_nothing(round: int) -> None:
    limits = CAP if initbox.is_root() else [(6, 1000, 1000)]
    with initbox.ready() as box:
        other = box.start(b"/bin/sleep", b"1000")
        id = box.start(b"/usr/bin/python3", b"-c", BOMB.encode(), limits=limits)
        assert initbox.wait_until(lambda: len(initbox.processes_of_namespace(box.pid)) > 20)
        box.ask(wire.Request.KILL, id)
        box.expect(wire.Killed, id)
        box.expect(wire.Gone, id)
        assert len(initbox.processes_of_namespace(box.pid)) == 3
        assert box.shell("echo on") == (0, "on\n")
        box.ask(wire.Request.KILL, other)
        assert box.expect(wire.Gone, other).told


def test_killing_at_every_moment_of_a_start_is_safe() -> None:
    with initbox.ready() as box:
        for _ in range(200):
            id = box.start(b"/bin/sleep", b"1000")
            box.ask(wire.Request.KILL, id)
            box.expect(wire.Gone, id)
        assert initbox.processes_of_namespace(box.pid) == [box.pid]


def test_killing_what_is_gone_is_told() -> None:
    with initbox.ready() as box:
        box.run(b"/bin/true")
        box.ask(wire.Request.KILL, 1)
        assert box.receive() == wire.Refused(wire.Request.KILL, 1, errno.ESRCH)


def test_kill_all_leaves_the_init_alone() -> None:
    with initbox.ready() as box:
        ids = {box.start(b"/bin/sh", b"-c", b"setsid -f sleep 1000; sleep 1000") for _ in range(5)}
        box.ask(wire.Request.KILL_ALL)
        gone = {box.expect(wire.Gone).id for _ in ids}
        assert gone == ids
        assert initbox.wait_until(lambda: initbox.processes_of_namespace(box.pid) == [box.pid])
        assert box.shell("echo on") == (0, "on\n")


def test_without_its_proc_the_init_kills_everything_rather_than_too_little() -> None:
    with initbox.ready([op for op in initbox.base() if not isinstance(op, ops.Proc)]) as box:
        ids = {box.start(b"/bin/sleep", b"1000") for _ in range(3)}
        box.ask(wire.Request.KILL, min(ids))
        assert {box.expect(wire.Gone).id for _ in ids} == ids
        assert initbox.wait_until(lambda: initbox.processes_of_namespace(box.pid) == [box.pid])


# --- commands that share the init's uid ------------------------------------------------------------------------------------


@pytest.fixture
def shared() -> None:
    needs.require("unprivileged")


@pytest.mark.usefixtures("shared")
def test_a_command_that_kills_its_shim_dies_with_all_it_started() -> None:
    with initbox.ready() as box:
        other = box.start(b"/bin/sleep", b"1000")
        id = box.start(b"/bin/sh", b"-c", b"setsid sleep 1000 & (sleep 1000 &); kill -KILL $PPID; sleep 1000")
        assert not box.expect(wire.Gone, id).told
        assert len(initbox.processes_of_namespace(box.pid)) == 3
        box.ask(wire.Request.KILL, other)
        assert box.expect(wire.Gone, other).told


@pytest.mark.usefixtures("shared")
def test_a_bomb_that_kills_its_shim_dies_too() -> None:
    kill = "import os, signal\nos.kill(os.getppid(), signal.SIGKILL)\n"
    with initbox.ready() as box:
        id = box.start(b"/usr/bin/python3", b"-c", (kill + BOMB).encode(), limits=[(6, 1000, 1000)])
        assert not box.expect(wire.Gone, id).told
        assert initbox.processes_of_namespace(box.pid) == [box.pid]


@pytest.mark.usefixtures("shared")
def test_a_command_that_stops_its_shim_ends_all_the_same() -> None:
    with initbox.ready() as box:
        id = box.start(b"/bin/sh", b"-c", b"kill -STOP $PPID; exit 5")
        assert os.waitstatus_to_exitcode(box.expect(wire.Exited, id).status) == 5
        assert box.expect(wire.Gone, id).told


@pytest.mark.usefixtures("shared")
def test_a_command_that_keeps_stopping_its_shim_is_killed_all_the_same() -> None:
    keep = b"import os, signal\nwhile True: os.kill(os.getppid(), signal.SIGSTOP)"
    with initbox.ready() as box:
        id = box.start(b"/usr/bin/python3", b"-c", keep, flags=wire.ANNOUNCE)
        box.ask(wire.Request.KILL, id)
        box.expect(wire.Gone, id)
        assert initbox.processes_of_namespace(box.pid) == [box.pid]


@pytest.mark.usefixtures("shared")
def test_a_neighbour_that_stops_every_shim_cannot_keep_another_alive() -> None:
    """It stops all it can, and continues all it can, for ever; killing another command still ends."""
    foe = b"""
import os, signal
me = {os.getpid(), 1}
while True:
    for name in os.listdir('/proc'):
        if name.isdigit() and int(name) not in me:
            for number in (signal.SIGCONT, signal.SIGSTOP):
                try: os.kill(int(name), number)
                except OSError: pass
"""
    with initbox.ready() as box:
        enemy = box.start(b"/usr/bin/python3", b"-c", foe)
        id = box.start(b"/bin/sh", b"-c", b"sleep 1000 & sleep 1000")
        box.ask(wire.Request.KILL, id)
        box.expect(wire.Gone, id)
        box.ask(wire.Request.KILL, enemy)
        box.expect(wire.Gone, enemy)
        assert initbox.processes_of_namespace(box.pid) == [box.pid]


def test_signals_of_a_command_to_everybody_hit_only_its_own() -> None:
    with initbox.ready() as box:
        for number in ("TERM", "INT", "HUP", "QUIT", "USR1", "ABRT", "SEGV", "CHLD"):
            code, _ = box.shell(f"trap '' {number}; kill -{number} -1; kill -{number} 1; echo $$")
            assert code == 0  # its shim is there to tell it
        for number in ("KILL", "STOP"):
            box.shell(f"kill -{number} 1")
        assert box.shell("echo on") == (0, "on\n")


@pytest.mark.needs("root")
def test_a_command_of_another_uid_cannot_touch_its_shim() -> None:
    with initbox.ready() as box:
        _, text = box.shell("kill -KILL $PPID; kill -STOP $PPID; kill -KILL 1; cat /proc/$PPID/environ; ls /proc/$PPID/fd")
        assert text.count("not permitted") == 3
        assert text.count("ermission denied") == 2


# --- ends of the sandbox ---------------------------------------------------------------------------------------------------


def populated(box: initbox.Box) -> int:
    """The pid namespace of a box with a few stubborn processes in it."""
    started(box, "trap '' TERM HUP; setsid -f sleep 1000; sleep 1000 & sleep 1000", 3)
    return os.stat(f"/proc/{box.pid}/ns/pid").st_ino


def test_shutdown_ends_everything() -> None:
    with initbox.ready() as box:
        namespace = populated(box)
        box.ask(wire.Request.SHUTDOWN)
        os.waitid(os.P_PIDFD, box.pidfd, os.WEXITED)
        assert initbox.processes_in(namespace) == []


def test_the_end_of_the_channel_ends_everything() -> None:
    with initbox.ready() as box:
        namespace = populated(box)
        box.socket.close()
        done = os.waitid(os.P_PIDFD, box.pidfd, os.WEXITED)
        assert done is not None
        assert done.si_status == 0
        assert initbox.processes_in(namespace) == []


def test_the_end_of_the_channel_ends_it_while_nobody_reads_the_answers() -> None:
    with initbox.ready() as box:
        box.socket.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            for _ in range(3000):
                box.ask(wire.Request.SIGNAL, 5, 1)  # each is answered; nobody reads
        box.socket.close()
        os.waitid(os.P_PIDFD, box.pidfd, os.WEXITED)


@pytest.mark.parametrize("moment", ["ready", "running", "before go"])
def test_nothing_outlives_a_supervisor_that_is_killed(moment: str) -> None:
    script = f"""
import os, sys
sys.path[:0] = {[str(ROOT), str(ROOT / "tests")]!r}
from support import initbox
with initbox.opened() as box:
    namespace = os.stat(f"/proc/{{box.pid}}/ns/pid").st_ino
    if {moment!r} != "before go":
        box.receive()
    if {moment!r} == "running":
        box.start(b"/bin/sh", b"-c", b"trap '' TERM HUP; setsid -f sleep 1000; sleep 1000")
        initbox.wait_until(lambda: len(initbox.processes_of_namespace(box.pid)) >= 4)
    print(namespace, flush=True)
    sys.stdin.read()
"""
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        namespace = int(process.stdout.readline())
        process.kill()
    assert initbox.wait_until(lambda: initbox.processes_in(namespace) == [])


def test_a_killed_init_takes_everything_along() -> None:
    with initbox.ready() as box:
        namespace = populated(box)
        signal.pidfd_send_signal(box.pidfd, signal.SIGKILL)
        os.waitid(os.P_PIDFD, box.pidfd, os.WEXITED)
        assert initbox.processes_in(namespace) == []
        assert box.receive() is None or isinstance(box.receive(), wire.Gone | wire.Exited)
