"""Seccomp: a profile to the BPF program that the kernel loads, through libseccomp.

Two programs are made and linked, because libseccomp drops a conditional refusal that stands beside an unconditional allow of
the same call (measured; the lint refuses to write it that way). The first has the profile's *answers* and lets everything
else pass; where it would allow, it jumps to the second, the allow-list. A head of six instructions tells calls newer than
the profile from known ones, which libseccomp cannot express:

    foreign architecture or x32  →  (libseccomp's own check) the process is killed
    number above ``newest``      →  ENOSYS, so that a newer libc falls back
    an answer's condition holds  →  its errno
    allowed, conditions hold     →  allow
    anything else                →  EPERM

pyseccomp is imported here and only when a program has to be compiled (30–40 ms). Writing the program out needs a descriptor,
which is the caller's business: ``export``.
"""
from __future__ import annotations

import errno
import struct
from collections.abc import Callable
from itertools import product
from typing import Any

from profiles.lint import lint
from profiles.model import Profile, ProfileError, SeccompProfile

VERSION = 1  # of this compiler: part of the cache key
_INSTRUCTION = struct.Struct("<HBBI")  # struct sock_filter
_MAXIMUM = 4096  # BPF_MAXINSNS
_LD_ABS, _JEQ, _JGT, _JSET, _JA, _RET = 0x20, 0x15, 0x25, 0x45, 0x05, 0x06
_NR, _ARCH = 0, 4  # offsets in struct seccomp_data
_ALLOW, _ERRNO, _KILL_PROCESS = 0x7FFF0000, 0x00050000, 0x80000000
_X32_BIT = 0x40000000
_BINARY_TREE = 2  # SCMP_FLTATR_CTL_OPTIMIZE
AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}


def compile_filter(profile: Profile, machine: str, export: Callable[[Any], bytes]) -> bytes:
    """The BPF program for this machine (``os.uname().machine``) as an array of struct sock_filter.

    ``export`` writes a ``pyseccomp.SyscallFilter`` out and gives its bytes. Raises ``ProfileError`` for an architecture that
    is not supported, a profile that the lint refuses, or one that does not fit into a program.
    """
    import pyseccomp  # type: ignore[import-untyped]

    if machine not in AUDIT_ARCH:
        raise ProfileError(f"seccomp: no profile for {machine}")

    def known(name: str) -> bool:
        # A name of another architecture is no mistake: open(2) does not exist on aarch64.
        return any(pyseccomp.resolve_syscall(arch, name) != -1 for arch in (pyseccomp.Arch.X86_64, pyseccomp.Arch.AARCH64))

    findings = lint(profile, known)
    if findings:
        raise ProfileError(f"{profile.name}: " + "; ".join(findings))
    rules = profile.seccomp
    program = link(
        _head(AUDIT_ARCH[machine], rules.newest), export(_answers(pyseccomp, rules)), export(_allow_list(pyseccomp, rules))
    )
    if len(program) // _INSTRUCTION.size > _MAXIMUM:
        raise ProfileError(f"{profile.name}: the seccomp program is too long")
    return program


def link(head: bytes, first: bytes, second: bytes) -> bytes:
    """``head``, then ``first`` with every "return ALLOW" turned into a jump to ``second``, then ``second``."""
    linked = bytearray(head)
    count = len(first) // _INSTRUCTION.size
    for index in range(count):
        code, yes, no, value = _INSTRUCTION.unpack_from(first, index * _INSTRUCTION.size)
        if code == _RET and value == _ALLOW:
            code, yes, no, value = _JA, 0, 0, count - index - 1
        linked += _INSTRUCTION.pack(code, yes, no, value)
    return bytes(linked) + second


def _head(arch: int, newest: int) -> bytes:
    instructions = [
        (_LD_ABS, 0, 0, _ARCH),
        (_JEQ, 0, 4, arch),  # foreign: on to libseccomp's check, which kills
        (_LD_ABS, 0, 0, _NR),
        (_JSET, 2, 0, _X32_BIT),  # x32: the same
        (_JGT, 0, 1, newest),
        (_RET, 0, 0, _ERRNO | errno.ENOSYS),
    ]
    return b"".join(_INSTRUCTION.pack(*i) for i in instructions)


def _new(pyseccomp: Any, action: int) -> Any:
    made = pyseccomp.SyscallFilter(action)
    made.set_attr(pyseccomp.Attr.ACT_BADARCH, _KILL_PROCESS)
    made.set_attr(pyseccomp.Attr.CTL_OPTIMIZE, _BINARY_TREE)
    return made


def _number(pyseccomp: Any, profile: SeccompProfile, name: str) -> int | None:
    """The call's number here, or None where this architecture does not have it."""
    number = dict(profile.numbers).get(name)
    if number is None:
        number = int(pyseccomp.resolve_syscall(pyseccomp.Arch.NATIVE, name))
    return number if number >= 0 else None


def _answers(pyseccomp: Any, profile: SeccompProfile) -> Any:
    made = _new(pyseccomp, _ALLOW)
    for answer in profile.answer:
        number = _number(pyseccomp, profile, answer.call)
        if number is None:
            continue
        action = _ERRNO | int(getattr(errno, answer.errno))
        if answer.differs_from is not None:
            made.add_rule(action, number, pyseccomp.Arg(answer.arg, pyseccomp.NE, answer.differs_from))
        for value in answer.values:
            made.add_rule(action, number, pyseccomp.Arg(answer.arg, pyseccomp.MASKED_EQ, answer.mask, value))
    return made


def _allow_list(pyseccomp: Any, profile: SeccompProfile) -> Any:
    made = _new(pyseccomp, _ERRNO | errno.EPERM)
    for name in profile.allow:
        number = _number(pyseccomp, profile, name)
        if number is not None:
            made.add_rule(_ALLOW, number)
    for name in profile.absent:
        number = _number(pyseccomp, profile, name)
        if number is not None:
            made.add_rule(_ERRNO | errno.ENOSYS, number)
    for rule in profile.allow_if:
        number = _number(pyseccomp, profile, rule.call)
        if number is None:
            continue
        for values in product(*(test.values for test in rule.tests)):
            arguments = [
                pyseccomp.Arg(test.arg, pyseccomp.MASKED_EQ, test.mask, value)
                for test, value in zip(rule.tests, values, strict=True)
            ]
            made.add_rule(_ALLOW, number, *arguments)
    return made
