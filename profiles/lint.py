"""What a profile may not say, whoever wrote it.

Each rule stands for a way in which a filter looked right and was not: a condition that an unconditional rule makes void, a
call misspelt and so never listed, a compare of 64 bits where the kernel looks at 32, or a call that undoes the sandbox.
The lint is pure; names are checked against the profile's own numbers and the caller's table of names (``known``), so that
it runs without libseccomp, and with it in the compiler.
"""
from __future__ import annotations

import errno as errno_module
from collections.abc import Callable, Iterator

from profiles.landlock import FS_RIGHTS, NET_RIGHTS, SCOPES
from profiles.model import Profile, SeccompProfile

# Calls that no profile may allow: each reaches past the sandbox, or undoes a layer, or is too young a surface to be worth it.
DANGEROUS = frozenset(
    """
    _sysctl acct add_key adjtimex bpf chroot clock_adjtime clock_settime clone3 create_module delete_module fanotify_init
    finit_module fsconfig fsmount fsopen fspick init_module io_uring_enter io_uring_register io_uring_setup ioperm iopl kcmp
    kexec_file_load kexec_load keyctl lookup_dcookie mount mount_setattr move_mount move_pages migrate_pages nfsservctl
    open_by_handle_at open_tree open_tree_attr perf_event_open pidfd_getfd pivot_root process_madvise process_vm_readv
    process_vm_writev ptrace query_module quotactl quotactl_fd reboot request_key setdomainname setgroups sethostname setns
    settimeofday swapoff swapon syslog umount umount2 unshare uselib userfaultfd vhangup vm86 vm86old
    """.split()  # noqa: SIM905  (a list to be read by people)
)
# Calls that a profile may allow on conditions only, with the argument that a condition has to look at.
CONDITIONAL = {
    "clone": 0, "socket": 0, "socketpair": 0, "personality": 0, "prlimit64": 0, "setpriority": 1, "ioprio_set": 1,
    "sched_setaffinity": 0, "sched_setattr": 0, "sched_setparam": 0, "sched_setscheduler": 0, "mknod": 1, "mknodat": 2,
}
# What init needs after the filter is on (it is loaded last, on init itself): without these no command would ever start.
NEEDED = frozenset(
    """
    capset clone close close_range dup3 execve exit_group fchdir futex getdents64 kill mmap munmap openat ppoll prctl prlimit64
    read recvmsg rt_sigaction rt_sigprocmask rt_sigreturn sendmsg setresgid setresuid setsid wait4 write
    """.split()  # noqa: SIM905  (a list to be read by people)
)
NAMESPACE_FLAGS = 0x7E020000  # CLONE_NEWNS, CGROUP, UTS, IPC, USER, PID, NET; NEWTIME lies in clone's signal bits
TERMINAL_INPUT = frozenset({0x5412, 0x541C, 0x5423})  # TIOCSTI, TIOCLINUX, TIOCSETD
FAMILIES = {1}  # AF_UNIX
SECRET_ETC = frozenset(
    {"group", "gshadow", "krb5.keytab", "machine-id", "passwd", "resolv.conf", "shadow", "ssh", "sudoers", "sudoers.d"}
)


def lint(profile: Profile, known: Callable[[str], bool] | None = None) -> list[str]:
    """Every finding, in words, worst first within each part; an empty list means that the profile may be used.

    ``known`` tells whether a system call of this name exists; without it names are not checked.
    """
    return [*_seccomp(profile.seccomp, known), *_landlock(profile), *_view(profile)]


def _seccomp(profile: SeccompProfile, known: Callable[[str], bool] | None) -> Iterator[str]:
    allow, absent = set(profile.allow), set(profile.absent)
    conditional = {rule.call for rule in profile.allow_if}
    numbers = dict(profile.numbers)
    for name in sorted((allow | conditional) & DANGEROUS):
        yield f"{name} is never allowed"
    for name in sorted(allow & conditional):
        yield f"{name} is allowed always and on conditions: the conditions would be dropped in silence"
    for name in sorted((allow | conditional) & absent):
        yield f"{name} is both allowed and absent"
    for name in sorted(set(CONDITIONAL) & allow):
        yield f"{name} is allowed on conditions only"
    for name in sorted(NEEDED - allow - conditional):
        yield f"{name} is needed by the sandbox's init"
    for part, names in (("allow", profile.allow), ("absent", profile.absent)):
        for name in sorted({n for n in names if names.count(n) > 1}):
            yield f"{name} stands twice in {part}"
    if len(conditional) != len(profile.allow_if):
        yield "a call stands twice in allow_if"
    for rule in profile.allow_if:
        yield from _condition(rule.call, [(t.arg, t.mask, t.values) for t in rule.tests])
    for answer in profile.answer:
        if answer.call not in allow | conditional:
            yield f"the answer of {answer.call} has no effect: the call is not allowed at all"
        if not hasattr(errno_module, answer.errno):
            yield f"{answer.errno} is not an errno"
        if bool(answer.values) == (answer.differs_from is not None):
            yield f"the answer of {answer.call} needs either values or differs_from"
        if not 0 <= answer.arg <= 5:
            yield f"{answer.call}: no argument {answer.arg}"
    if "ioctl" in allow:
        held: set[int] = set()
        for answer in profile.answer:
            if answer.call == "ioctl" and answer.arg == 1 and answer.mask == 0xFFFFFFFF:
                held |= set(answer.values)
        if not held >= TERMINAL_INPUT:
            yield "ioctl needs answers for TIOCSTI, TIOCLINUX and TIOCSETD, compared on 32 bits"
    for name in sorted(allow | conditional | absent):
        if known is not None and name not in numbers and not known(name):
            yield f"{name} is not a system call"
    for name, number in profile.numbers:
        if number > profile.newest:
            yield f"{name} = {number} lies above newest = {profile.newest}"


def _condition(call: str, tests: list[tuple[int, int, tuple[int, ...]]]) -> Iterator[str]:
    if not tests:
        yield f"{call} has no condition"
    arguments = [arg for arg, _, _ in tests]
    if len(set(arguments)) != len(arguments):
        yield f"{call} tests an argument twice"
    for arg, mask, values in tests:
        if not 0 <= arg <= 5:
            yield f"{call}: no argument {arg}"
        if not values:
            yield f"{call}: a test without values never holds"
        for value in values:
            if value & ~mask:
                yield f"{call}: {value:#x} has bits outside its mask {mask:#x}"
    wanted = CONDITIONAL.get(call)
    if wanted is not None and wanted not in arguments:
        yield f"{call}: no test of argument {wanted}"
    for arg, mask, values in tests:
        held = mask & NAMESPACE_FLAGS == NAMESPACE_FLAGS and not any(v & NAMESPACE_FLAGS for v in values)
        if call == "clone" and arg == 0 and not held:
            yield "clone: a flag of a new namespace would be allowed"
        if call in ("socket", "socketpair") and arg == 0 and (mask != 0xFFFFFFFF or not set(values) <= FAMILIES):
            yield f"{call}: only AF_UNIX is allowed without the loopback option"


def _landlock(profile: Profile) -> Iterator[str]:
    names = set(profile.landlock.work)
    for rule in profile.landlock.rules:
        if not rule.path.startswith("/"):
            yield f"landlock: {rule.path} is not absolute"
        names |= rule.rights
    for name in sorted(names - FS_RIGHTS.keys()):
        yield f"landlock: {name} is not a right"
    for name in sorted(profile.landlock.net - NET_RIGHTS.keys()):
        yield f"landlock: {name} is not a network right"
    for name in sorted(profile.landlock.scopes - SCOPES.keys()):
        yield f"landlock: {name} is not a scope"
    for rule in profile.landlock.rules:
        if rule.path == "/" and rule.rights - {"execute", "read_file", "read_dir"}:
            yield "landlock: the root may be read and executed, nothing more"


def _view(profile: Profile) -> Iterator[str]:
    view = profile.view
    for path in (*view.trees, *view.roots):
        if not path.startswith("/") or path == "/" or ".." in path.split("/"):
            yield f"view: {path} is not a tree below /"
        elif path.split("/")[1] in ("dev", "etc", "home", "proc", "root", "run", "sys", "tmp", "var", "workspace"):
            yield f"view: {path} is never shared with the host"
    for path in view.etc:
        if path.startswith("/") or ".." in path.split("/"):
            yield f"view: {path} is not relative to /etc"
        elif path.split("/")[0] in SECRET_ETC:
            yield f"view: /etc/{path} is never shared with the host"
    for path in (*view.masked_files, *view.masked_directories, *view.read_only):
        if not path.startswith("/proc/"):
            yield f"view: {path} is not in /proc"
    for name in view.devices:
        if name not in ("full", "null", "random", "tty", "urandom", "zero"):
            yield f"view: the device {name} is never shared with the host"
    for scratch in view.scratch:
        if scratch.size <= 0 or scratch.inodes <= 0:
            yield f"view: {scratch.path} needs a size and a number of inodes"
