"""The shipped filter, call by call, through an interpreter of BPF: no kernel is asked."""
from __future__ import annotations

import errno
import itertools
import os
from typing import Any

import pyseccomp  # type: ignore[import-untyped]
import pytest

from profiles.lint import DANGEROUS
from profiles.load import shipped
from profiles.seccomp import compile_filter
from support import bpf


def export(made: Any) -> bytes:
    with os.fdopen(os.memfd_create("bpf"), "w+b") as file:
        made.export_bpf(file)
        file.seek(0)
        return file.read()


@pytest.fixture(scope="module")
def program() -> bytes:
    return compile_filter(shipped(), "x86_64", export)


def number(name: str) -> int:
    known = dict(shipped().seccomp.numbers)
    return known[name] if name in known else int(pyseccomp.resolve_syscall(pyseccomp.Arch.X86_64, name))


def answer(program: bytes, name: str, *arguments: int) -> str:
    return told(bpf.run(program, number(name), arguments))


def told(result: int) -> str:
    if result & 0xFFFF0000 == bpf.ERRNO:
        return errno.errorcode[result & 0xFFFF]
    return {bpf.ALLOW: "allow", bpf.KILL_PROCESS: "kill"}[result]


def reference() -> bytes:
    """The allow-list as libseccomp alone writes it, without the answers and the numbers above the newest."""
    profile = shipped().seccomp
    made = pyseccomp.SyscallFilter(bpf.ERRNO | errno.EPERM)
    made.set_attr(pyseccomp.Attr.ACT_BADARCH, bpf.KILL_PROCESS)
    for name in profile.allow:
        made.add_rule(bpf.ALLOW, number(name))
    for name in profile.absent:
        made.add_rule(bpf.ERRNO | errno.ENOSYS, number(name))
    for rule in profile.allow_if:
        for values in itertools.product(*(test.values for test in rule.tests)):
            pairs = zip(rule.tests, values, strict=True)
            arguments = [pyseccomp.Arg(test.arg, pyseccomp.MASKED_EQ, test.mask, value) for test, value in pairs]
            made.add_rule(bpf.ALLOW, number(rule.call), *arguments)
    return export(made)


def test_the_tree_decides_as_libseccomp_does(program: bytes) -> None:
    theirs = reference()
    answered = {number(a.call) for a in shipped().seccomp.answer}
    words = (0, 1, 2, 17, 0x1000, 0x2000, 0x8000, 0xC000, 0x20000011, 0x7E020000, 0xFFFFFFFF, 1 << 32, (1 << 64) - 1)
    for call in range(shipped().seccomp.newest + 1):
        for word in words:
            for other in (0, word):
                arguments = [word, other, word, 0, 0, 0]
                ours, expected = bpf.run(program, call, arguments), bpf.run(theirs, call, arguments)
                if ours != expected:
                    assert call in answered, (call, arguments)
                    assert ours & 0xFFFF0000 == bpf.ERRNO


def test_it_is_small_enough_to_load_quickly(program: bytes) -> None:
    assert len(program) // 8 < 350


def test_it_fits_into_the_kernels_bound(program: bytes) -> None:
    assert len(program) % 8 == 0
    assert len(program) // 8 <= 4096


def test_every_call_of_the_list_is_allowed_whatever_its_arguments(program: bytes) -> None:
    for name in shipped().seccomp.allow:
        if name != "ioctl":
            assert answer(program, name, *[0xFFFFFFFFFFFFFFFF] * 6) == "allow", name


def test_every_other_number_is_refused(program: bytes) -> None:
    profile = shipped().seccomp
    listed = {number(n) for n in (*profile.allow, *profile.absent, *(rule.call for rule in profile.allow_if))}
    for call in range(profile.newest + 1):
        if call not in listed:
            assert told(bpf.run(program, call)) == "EPERM", call
    for call in (profile.newest + 1, 500, 1000, 0x3FFFFFFF):
        assert told(bpf.run(program, call)) == "ENOSYS"


@pytest.mark.parametrize("name", sorted(DANGEROUS))
def test_dangerous_calls_are_refused(program: bytes, name: str) -> None:
    call = number(name)
    if call >= 0:
        expected = "ENOSYS" if name == "clone3" or name.startswith("io_uring") else "EPERM"
        assert told(bpf.run(program, call)) == expected


def test_foreign_architectures_are_killed_whatever_the_number(program: bytes) -> None:
    for call in (0, 1, 11, 102, 435, 470, 900, 0xFFFFFFFF):
        assert told(bpf.run(program, call, arch=bpf.I386)) == "kill"
    for call in (0, 59, 520, 1000):
        assert told(bpf.run(program, call | 0x40000000)) == "kill"  # x32


NAMESPACES = [0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000]


def test_clone_makes_processes_and_threads_but_no_namespace(program: bytes) -> None:
    assert answer(program, "clone", 17) == "allow"
    assert answer(program, "clone", 0x3D0F00) == "allow"  # what pthread_create asks for
    for flag in NAMESPACES:
        assert answer(program, "clone", flag | 17) == "EPERM"
        assert answer(program, "clone", flag | 17 | 1 << 40) == "EPERM"


@pytest.mark.parametrize("name", ["socket", "socketpair"])
def test_local_sockets_only(program: bytes, name: str) -> None:
    assert answer(program, name, 1, 1) == "allow"
    for family in (0, 2, 10, 16, 17, 38, 40, 44, 0xFFFFFFFF, 1 << 32, 2 | 1 << 32):
        assert answer(program, name, family, 1) == "EAFNOSUPPORT", family
    # The kernel looks at 32 bits; a family of one with a bit above is refused all the same.
    assert answer(program, name, 1 | 1 << 32, 1) != "allow"


@pytest.mark.parametrize("request_", [0x5412, 0x541C, 0x5423])
def test_nothing_is_typed_into_a_terminal(program: bytes, request_: int) -> None:
    for above in (0, 1 << 32, 0xFFFFFFFF << 32):
        assert answer(program, "ioctl", 0, request_ | above) == "EPERM"


def test_other_requests_of_ioctl_pass(program: bytes) -> None:
    for request_ in (0x5401, 0x5411, 0x5413, 0x5422, 0x5424, 0x541B, 0xC0385468):
        assert answer(program, "ioctl", 0, request_) == "allow"


def test_arguments_that_reach_beyond_the_caller_are_refused(program: bytes) -> None:
    assert answer(program, "personality", 0) == "allow"
    assert answer(program, "personality", 0xFFFFFFFF) == "allow"
    assert answer(program, "personality", 0x40000) == "EPERM"
    assert answer(program, "prlimit64", 0) == "allow"
    assert answer(program, "prlimit64", 1) == "EPERM"
    assert answer(program, "setpriority", 0, 0) == "allow"
    assert answer(program, "setpriority", 0, 1) == "EPERM"
    assert answer(program, "setpriority", 2, 0) == "EPERM"  # every process of the uid, init among them
    assert answer(program, "ioprio_set", 1, 0) == "allow"
    assert answer(program, "ioprio_set", 3, 0) == "EPERM"
    for name in ("sched_setaffinity", "sched_setattr", "sched_setparam", "sched_setscheduler"):
        assert answer(program, name, 0) == "allow"
        assert answer(program, name, 1) == "EPERM"


def test_nodes_are_files_fifos_and_sockets(program: bytes) -> None:
    allowed, refused = (0, 0x1000, 0x8000, 0xC000), (0x2000, 0x6000)
    for kind, expected in [(k, "allow") for k in allowed] + [(k, "EPERM") for k in refused]:
        assert answer(program, "mknod", 0, kind | 0o644) == expected
        assert answer(program, "mknodat", 0, 0, kind | 0o644) == expected


def test_both_architectures_are_known_and_no_third() -> None:
    from profiles.model import ProfileError

    with pytest.raises(ProfileError):
        compile_filter(shipped(), "riscv64", export)
