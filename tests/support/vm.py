"""Another kernel for a test: Debian's own, under qemu, on this machine's root file system.

``with Machine() as machine: machine.run("uname", "-r")``. The kernel is the one of Debian's stable release, fetched by
``apt-get download`` and kept in a cache; the guest's root is this machine's, read-only below and in memory above, so that
it has this checkout, this interpreter and these libraries, and nothing that happens in it reaches this machine. Beside it:
an empty ext4 disk on /disk, unified control groups, AppArmor and Landlock, no network device.

The processor is emulated (about ten times slower than this one): set ``LEMNI_VM_ACCEL=kvm`` where that works.
"""
from __future__ import annotations

import base64
import contextlib
import fcntl
import functools
import gzip
import json
import lzma
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

HERE = Path(__file__).resolve().parent
TREE = HERE.parents[1]
ACCEL = os.environ.get("LEMNI_VM_ACCEL", "tcg,thread=multi")
CACHE = Path(os.environ.get("LEMNI_VM_CACHE") or f"/var/tmp/lemni-vm-{os.geteuid()}")
PACKAGE = "linux-image-amd64"
PROGRAMS = {"qemu-system-x86_64": "qemu-system-x86", "busybox": "busybox-static", "mkfs.ext4": "e2fsprogs", "dpkg-deb": "dpkg"}
MODULES = ("virtio_pci", "virtio_console", "virtio_blk", "9pnet_virtio", "9p", "overlay", "ext4", "crc32c_generic")
BOOT_SECONDS = 120.0
PYTHON = os.path.realpath(sys.executable)  # not by a name on PATH: a wrapper there costs seconds under emulation
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Unavailable(Exception):
    """The machine cannot be had here, and why."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command in the guest ended. A negative code is the signal that ended it."""

    code: int
    out: str
    err: str

    def __str__(self) -> str:
        return f"status {self.code}\n--- out\n{self.out}\n--- err\n{self.err}"


class Machine:
    """One booted guest: commands run in it one after the other, each waited for."""

    def __init__(self, memory_mib: int = 1536, cpus: int = 2) -> None:
        self._memory_mib = memory_mib
        self._cpus = cpus
        self._undo = contextlib.ExitStack()
        self._channel: socket.socket | None = None
        self._console = Path()

    def __enter__(self) -> Machine:
        with self._undo:
            self._boot()
            self._undo = self._undo.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._undo.close()

    def run(
        self,
        *argv: str,
        uid: int = 0,
        group: str = "system.slice/test.service",
        cwd: str = "/",
        env: Mapping[str, str] | None = None,
        timeout: float = 120.0,
    ) -> Ended:
        """Run one command to its end as ``uid``, in the control group ``group``. The environment is PATH and ``env``."""
        request = {
            "argv": argv, "uid": uid, "group": group, "cwd": cwd, "timeout": timeout,
            "env": {"PATH": SYSTEM_PATH, "LANG": "C.UTF-8", "HOME": "/", **(env or {})},
        }  # fmt: skip
        assert self._channel is not None
        self._channel.sendall(json.dumps(request).encode() + b"\n")
        answer = self._answer(timeout + 30)
        if "failed" in answer:
            raise RuntimeError(f"the guest could not run {argv}: {answer['failed']}")
        out, err = (base64.b64decode(answer[name]).decode("utf-8", "surrogateescape") for name in ("out", "err"))
        return Ended(answer["code"], out, err)

    def _boot(self) -> None:
        kernel, modules = kernel_files()
        place = Path(self._undo.enter_context(tempfile.TemporaryDirectory(prefix="lemni-vm-")))
        self._console = place / "console"
        disk = place / "disk"
        with open(disk, "wb") as file:
            file.truncate(1 << 30)  # sparse
        _run(program("mkfs.ext4"), "-q", "-F", str(disk))
        ours, theirs = socket.socketpair()
        self._undo.enter_context(ours)
        with theirs, open(place / "log", "wb") as log:
            argv = [
                program("qemu-system-x86_64"), "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
                "-M", "q35", "-accel", ACCEL, "-cpu", "max", "-m", str(self._memory_mib), "-smp", str(self._cpus),
                "-kernel", str(kernel), "-initrd", str(initramfs(modules, place)),
                "-append", "console=ttyS0 quiet panic=-1 reboot=t no_timer_check apparmor=1 "
                "lsm=landlock,lockdown,yama,apparmor,bpf",
                "-serial", f"file:{self._console}", "-nic", "none",
                "-fsdev", "local,id=host,path=/,readonly=on,multidevs=remap,security_model="
                + ("passthrough" if os.geteuid() == 0 else "none"),
                "-device", "virtio-9p-pci,fsdev=host,mount_tag=host",
                "-drive", f"file={disk},format=raw,if=virtio,cache=unsafe",
                "-device", "virtio-serial-pci", "-chardev", f"socket,id=commands,fd={theirs.fileno()}",
                "-device", "virtserialport,chardev=commands,name=commands",
            ]  # fmt: skip
            # The machine must not outlive the tests, whatever ends them: its parent-death signal sees to it.
            qemu = subprocess.Popen(
                [program("setpriv"), "--pdeathsig", "KILL", "--", *argv],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=log,
                pass_fds=(theirs.fileno(),), start_new_session=True,
            )  # fmt: skip
        self._undo.callback(_end, qemu)
        self._channel = ours
        self._answer(BOOT_SECONDS)

    def _answer(self, seconds: float) -> dict[str, Any]:
        assert self._channel is not None
        self._channel.settimeout(seconds)
        received = bytearray()
        try:
            while not received.endswith(b"\n"):
                data = self._channel.recv(65536)
                if not data:
                    raise RuntimeError(f"the machine ended\n{self._tail()}")
                received += data
        except TimeoutError:
            raise RuntimeError(f"no answer from the machine within {seconds:.0f} s\n{self._tail()}") from None
        answer: dict[str, Any] = json.loads(received)
        return answer

    def _tail(self) -> str:
        texts = (path.read_text(errors="replace") for path in (self._console, self._console.with_name("log")) if path.exists())
        return "\n".join("\n".join(texts).splitlines()[-20:])


def lacks() -> str | None:
    """Why there can be no machine here, found out without building one; None when there can."""
    if os.uname().machine != "x86_64":
        return f"the machine's processor is {os.uname().machine}"
    for program, package in PROGRAMS.items():
        if find(program) is None:
            return f"no {program} (apt-get install {package})"
    if not (CACHE / "kernel").exists() and find("apt-get") is None:
        return "no kernel in the cache, and no apt-get to fetch one"
    return None


def kernel_files() -> tuple[Path, Path]:
    """The kernel and its modules from the cache, fetched at first. Raises ``Unavailable``."""
    CACHE.mkdir(mode=0o755, parents=True, exist_ok=True)
    if CACHE.stat().st_uid != os.geteuid():  # a directory that anybody could have made: nothing in it is believed
        raise Unavailable(f"{CACHE} belongs to somebody else")
    with open(CACHE / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two suites at once fetch it once
        if not (CACHE / "kernel").exists():
            with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
                _fetch(Path(scratch))
    return CACHE / "kernel", CACHE / "modules"


def _fetch(scratch: Path) -> None:
    """Download the package, keep the modules and (last, since it says that all is there) the unpacked kernel."""
    listed = _run("apt-cache", "depends", PACKAGE).split()
    package = next((word for word in listed if word.startswith("linux-image-") and word != PACKAGE), None)
    if package is None:
        raise Unavailable(f"apt knows no {PACKAGE}: apt-get update")
    _run("apt-get", "-q", "download", package, cwd=scratch)
    files = scratch / "files"
    _run("dpkg-deb", "-x", *map(str, scratch.glob("*.deb")), str(files))
    image = next((files / "boot").glob("vmlinuz-*"))
    release = image.name.removeprefix("vmlinuz-")
    _run("busybox", "depmod", "-b", str(files), release)
    shutil.rmtree(CACHE / "modules", ignore_errors=True)
    (files / "lib/modules").rename(CACHE / "modules")
    # The kernel unpacked: emulated, it would take seconds to unpack itself.
    packed = image.read_bytes()
    plain = scratch / "kernel"
    plain.write_bytes(lzma.LZMADecompressor().decompress(packed[packed.index(b"\xfd7zXZ\0") :]))
    plain.rename(CACHE / "kernel")


def initramfs(modules: Path, place: Path) -> Path:
    """The first root: a static shell, the modules that it needs, the script that builds the real one."""
    root = place / "first"
    for name in ("bin", "proc", "sys", "dev", "parts/host", "parts/memory", "new"):
        (root / name).mkdir(parents=True)
    shutil.copy(program("busybox"), root / "bin/busybox")
    for applet in ("cp", "hostname", "ln", "mkdir", "modprobe", "mount", "poweroff", "sh", "sleep", "switch_root", "umount"):
        (root / "bin" / applet).symlink_to("busybox")
    shutil.copy(HERE / "vm_init.sh", root / "init")
    (root / "init").chmod(0o755)
    shutil.copy(HERE / "vm_guest.py", root / "guest.py")
    (root / "tree").write_text(f"{TREE}\n")
    (root / "start").write_text(f"{PYTHON} -I /run/guest.py\n/run/busybox poweroff -f\n")
    (release,) = modules.iterdir()
    wanted, files = needed(release)
    (root / "modules").write_text(" ".join(wanted) + "\n")
    for name in (*files, "modules.dep"):
        kept = root / "lib/modules" / release.name / name
        kept.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(release / name, kept)
    names = "\n".join(str(path.relative_to(root)) for path in sorted(root.rglob("*")))
    archive = subprocess.run(
        [program("busybox"), "cpio", "-o", "-H", "newc"], cwd=root, input=names.encode(), capture_output=True, check=True
    )
    packed = place / "initrd"
    packed.write_bytes(gzip.compress(archive.stdout, 1))
    return packed


def needed(release: Path) -> tuple[list[str], set[str]]:
    """Which of ``MODULES`` this kernel has as modules (the rest is built in), and all files that they depend on."""
    depends: dict[str, list[str]] = {}
    for line in (release / "modules.dep").read_text().splitlines():
        name, _, others = line.partition(":")
        depends[name] = others.split()
    by_name = {Path(name).stem.replace("-", "_"): name for name in depends}
    wanted = [name for name in MODULES if name in by_name]
    files = {name for module in wanted for name in (by_name[module], *depends[by_name[module]])}
    return wanted, files


@functools.cache
def find(name: str) -> str | None:
    """A program's path; an ordinary user's PATH lacks /usr/sbin, where mkfs lies."""
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:{SYSTEM_PATH}")


def program(name: str) -> str:
    """A program's path. Raises ``Unavailable``."""
    path = find(name)
    if path is None:
        raise Unavailable(f"no {name}")
    return path


def _run(name: str, *arguments: str, cwd: Path | None = None) -> str:
    done = subprocess.run(
        [program(name), *arguments], cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise Unavailable(f"{name}: {done.stderr.strip()[-300:]}")
    return done.stdout


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
