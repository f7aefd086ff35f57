"""What this machine offers, read once and cheaply: no sandbox is opened here.

Opening one is the only full trial (a kernel may allow a namespace and refuse what is done in it); ``examine`` does that for
``lemni doctor``, and every session does it by opening its own. What is read here decides the plan and explains a refusal.
"""
from __future__ import annotations

import errno
import os
import resource

from native import files
from profiles.model import Profile
from supervisor.errors import HostUnfit
from supervisor.sandbox import cgroup, launch, layers
from supervisor.sandbox.groups import unescape
from supervisor.sandbox.ids import END_HOST_ID, FIRST_HOST_ID
from supervisor.sandbox.machine import Entry, HostFacts, HostView
from supervisor.sandbox.spec import SandboxSpec

COPIED = 32 << 10  # bytes: files of /etc up to this size are copied, larger ones bound
_NAMESPACES = ("user", "mnt", "pid", "net", "ipc", "uts", "cgroup")
_SWITCHES = {
    "unprivileged_userns_clone": "/proc/sys/kernel/unprivileged_userns_clone",  # Debian
    "apparmor_restrict_unprivileged_userns": "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",  # Ubuntu
    "max_user_namespaces": "/proc/sys/user/max_user_namespaces",  # RHEL and everywhere
}


def read(profile: Profile) -> HostFacts:
    """Read the facts. Never raises for what is missing: missing facts are facts, and ``require`` judges them.

    HostUnfit where there is no /proc to read them from.
    """
    if not os.path.exists("/proc/self/mountinfo"):
        raise HostUnfit(
            "reading what this machine offers", on="/proc", why="no proc file system of this process is mounted there",
            remedy=layers.PROC,
        )
    uid, gid, name = os.geteuid(), os.getegid(), os.uname()
    missing = tuple(n for n in _NAMESPACES if not os.path.exists(f"/proc/self/ns/{n}"))
    switches = tuple((key, value) for key, path in _SWITCHES.items() if (value := _number(path)) is not None)
    abi = launch.landlock_abi()
    groups = cgroup.find()
    covered = _covered()
    seccomp = "kill_process" in _text("/proc/sys/kernel/seccomp/actions_avail")
    apparmor = _text("/sys/module/apparmor/parameters/enabled").strip() == "Y"
    privileged = uid == 0 and _maps_session_ids(_text("/proc/self/uid_map"))
    return HostFacts(
        uid=uid,
        gid=gid,
        privileged=privileged,
        machine=name.machine,
        kernel=name.release,
        namespaces_missing=missing,
        switches=switches,
        proc_covered=covered,
        seccomp=seccomp,
        landlock_abi=abi,
        apparmor=apparmor,
        cgroups=groups,
        hard_limits=tuple((which, _hard(which)) for which in range(16)),
        view=view_of(profile),
        layers=layers.describe(
            privileged=privileged,
            namespaces_missing=missing,
            switches=dict(switches),
            proc_covered=covered,
            seccomp=seccomp,
            landlock_abi=abi,
            apparmor=apparmor,
            cgroups=groups,
            openat2=_openat2(),
            profile=profile,
        ),
    )


def require(host: HostFacts, spec: SandboxSpec, profile: Profile) -> None:
    """Raise ``HostUnfit`` with the remedy when something that this sandbox cannot do without is known to be missing."""
    require_layers(host, layers.LIMITS if spec.required_limits else frozenset())


def require_layers(host: HostFacts, more: frozenset[str] = frozenset()) -> None:
    """The same for what no sandbox can do without, and for ``more``: asked before anything is made for one."""
    for layer in host.layers:
        if (layer.required or layer.name in more) and not layer.on:
            raise HostUnfit("opening a sandbox", on=layer.name, why=layer.fact, remedy=layer.remedy or None)


def view_of(profile: Profile) -> HostView:
    """What of the profile's view exists on this host. A link whose end would not be visible inside is resolved and bound."""
    view = profile.view
    visible = (b"/etc/", *(os.fsencode(t) + b"/" for t in view.trees))
    trees = [_entry(os.fsencode(path), visible) for path in (*view.roots, *view.trees)]
    etc = [_entry(b"/etc/" + os.fsencode(path), visible) for path in view.etc]
    return HostView(
        trees=tuple(e for e in trees if e is not None),
        etc=tuple(e for e in etc if e is not None),
        devices=tuple(p for n in view.devices if os.path.exists(p := b"/dev/" + os.fsencode(n))),
        masked_files=_present(view.masked_files),
        masked_directories=_present(view.masked_directories),
        read_only=_present(view.read_only),
    )


def _present(paths: tuple[str, ...]) -> tuple[bytes, ...]:
    return tuple(os.fsencode(p) for p in paths if os.path.exists(p))


def _entry(path: bytes, visible: tuple[bytes, ...]) -> Entry | None:
    try:
        target = os.readlink(path)
    except FileNotFoundError:
        return None
    except OSError:  # EINVAL: no link
        return _real(path, path)
    end = os.path.realpath(path)
    if (end + b"/").startswith(visible):
        return Entry(path, target=target) if os.path.exists(end) else None
    return _real(path, end)


def _real(path: bytes, source: bytes) -> Entry | None:
    """A small file is copied (a file costs a third of a mount), an empty or unreadable directory is left out."""
    try:
        if os.path.isdir(source):
            return Entry(path, source) if os.listdir(source) else None
        if os.path.isfile(source) and os.stat(source).st_size <= COPIED:
            with open(source, "rb") as file:
                return Entry(path, content=file.read(COPIED))
    except OSError:
        return None
    return Entry(path, source) if os.access(source, os.R_OK) else None


def _openat2() -> str:
    """"", or the name of the errno with which openat2(2) is refused here."""
    root = os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.close(files.openat2(root, b".", os.O_PATH))
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, str(error))
    finally:
        os.close(root)
    return ""


def _covered() -> tuple[str, ...]:
    found = []
    for line in _text("/proc/self/mountinfo").splitlines():
        point = unescape(line.split(" ")[4])
        # A mount on an empty directory hides nothing; the kernel accepts those (binfmt_misc, nfsd, …).
        if point.startswith("/proc/") and not point.startswith(("/proc/sys/fs/", "/proc/fs/")):
            found.append(point)
    return tuple(found)


def _maps_session_ids(uid_map: str) -> bool:
    """Whether the caller's own user namespace has the ids that sessions take (a root of a small container has not)."""
    for line in uid_map.splitlines():
        inner, _, count = (int(word) for word in line.split())
        if inner <= FIRST_HOST_ID and inner + count >= END_HOST_ID:
            return True
    return False


def _hard(which: int) -> int:
    hard = resource.getrlimit(which)[1]
    return hard & 0xFFFFFFFFFFFFFFFF  # RLIM_INFINITY is −1 in Python


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return file.read()
    except OSError:
        return ""


def _number(path: str) -> int | None:
    text = _text(path).strip()
    return int(text) if text.lstrip("-").isdigit() else None
