"""What this machine can do, found out by trying, so that a test skips with the fact and never in silence.

``require("landlock")`` skips the test with the reason where the machine lacks it. ``LEMNI_MUST_RUN=landlock,userns``
(or ``all``) turns such a skip into a failure: a machine that is known to offer something says so, and then a broken
probe or a broken kernel cannot hide behind a green run. ``root`` and ``unprivileged`` say as whom the suite runs; they
never fail, because ``make test`` runs the kernel tests once as each.
"""
from __future__ import annotations

import ctypes
import errno
import functools
import os
import pty
import re
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import pytest

from support import vm as machine

MUST_RUN = "LEMNI_MUST_RUN"
IDENTITIES = frozenset({"root", "unprivileged"})

Probe = Callable[[], str | None]  # None when it is there, else why not
PROBES: dict[str, Probe] = {}

_libc = ctypes.CDLL(None, use_errno=True)
_LANDLOCK_CREATE_RULESET = 444
_OPEN_TREE, _MOUNT_SETATTR = 428, 442
_AT_FDCWD, _AT_EMPTY_PATH, _OPEN_TREE_CLONE, _MOUNT_ATTR_IDMAP = -100, 0x1000, 1, 0x00100000


def probe(function: Probe) -> Probe:
    """Register a probe under its name; it runs once a process."""
    cached = functools.cache(function)
    PROBES[function.__name__] = cached
    return cached


def missing(name: str) -> str | None:
    """Why the capability is not there, or None when it is. Raises KeyError for a name that nobody defined."""
    return PROBES[name]()


def require(*names: str) -> None:
    """Skip the calling test (or module) unless the machine has all of these; fail where they are declared."""
    for name in names:
        if (why := missing(name)) is not None:
            lack(name, why)


def lack(name: str, why: str) -> NoReturn:
    """Skip for want of ``name``; fail where it is declared to be there."""
    declared = set(re.split(r"[\s,]+", os.environ.get(MUST_RUN, ""))) - {""}
    if name not in IDENTITIES and declared & {name, "all"}:
        pytest.fail(f"{MUST_RUN} declares {name}, but {why}", pytrace=False)
    pytest.skip(f"needs {name}: {why}", allow_module_level=True)


@probe
def root() -> str | None:
    return None if os.geteuid() == 0 else f"runs as uid {os.geteuid()}"


@probe
def unprivileged() -> str | None:
    return None if os.geteuid() != 0 else "runs as root"


@probe
def userns() -> str | None:
    """User, mount and pid namespace with a fresh /proc: what a container with a masked /proc refuses."""
    return _fails("unshare", "--user", "--map-root-user", "--mount", "--pid", "--fork", "--mount-proc", "true")


@probe
def seccomp() -> str | None:
    actions = Path("/proc/sys/kernel/seccomp/actions_avail")
    return None if actions.exists() else f"{actions} is not there"


@probe
def landlock() -> str | None:
    abi = _libc.syscall(_LANDLOCK_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint(1))
    return None if abi >= 1 else f"landlock_create_ruleset: {_errno_name()}"


@probe
def apparmor() -> str | None:
    switch = Path("/sys/module/apparmor/parameters/enabled")
    return None if switch.exists() and switch.read_text().strip() == "Y" else "the kernel runs without AppArmor"


@probe
def overlay() -> str | None:
    """An overlay mounted inside a user namespace (Linux 5.11), on tmpfs."""
    script = (
        "mount -t tmpfs none /tmp && mkdir /tmp/l /tmp/u /tmp/w /tmp/m &&"
        " mount -t overlay -o lowerdir=/tmp/l,upperdir=/tmp/u,workdir=/tmp/w,userxattr none /tmp/m"
    )
    return _fails("unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script)


@probe
def aarch64_cc() -> str | None:
    return None if shutil.which("aarch64-linux-gnu-gcc") else "there is no aarch64-linux-gnu-gcc"


@probe
def idmap() -> str | None:
    """An idmapped mount on the file system of the temporary directory (root only)."""
    if os.geteuid() != 0:
        return "idmapped mounts need root"
    with tempfile.TemporaryDirectory() as directory, _user_namespace() as namespace:
        tree = _libc.syscall(_OPEN_TREE, _AT_FDCWD, os.fsencode(directory), _OPEN_TREE_CLONE)
        if tree < 0:
            return f"open_tree: {_errno_name()}"
        try:
            attributes = (ctypes.c_uint64 * 4)(_MOUNT_ATTR_IDMAP, 0, 0, namespace)
            done = _libc.syscall(_MOUNT_SETATTR, tree, b"", _AT_EMPTY_PATH, attributes, ctypes.c_size_t(32))
            return None if done == 0 else f"mount_setattr: {_errno_name()}"
        finally:
            os.close(tree)


@probe
def cgroup_v1() -> str | None:
    """The v1 controllers that limits need, in groups in which we may make our own."""
    return next((why for name in ("memory", "pids", "cpu", "freezer") if (why := _cgroup_v1_lacks(name))), None)


@probe
def cgroup_v2() -> str | None:
    """Our own v2 group has memory and pids, and we may make groups in it."""
    mount, group = _cgroup_mount("cgroup2", ""), _own_cgroup("")
    if mount is None or group is None:
        return "no cgroup v2 mount"
    controllers = (mount / "cgroup.controllers").read_text().split() if (mount / "cgroup.controllers").exists() else []
    lacking = sorted({"memory", "pids"} - set(controllers))
    if lacking:
        return f"v2 at {mount} has no {' '.join(lacking)} controller"
    return _cannot_make_group(mount / group.lstrip("/"))


@probe
def git() -> str | None:
    return _no_program("git")


@probe
def bwrap() -> str | None:
    return _no_program("bwrap")


@probe
def bash() -> str | None:
    return _no_program("bash")


@probe
def cc() -> str | None:
    return _no_program("cc")


@probe
def strace() -> str | None:
    return _no_program("strace")


@probe
def openssl() -> str | None:
    """To make a certificate for a test server."""
    return _no_program("openssl")


@probe
def vm() -> str | None:
    """What a test under another kernel needs: an emulator, a static shell for its first root, a kernel or apt-get."""
    return machine.lacks()


@probe
def pty_() -> str | None:
    try:
        for descriptor in pty.openpty():
            os.close(descriptor)
    except OSError as error:
        return f"openpty: {error.strerror}"
    return None


PROBES["pty"] = PROBES.pop("pty_")  # the module pty has the good name


def _fails(*argv: str) -> str | None:
    if (why := _no_program(argv[0])) is not None:
        return why
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30, check=False)
    if done.returncode == 0:
        return None
    return f"{argv[0]}: {done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f'status {done.returncode}'}"


def _no_program(name: str) -> str | None:
    return None if shutil.which(name) else f"no {name} on PATH"


def _errno_name() -> str:
    number = ctypes.get_errno()
    return errno.errorcode.get(number, f"errno {number}")


def _own_cgroup(controller: str) -> str | None:
    """Path of our group in the hierarchy of a v1 controller, or of v2 for the empty name."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            return path
    return None


def _cgroup_mount(kind: str, controller: str) -> Path | None:
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, target, filesystem, options, *_ = line.split(" ")
        if filesystem == kind and (not controller or controller in options.split(",")):
            return Path(target)
    return None


def _cgroup_v1_lacks(controller: str) -> str | None:
    mount, group = _cgroup_mount("cgroup", controller), _own_cgroup(controller)
    if mount is None or group is None:
        return f"no cgroup v1 mount of {controller}"
    return _cannot_make_group(mount / group.lstrip("/"))


def _cannot_make_group(parent: Path) -> str | None:
    child = parent / f"lemni-probe-{uuid.uuid4().hex}"
    try:
        child.mkdir()
        child.rmdir()
    except OSError as error:
        return f"{parent}: {error.strerror}"
    return None


@contextmanager
def _user_namespace() -> Iterator[int]:
    """Descriptor of a user namespace that maps one id, alive as long as the context."""
    argv = ("unshare", "--user", "--map-root-user", "sh", "-c", "echo; exec cat")
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()  # the maps are written once the shell runs
        descriptor = os.open(f"/proc/{process.pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
        try:
            yield descriptor
        finally:
            os.close(descriptor)
            process.communicate()  # end of input ends cat
