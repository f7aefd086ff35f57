"""The init from clone to READY: the plan carried out, each failure named, and nothing of the launcher inside."""
from __future__ import annotations

import errno
import os
import resource
import signal
import socket
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from native import launch as native
from supervisor.errors import LaunchFailed
from supervisor.sandbox import launch, ops, wire
from support import initbox, needs
from support.children import children

pytestmark = pytest.mark.kernel


@pytest.fixture(autouse=True)
def namespaces() -> None:
    needs.require("userns")


def outcome(operations: list[ops.Op], fds: list[int] | None = None) -> wire.Reply | None:
    with initbox.opened(operations, fds or []) as box:
        first = box.receive()
        if isinstance(first, wire.Failed):
            assert box.receive() is None  # it ends after a failure
        return first


def new_root(*operations: ops.Op) -> list[ops.Op]:
    return [*initbox.identity(), ops.NewRoot(1 << 20, 1000), *operations]


# --- the failure record ----------------------------------------------------------------------------------------------

FAILURES: dict[str, tuple[list[ops.Op], list[str], int]] = {
    "CgroupJoin": ([ops.CgroupJoin(0)], ["/dev/full"], errno.ENOSPC),
    "TakeIds": ([ops.TakeIds(4242, 4242, False)], [], errno.EINVAL),
    "Dir before NewRoot": ([ops.Dir(b"/a")], [], errno.EBADF),
    "Dir": (new_root(ops.File(b"/a", b""), ops.Dir(b"/a")), [], errno.ENOTDIR),
    "Dir through a link": (new_root(ops.Symlink(b"/a", b"/tmp"), ops.Dir(b"/a/b")), [], errno.ELOOP),
    "File": (new_root(ops.File(b"/a", b""), ops.File(b"/a", b"")), [], errno.EEXIST),
    "File too large": (new_root(ops.File(b"/a", b"x" * (1 << 20) + b"y")), [], errno.ENOSPC),
    "Symlink": (new_root(ops.Dir(b"/a"), ops.Symlink(b"/a", b"b")), [], errno.EEXIST),
    "Bind of an absent source": (new_root(ops.Bind(b"/absent/x", b"/a", ops.RO)), [], errno.ENOENT),
    "Bind of a link": (new_root(ops.Bind(b"/proc/self", b"/a", 0)), [], errno.ELOOP),
    "MoveMount": (new_root(ops.MoveMount(0, b"/a", 0)), ["/tmp"], errno.EINVAL),
    "Proc": (new_root(ops.File(b"/proc", b""), ops.Proc(b"/proc")), [], errno.EINVAL),
    "Tmpfs": (new_root(ops.File(b"/t", b""), ops.Tmpfs(b"/t", 4096, 10, 0o755)), [], errno.EINVAL),
    "DevPts": (new_root(ops.File(b"/t", b""), ops.DevPts(b"/t")), [], errno.EINVAL),
    "Mqueue": (new_root(ops.File(b"/t", b""), ops.Mqueue(b"/t")), [], errno.EINVAL),
    "Overlay of a file": (new_root(ops.Overlay(b"/o", 0, 0, 0)), ["/dev/null"], errno.ENOTDIR),
    "ReadOnly": (new_root(ops.Dir(b"/a"), ops.ReadOnly(b"/a")), [], errno.EINVAL),
    "Pivot": ([*initbox.identity(), ops.Pivot()], [], errno.EBADF),
    "Hostname": ([ops.Hostname(b"x" * 65)], [], errno.EINVAL),
    "Rlimit": ([ops.Rlimit(99, 0, 0)], [], errno.EINVAL),
    "OpenWorkdir": (new_root(ops.OpenWorkdir(b"/absent")), [], errno.ENOENT),
    "LandlockRule": (new_root(ops.LandlockRule(b"/absent", 1)), [], errno.ENOENT),
    "LandlockRule without ruleset": (new_root(ops.LandlockRule(b"/", 4)), [], errno.EBADF),
    "LandlockEnforce": ([ops.NoNewPrivs(), ops.LandlockEnforce()], [], errno.EBADF),
    "Seccomp": ([ops.NoNewPrivs(), ops.Seccomp(b"\xff" * 8)], [], errno.EINVAL),
    "DropCaps": ([ops.DropCaps(0), ops.DropCaps(0)], [], errno.EPERM),
    "NewRoot": ([ops.DropCaps(0), ops.NewRoot(4096, 10)], [], errno.EPERM),
    "UnshareCgroup": ([ops.DropCaps(0), ops.UnshareCgroup()], [], errno.EPERM),
    "HandOver of what is not open": ([ops.HandOver(wire.Request.HAND_WORKDIR)], [], errno.EBADF),
    "HandOver of something else": ([ops.HandOver(wire.Request.RUN)], [], errno.EBADF),
    "DropBounding": ([ops.DropCaps(0), ops.DropBounding()], [], errno.EPERM),
    "Bind from inside": (new_root(ops.Bind(b"/usr", b"/a", ops.INSIDE)), [], errno.ENOENT),
    "Bind through a link inside": (new_root(ops.Symlink(b"/a", b"/b"), ops.Bind(b"/a", b"/c", ops.INSIDE)), [], errno.ELOOP),
    "LoopbackUp": ([ops.OpenNetlink(), ops.DropCaps(0), ops.LoopbackUp()], [], errno.EPERM),
}  # the last operation is the one that fails


@pytest.mark.parametrize("name", FAILURES)
def test_a_failing_step_is_named_with_its_number_kind_and_errno(name: str) -> None:
    operations, paths, error = FAILURES[name]
    if "Landlock" in name:
        needs.require("landlock")
    fds = [os.open(p, os.O_RDWR if p == "/dev/full" else os.O_PATH) for p in paths]
    try:
        last = len(operations) - 1
        expected = 0 if name.startswith("Overlay") else last  # layers are opened before the first step
        assert outcome(operations, fds) == wire.Failed(last, operations[expected or last].KIND, error, wire.PlanFault.NONE)
    finally:
        for fd in fds:
            os.close(fd)


def test_an_absent_source_is_skipped_when_the_plan_says_that_it_may_be_absent() -> None:
    assert outcome(new_root(ops.Bind(b"/absent/x", b"/a", ops.OPTIONAL))) == wire.Ready()
    assert outcome(new_root(ops.LandlockRule(b"/absent", 1, ops.OPTIONAL))) == wire.Ready()


def test_a_malformed_plan_is_refused_before_its_first_step(tmp_path: Path) -> None:
    plan = bytearray(wire.encode_plan([ops.CgroupJoin(0), ops.Pivot()], 1))
    plan[32 + 72 + 4] = 1  # a flag that Pivot does not know
    trace = tmp_path / "trace"
    with open(trace, "w") as file:
        box = initbox.Box(initbox.launched(bytes(plan), [file.fileno()]))
        try:
            assert box.receive() == wire.Failed(None, ops.Pivot.KIND, errno.EPROTO, wire.PlanFault.FLAGS)
        finally:
            box.close()
    assert trace.read_text() == ""  # CgroupJoin would have written


@pytest.mark.parametrize("plan", [b"", b"x" * 31, b"LEMNIPLN" + b"\0" * 24])
def test_foreign_bytes_are_no_plan(plan: bytes) -> None:
    box = initbox.Box(initbox.launched(plan))
    try:
        failed = box.receive()
        assert isinstance(failed, wire.Failed)
        assert failed.step is None
    finally:
        box.close()


def test_a_plan_larger_than_a_message_travels_in_a_sealed_memfd() -> None:
    content = os.urandom(300_000)
    with initbox.ready(initbox.base([ops.File(b"/big", content)])) as box:
        assert box.run(b"/bin/cat", b"/big")[1] == content


# --- launching ---------------------------------------------------------------------------------------------------------


def test_an_id_map_that_the_kernel_refuses_is_named_and_leaves_nothing() -> None:
    maps = launch.IdMaps(b"0 0 4294967295\n1 1 1\n", b"0 0 1\n", False)
    before = set(os.listdir("/proc/self/fd"))
    with pytest.raises(LaunchFailed, match="mapping user ids"):
        launch.begin().settle(maps)
    assert set(os.listdir("/proc/self/fd")) == before
    assert not children()


def test_without_an_executable_memfd_the_installed_file_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "_sealed", lambda: None)
    assert outcome(initbox.base()) == wire.Ready()


def test_a_supervisor_that_nobody_may_trace_can_launch() -> None:
    """Its child is closed to it for a moment after the exec, when it writes the id maps."""
    root = Path(__file__).parents[2]
    script = (
        "import ctypes, sys\n"
        f"sys.path[:0] = {[str(root), str(root / 'tests')]!r}\n"
        "from support import initbox\n"
        "assert ctypes.CDLL(None).prctl(4, 0) == 0\n"  # PR_SET_DUMPABLE
        "for _ in range(50):\n"
        "    with initbox.ready(): pass\n"
        "print('all')\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.stdout == "all\n", done.stderr


def test_a_supervisor_without_standard_streams_can_launch() -> None:
    root = Path(__file__).parents[2]
    script = (
        "import os, sys\n"
        f"sys.path[:0] = {[str(root), str(root / 'tests')]!r}\n"
        "for fd in range(3): os.close(fd)\n"
        "from support import initbox\n"
        "with initbox.ready() as box: code, text = box.shell('echo on')\n"
        "os._exit(42 if (code, text) == (0, 'on\\n') else 1)\n"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 42


def test_a_program_that_cannot_be_executed_is_named_and_leaves_nothing() -> None:
    with open("/etc/passwd", "rb") as file, pytest.raises(native.LaunchError) as caught:
        native.Launch(file.fileno(), -1, True).settle(*_maps_of(initbox.maps()))
    assert (caught.value.stage, caught.value.errno) == (native.Stage.EXEC, errno.EACCES)
    assert not children()


def _maps_of(maps: launch.IdMaps) -> tuple[bytes, bytes, bool]:
    return maps.uid_map, maps.gid_map, maps.deny_setgroups


def test_a_cgroup_that_is_none_is_named() -> None:
    with open("/dev/null") as file, pytest.raises(LaunchFailed, match="creating the namespaces"):
        initbox.launched(b"", cgroup=file.fileno())


def test_a_launch_that_is_abandoned_leaves_nothing() -> None:
    before = set(os.listdir("/proc/self/fd"))
    for _ in range(20):  # at once, and after the exec
        launch.begin().abandon()
        begun = launch.begin()
        os.sched_yield()
        begun.abandon()
        begun.abandon()
    assert set(os.listdir("/proc/self/fd")) == before
    assert not children()


def test_several_launches_may_be_under_way() -> None:
    begun = [launch.begin() for _ in range(5)]
    boxes = [initbox.Box(one.settle(initbox.maps())) for one in reversed(begun)]
    try:
        for box in boxes:
            launch.send(box.channel, wire.Request.GO, payload=wire.encode_plan(initbox.base(), 0))
        assert [box.receive() for box in boxes] == [wire.Ready()] * 5
        assert len({box.pid for box in boxes}) == 5
    finally:
        for box in boxes:
            box.close()


def test_no_plan_can_do_without_a_network_namespace_of_its_own() -> None:
    with initbox.ready([]) as box:
        assert os.stat(f"/proc/{box.pid}/ns/net").st_ino != os.stat("/proc/self/ns/net").st_ino
    with initbox.opened([ops.DropCaps(0)]) as box:  # it comes too late to enter it
        assert box.receive() == wire.Failed(None, 0, errno.EPERM, wire.PlanFault.NETWORK, 1)


def test_init_is_one_thread_when_it_is_ready() -> None:
    with initbox.ready() as box:
        assert os.listdir(f"/proc/{box.pid}/task") == [str(box.pid)]
        assert initbox.processes_of_namespace(box.pid) == [box.pid]


def test_the_launching_thread_keeps_its_signal_mask() -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    assert outcome(initbox.base()) == wire.Ready()
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == before


# --- what is inside -----------------------------------------------------------------------------------------------------


def test_nothing_of_the_launcher_is_inside() -> None:
    leaked = os.open("/etc/passwd", os.O_RDONLY)  # a descriptor without close-on-exec, as a careless library leaves it
    os.set_inheritable(leaked, True)
    high = os.dup2(leaked, 900, inheritable=True)
    os.environ["SECRET_OF_THE_LAUNCHER"] = "hunter2"
    try:
        with initbox.ready(initbox.base()[: -len(["NonDumpable", "DropCaps", "NoNewPrivs"])]) as box:  # dumpable, to be read
            proc = Path(f"/proc/{box.pid}")
            assert (proc / "environ").read_bytes() == b""
            assert (proc / "cmdline").read_bytes() == b"lemni-init\0"
            assert (proc / "comm").read_text() == "lemni-init\n"
            targets = {fd: os.readlink(proc / "fd" / fd) for fd in os.listdir(proc / "fd")}
            kinds = sorted(t.split(":")[0] for t in targets.values())
            # the channel thrice, signalfd, netlink, and by path the root, the working directory, /proc
            assert not any("passwd" in t or "memfd" in t for t in targets.values()), targets
            assert kinds.count("socket") == 4, targets
            assert len(targets) == 8, targets
            _, text = box.shell("ls /proc/self/fd; env")
            assert text.startswith("0\n1\n2\n3\nP"), text  # stdio and ls's own, then PATH or PWD
            assert "SECRET" not in text
            status = (proc / "status").read_text()
            assert "SigIgn:\t0000000001000000" in status  # SIGXFSZ alone
            assert f"NSpid:\t{box.pid}\t1\n" in status
            assert f"NSsid:\t{os.getsid(0)}" not in status
    finally:
        del os.environ["SECRET_OF_THE_LAUNCHER"]
        os.close(leaked)
        os.close(high)


def test_the_init_cannot_be_read_or_traced_from_inside() -> None:
    with initbox.ready() as box:
        _, text = box.shell("cat /proc/1/environ /proc/1/maps; ls -l /proc/1/fd /proc/1/exe; cat /proc/1/mem | head -c1")
        assert text.count("ermission denied") == 5, text


def test_commands_have_no_privilege_and_their_own_ids() -> None:
    with initbox.ready() as box:
        _, text = box.shell("cat /proc/self/status; hostname; id -u; id -G")
        for line in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
            assert f"{line}:\t0000000000000000\n" in text
        assert "NoNewPrivs:\t1\n" in text
        assert "SigBlk:\t0000000000000000\n" in text
        uid = initbox.COMMAND if initbox.is_root() else os.getuid()
        assert text.split("\n")[-4:-1] == ["lemni", str(uid), str(uid if initbox.is_root() else os.getgid())]


def test_the_init_keeps_what_its_plan_says_and_no_more() -> None:
    with initbox.ready() as box:
        status = Path(f"/proc/{box.pid}/status").read_text()
        keep = initbox.KEEP if initbox.is_root() else 0
        assert f"CapEff:\t{keep:016x}\n" in status
        assert f"CapPrm:\t{keep:016x}\n" in status
        assert "CapBnd:\t0000000000000000\n" in status
        uid = initbox.HOST_BASE + 1 if initbox.is_root() else os.getuid()
        assert f"Uid:\t{uid}\t{uid}\t{uid}\t{uid}\n" in status
        if initbox.is_root():
            assert "Groups:\t \n" in status


def test_the_view_is_the_one_of_the_plan() -> None:
    extra: list[ops.Op] = [
        ops.Dir(b"/a/b/c", 0o1777), ops.File(b"/a/b/text", b"hello\n", 0o640), ops.Symlink(b"/a/link", b"b/text"),
        ops.Mqueue(b"/dev/mqueue"), ops.DevPts(b"/dev/pts"), ops.Tmpfs(b"/small", 65536, 10, 0o755, ops.NOEXEC),
        ops.ReadOnly(b"/"),
    ]  # fmt: skip
    with initbox.ready(initbox.base(extra)) as box:
        _, text = box.shell("stat -c %a /a /a/b/c /a/b/text; readlink /a/link; touch /x; touch /usr/x; ls /; cat /proc/mounts")
        lines = text.split("\n")
        assert lines[:4] == ["755", "1777", "640", "b/text"]
        assert lines[4:6] == [f"touch: cannot touch '{name}': Read-only file system" for name in ("/x", "/usr/x")]
        assert "old" not in text
        assert " /small tmpfs rw,nosuid,nodev,noexec," in text
        assert " /dev/mqueue mqueue rw,nosuid,nodev,noexec," in text
        assert "ptmxmode=666" in text
        host_mounts = {line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()}
        inside = {line.split()[1] for line in lines if line.count(" ") == 5 and line.endswith(" 0 0")}
        assert not (host_mounts & inside) - {"/", "/proc", "/dev", "/tmp", "/dev/pts", "/dev/mqueue"}


def test_an_overlay_by_descriptors_shows_no_path_of_the_host(public_tmp: Path) -> None:
    needs.require("overlay")
    uid = initbox.HOST_BASE if initbox.is_root() else os.getuid()
    layers = [public_tmp / "closed" / name for name in ("lower: a,b\\c", "upper", "work")]
    for layer in layers:
        layer.mkdir(parents=True)
        os.chown(layer, uid + initbox.is_root(), uid + initbox.is_root())
    (layers[0] / "file").write_text("below")
    (layers[0] / "file").chmod(0o644)
    (public_tmp / "closed").chmod(0o700)  # the session's own id may not search it
    fds = [os.open(layer, os.O_PATH) for layer in layers]
    try:
        plan = initbox.base([ops.Overlay(b"/workspace/o", 0, 1, 2)])
        with initbox.ready(plan, fds) as box:
            _, text = box.shell("cat o/file; grep overlay /proc/mounts; touch o/new; ls -n o")
            assert text.startswith("below")
            assert str(public_tmp) not in text
            assert "lowerdir=/proc/self/fd/" in text
    finally:
        for fd in fds:
            os.close(fd)


def layers_of(parent: Path, count: int) -> list[int]:
    """Descriptors of lower, upper and work of so many overlays, of init's own; the caller closes them."""
    uid = initbox.HOST_BASE + 1 if initbox.is_root() else os.getuid()
    fds = []
    for number in range(count):
        for name in ("lower", "upper", "work"):
            layer = parent / f"{number}" / name
            layer.mkdir(parents=True)
            os.chown(layer, uid, uid)
            fds.append(os.open(layer, os.O_PATH))
    return fds


@pytest.mark.parametrize("beside", [True, False])
def test_many_overlays_are_made_beside_or_in_their_turn(public_tmp: Path, beside: bool) -> None:
    needs.require("overlay")
    count = 12
    fds = layers_of(public_tmp, count)
    for number in range(count):
        (public_tmp / f"{number}" / "lower" / "file").write_text(f"{number}\n")
    overlays = [ops.Overlay(b"/o/%d" % n, 3 * n, 3 * n + 1, 3 * n + 2) for n in range(count)]
    plan = initbox.base(overlays)
    if beside:
        plan.insert(1, ops.BeginOverlays())
    try:
        with initbox.ready(plan, fds) as box:
            assert box.shell("cd /o && cat $(ls | sort -n | sed 's,$,/file,')")[1] == "".join(f"{n}\n" for n in range(count))
            # A plan that fails before its overlays' turn ends whatever is being made.
            failing = [*initbox.identity(), ops.BeginOverlays(), ops.NewRoot(1 << 20, 1000), ops.OpenWorkdir(b"/no"), *overlays]
        with initbox.opened(failing, fds) as box:
            assert box.receive() == wire.Failed(4, ops.OpenWorkdir.KIND, errno.ENOENT, wire.PlanFault.NONE)
            assert box.receive() is None
    finally:
        for fd in fds:
            os.close(fd)


@pytest.mark.parametrize("beside", [True, False])
def test_an_overlay_that_cannot_be_made_is_named_wherever_it_was_tried(public_tmp: Path, beside: bool) -> None:
    needs.require("overlay")
    fd = os.open(public_tmp, os.O_PATH)
    begin: list[ops.Op] = [ops.BeginOverlays()] if beside else []
    plan: list[ops.Op] = [*initbox.identity(), *begin, ops.NewRoot(1 << 20, 1000), ops.Overlay(b"/o", 0, 0, 0)]
    try:
        for _ in range(5):  # whoever comes first
            with initbox.opened(plan, [fd]) as box:
                failed = box.receive()
            assert isinstance(failed, wire.Failed)
            assert (failed.step, failed.kind) == (len(plan) - 1, ops.Overlay.KIND)
            assert failed.errno in (errno.EINVAL, errno.ELOOP, errno.EACCES)
    finally:
        os.close(fd)


@pytest.mark.needs("root", "idmap")
def test_an_idmapped_mount_shows_the_owner_as_the_command(public_tmp: Path) -> None:
    (public_tmp / "file").write_text("mine")
    (public_tmp / "file").chmod(0o600)
    os.chown(public_tmp / "file", 4711, 4711)
    text = b"4711 %d 1\n" % initbox.HOST_BASE
    userns = launch.user_namespace(text, text)
    directory = os.open(public_tmp, os.O_PATH)
    mount = launch.detached_mount(directory, userns=userns)
    try:
        with initbox.ready(initbox.base([ops.MoveMount(0, b"/mnt", ops.RO)]), [mount]) as box:
            assert box.shell("cat /mnt/file; stat -c %u /mnt/file; touch /mnt/file") == (
                1, f"mine{initbox.COMMAND}\ntouch: cannot touch '/mnt/file': Read-only file system\n"
            )  # fmt: skip
    finally:
        for fd in (userns, directory, mount):
            os.close(fd)


@pytest.mark.needs("root")
def test_making_a_user_namespace_leaves_no_process(public_tmp: Path) -> None:
    fds = [launch.user_namespace(b"0 1900000000 1\n", b"0 1900000000 1\n") for _ in range(20)]
    assert len({os.fstat(fd).st_ino for fd in fds}) == 20
    for fd in fds:
        os.close(fd)
    assert not children()


def test_landlock_and_seccomp_hold_for_every_command() -> None:
    needs.require("landlock")
    rights = 1 << 0 | 1 << 2 | 1 << 3  # execute, read file, read directory
    write = 1 << 1
    # a filter that denies one call, uname, with EPERM
    number = 63 if os.uname().machine == "x86_64" else 160
    program = b"".join(
        struct.pack("=HBBI", *code)
        for code in ((0x20, 0, 0, 0), (0x15, 0, 1, number), (6, 0, 0, 0x00050001), (6, 0, 0, 0x7FFF0000))
    )
    late: list[ops.Op] = [
        ops.LandlockRuleset(rights | write, 0, 0), ops.LandlockRule(b"/usr", rights), ops.LandlockRule(b"/bin", rights),
        ops.LandlockRule(b"/proc", rights), ops.LandlockRule(b"/dev/null", 1 << 2 | write),
        ops.LandlockRule(b"/tmp", 1 << 2 | write),
        ops.LandlockEnforce(), ops.Seccomp(program),
    ]  # fmt: skip
    with initbox.ready(initbox.base(late=late)) as box:
        _, text = box.shell("cat /etc/passwd; echo a > /tmp/x && cat /tmp/x; uname; grep Seccomp: /proc/self/status")
        assert "/etc/passwd: Permission denied" in text
        assert "\na\n" in text
        assert "cannot get system name" in text
        assert "Seccomp:\t2" in text
        status = Path(f"/proc/{box.pid}/status").read_text()
        assert "Seccomp:\t2" in status  # the init is confined by the same
        id = box.start(b"/bin/sleep", b"1000")
        box.ask(wire.Request.KILL, id)  # and can still do its work
        assert box.expect(wire.Killed, id).count in (0, 1)  # 0: before its first process was there
        box.expect(wire.Gone, id)


def test_limits_of_the_plan_are_inherited() -> None:
    with initbox.ready(initbox.base(late=[ops.Rlimit(resource.RLIMIT_NOFILE, 77, 99)])) as box:
        assert box.shell("ulimit -Sn; ulimit -Hn") == (0, "77\n99\n")


def test_the_loopback_is_down_unless_the_plan_raises_it() -> None:
    show = "cat /sys/class/net/lo/operstate 2>/dev/null; grep -c lo: /proc/net/dev"
    probe = (b"/usr/bin/python3", b"-c", b"import socket; s = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen(); "
             b"c = socket.create_connection(s.getsockname(), 2); print('up')")  # fmt: skip
    with initbox.ready() as box:
        assert box.shell(show) == (0, "1\n")
        assert b"up" not in box.run(*probe)[1]
    with initbox.ready(initbox.base([ops.LoopbackUp()])) as box:
        assert box.run(*probe)[1] == b"up\n"


def test_a_plan_may_come_in_parts_and_hand_over_on_its_way() -> None:
    whole = initbox.base()
    cut = next(i for i, op in enumerate(whole) if isinstance(op, ops.Pivot))
    first, second = whole[:cut], [*whole[cut:-3], ops.HandOver(wire.Request.HAND_NETLINK), *whole[-3:]]
    for flags, heard in ((wire.MORE, [wire.Ready()]), (wire.MORE | wire.QUIET, [])):
        box = initbox.Box(initbox.launched(None))
        try:
            launch.send(box.channel, wire.Request.GO, flags=flags, payload=wire.encode_plan(first, 0))
            launch.send(box.channel, wire.Request.GO, payload=wire.encode_plan(second, 0))
            expected = [*heard, wire.Handed(wire.Request.HAND_NETLINK), wire.Ready()]
            assert [box.receive() for _ in expected] == expected
            assert box.shell("echo on") == (0, "on\n")
        finally:
            box.close()


def test_a_step_of_a_later_part_is_named_with_its_part() -> None:
    box = initbox.Box(initbox.launched(None))
    try:
        launch.send(box.channel, wire.Request.GO, flags=wire.MORE, payload=wire.encode_plan(initbox.identity(), 0))
        launch.send(box.channel, wire.Request.GO, payload=wire.encode_plan([ops.Keyring(), ops.Pivot()], 0))
        assert box.receive() == wire.Ready()
        assert box.receive() == wire.Failed(1, ops.Pivot.KIND, errno.EBADF, wire.PlanFault.NONE, 1)
    finally:
        box.close()


def test_a_part_may_be_over_before_the_thread_beside_has_begun() -> None:
    """On one processor it begins when init waits for the next part, and the first, larger than a message, is gone."""
    first = [*initbox.identity(), ops.BeginOverlays(), ops.NewRoot(1 << 20, 1000), ops.File(b"/big", b"x" * 100_000)]
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    try:
        for _ in range(10):
            box = initbox.Box(initbox.launched(None))
            try:
                launch.send(
                    box.channel, wire.Request.GO, flags=wire.MORE | wire.QUIET, payload=wire.encode_plan(first, 0)
                )
                launch.send(box.channel, wire.Request.GO, payload=wire.encode_plan([ops.OpenNetlink()], 0))
                assert box.receive() == wire.Ready()
            finally:
                box.close()
    finally:
        os.sched_setaffinity(0, allowed)


def test_each_part_may_have_an_overlay_at_the_same_place_of_its_plan(public_tmp: Path) -> None:
    needs.require("overlay")
    fds = layers_of(public_tmp, 2)
    box = initbox.Box(initbox.launched(None))
    try:
        first = [*initbox.identity(), ops.NewRoot(1 << 20, 1000), ops.BeginOverlays(), ops.Overlay(b"/a", 0, 1, 2)]
        second = [ops.Dir(b"/x"), ops.Dir(b"/y"), ops.Dir(b"/z"), ops.BeginOverlays(), ops.Overlay(b"/b", 0, 1, 2)]
        for flags, plan, travelling in ((wire.MORE, first, fds[:3]), (0, second, fds[3:])):
            payload = wire.encode_plan(plan, 3)
            launch.send(box.channel, wire.Request.GO, flags=flags, payload=payload, fds=travelling)
            assert box.receive() == wire.Ready()
    finally:
        box.close()
        for fd in fds:
            os.close(fd)


@pytest.mark.needs("root", "cgroup_v1")
def test_without_room_for_a_thread_everything_is_done_in_its_turn() -> None:
    """A container's limit that has room for init and its commands one at a time."""
    group = Path(f"/sys/fs/cgroup/pids/lemni-test-{os.getpid()}")
    root = Path(__file__).parents[2]
    script = (
        f"import os, sys; sys.path[:0] = {[str(root), str(root / 'tests')]!r}\n"
        "from pathlib import Path\n"
        "from support import initbox\n"
        f"group = Path({str(group)!r})\n"
        "(group / 'cgroup.procs').write_text('0')\n"
        "(group / 'pids.max').write_text('2')\n"  # this process and init
        "with initbox.opened() as box:\n"
        "    first = box.receive()\n"
        "    (group / 'pids.max').write_text('max')\n"
        "    own = os.stat(f'/proc/{box.pid}/ns/net').st_ino != os.stat('/proc/self/ns/net').st_ino\n"
        "    print(type(first).__name__, own, box.shell('echo on'))\n"
    )
    group.mkdir()
    try:
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
        assert done.stdout == "Ready True (0, 'on\\n')\n", done.stderr
    finally:
        assert initbox.wait_until(lambda: not (group / "tasks").read_text())
        group.rmdir()


def test_descriptors_are_handed_out() -> None:
    with initbox.ready() as box:
        box.shell("echo hello > file")
        box.ask(wire.Request.HAND_WORKDIR)
        assert box.receive() == wire.Handed(wire.Request.HAND_WORKDIR)
        box.ask(wire.Request.HAND_NETLINK)
        assert box.receive() == wire.Handed(wire.Request.HAND_NETLINK)
        workdir, netlink = box.fds
        assert Path(f"/proc/self/fd/{workdir}/file").read_text() == "hello\n"
        with socket.socket(fileno=os.dup(netlink)) as handed:
            assert handed.family == socket.AF_NETLINK


def test_what_the_plan_did_not_open_is_not_handed_out() -> None:
    with initbox.ready(new_root()) as box:
        for request in (wire.Request.HAND_WORKDIR, wire.Request.HAND_NETLINK):
            box.ask(request)
            assert box.receive() == wire.Refused(request, 0, errno.EBADF)


def test_the_keyring_is_a_fresh_one() -> None:
    number = 250 if os.uname().machine == "x86_64" else 219
    show = f"import ctypes; print(ctypes.CDLL(None).syscall({number}, 0, -3, 1))"  # KEYCTL_GET_KEYRING_ID of the session
    mine = subprocess.run(["/usr/bin/python3", "-c", show], check=True, capture_output=True).stdout
    if int(mine) < 0:
        pytest.skip("no keyrings here")
    with initbox.ready(initbox.base([ops.Keyring()])) as box:
        text = box.run(b"/usr/bin/python3", b"-c", show.encode())[1]
        assert int(text) > 0
        assert text != mine


@pytest.mark.needs("root", "cgroup_v1")
def test_a_v1_group_is_joined_and_shown_as_the_root() -> None:
    parent = Path("/sys/fs/cgroup/pids")
    group = parent / f"lemni-test-{os.getpid()}"
    group.mkdir()
    try:
        tasks = os.open(group / "tasks", os.O_WRONLY)
        plan = [ops.CgroupJoin(0), ops.UnshareCgroup(), *initbox.base()]
        box = initbox.Box(initbox.launched(wire.encode_plan(plan, 1), [tasks], cgroup_namespace=False))
        os.close(tasks)
        try:
            assert box.receive() == wire.Ready()
            assert str(box.pid) in (group / "tasks").read_text().split()
            assert ":pids:/\n" in box.shell("cat /proc/self/cgroup")[1]
        finally:
            box.close()
    finally:
        group.rmdir()


@pytest.mark.needs("root")
def test_a_v2_group_is_the_place_of_birth() -> None:
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    place = next((Path(m[1]) for m in mounts if m[2] == "cgroup2"), None)
    if place is None:
        pytest.skip("no cgroup v2 mount")
    group = place / f"lemni-test-{os.getpid()}"
    group.mkdir()
    try:
        directory = os.open(group, os.O_RDONLY | os.O_DIRECTORY)
        box = initbox.Box(initbox.launched(wire.encode_plan(initbox.base(), 0), cgroup=directory))
        os.close(directory)
        try:
            assert box.receive() == wire.Ready()
            assert str(box.pid) in (group / "cgroup.procs").read_text().split()
            assert "0::/\n" in box.shell("cat /proc/self/cgroup")[1]
        finally:
            box.close()
    finally:
        assert initbox.wait_until(lambda: "populated 0" in (group / "cgroup.events").read_text())
        group.rmdir()


def test_no_mount_of_the_sandbox_reaches_the_host() -> None:
    before = Path("/proc/self/mountinfo").read_text().count("\n")
    with initbox.ready():
        assert Path("/proc/self/mountinfo").read_text().count("\n") == before


def test_the_host_keeps_its_terminal_and_the_sandbox_has_none() -> None:
    """A command cannot open the person's terminal, were there one: the session of the init has none."""
    script = (
        "import sys; sys.path[:0] = {path!r}\n"
        "from support import initbox\n"
        "from supervisor.sandbox import ops\n"
        "with initbox.ready(initbox.base([ops.Bind(b'/dev/tty', b'/dev/tty', ops.NOSUID)])) as box:\n"
        "    print(box.shell('echo hi > /dev/tty')[1])\n"
    )
    root = Path(__file__).parents[2]
    code = script.format(path=[str(root), str(root / "tests")])
    argv = ["script", "-qec", f'{sys.executable} -c "{code}"', "/dev/null"]  # script(1) gives it a terminal
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert "No such device" in done.stdout, done.stdout


def test_modes_of_what_the_init_makes_are_not_those_of_the_launchers_umask() -> None:
    previous = os.umask(0o077)
    try:
        with initbox.ready(initbox.base([ops.Dir(b"/d", 0o775)])) as box:
            assert box.shell("stat -c %a /d /usr/../d; umask") == (0, "775\n775\n0022\n")
    finally:
        os.umask(previous)
