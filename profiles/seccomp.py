"""Seccomp: a profile to the BPF program that the kernel loads: a tree of our own over the numbers, conditions by libseccomp.

    foreign architecture or x32  →  the process is killed
    number above ``newest``      →  ENOSYS, so that a newer libc falls back
    an answer's condition holds  →  its errno
    allowed, conditions hold     →  allow
    anything else                →  EPERM

Nearly all calls are decided by their number alone. A list of 300 equalities, as libseccomp writes it, costs the kernel 200 µs
to translate each time that a sandbox loads it; the same decision is a binary search over some sixty ranges. What looks at
arguments is libseccomp's, in two programs, because it drops a conditional refusal that stands beside an unconditional allow
of the same call (measured; the lint refuses to write it that way): the first has the *answers* and lets everything else
pass; where it would allow, it jumps to the second, the conditions under which a call is allowed.

pyseccomp is imported here and only when a program has to be compiled (30–40 ms). Writing a program out needs a descriptor,
which is the caller's business: ``export``. A test compares the whole with what libseccomp alone makes of the profile.
"""
from __future__ import annotations

import errno
import struct
from collections.abc import Callable
from itertools import product
from typing import Any

from profiles.lint import lint
from profiles.model import Profile, ProfileError, SeccompProfile

VERSION = 4  # of this compiler: part of the cache key
_INSTRUCTION = struct.Struct("<HBBI")  # struct sock_filter
_MAXIMUM = 4096  # BPF_MAXINSNS
_LD_ABS, _JEQ, _JGE, _JSET, _JA, _RET = 0x20, 0x15, 0x35, 0x45, 0x05, 0x06
_NR, _ARCH = 0, 4  # offsets in struct seccomp_data
_ALLOW, _ERRNO, _KILL_PROCESS = 0x7FFF0000, 0x00050000, 0x80000000
_X32_BIT = 0x40000000
_CONDITIONS = 0  # a leaf of the tree that goes on to the conditions (as an action it would be "kill the thread")
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
    conditions = link(export(_answers(pyseccomp, rules)), export(_conditions(pyseccomp, rules)))
    program = _tree(AUDIT_ARCH[machine], ranges(_decisions(pyseccomp, rules), rules.newest)) + conditions
    if len(program) // _INSTRUCTION.size > _MAXIMUM:
        raise ProfileError(f"{profile.name}: the seccomp program is too long")
    return program


def link(first: bytes, second: bytes) -> bytes:
    """``first`` with every "return ALLOW" turned into a jump to ``second``, then ``second``."""
    linked = bytearray()
    count = len(first) // _INSTRUCTION.size
    for index in range(count):
        code, yes, no, value = _INSTRUCTION.unpack_from(first, index * _INSTRUCTION.size)
        if code == _RET and value == _ALLOW:
            code, yes, no, value = _JA, 0, 0, count - index - 1
        linked += _INSTRUCTION.pack(code, yes, no, value)
    return bytes(linked) + second


def ranges(decisions: dict[int, int], newest: int) -> list[tuple[int, int]]:
    """(first number, action) of each run of numbers with the same action, from 0 on; the last one has no end."""
    found: list[tuple[int, int]] = []
    for number in range(newest + 1):
        action = decisions.get(number, _ERRNO | errno.EPERM)
        if not found or found[-1][1] != action:
            found.append((number, action))
    return [*found, (newest + 1, _ERRNO | errno.ENOSYS)]


def _tree(arch: int, found: list[tuple[int, int]]) -> bytes:
    instructions = [
        (_LD_ABS, 0, 0, _ARCH),
        (_JEQ, 1, 0, arch),
        (_RET, 0, 0, _KILL_PROCESS),
        (_LD_ABS, 0, 0, _NR),
        (_JSET, 0, 1, _X32_BIT),
        (_RET, 0, 0, _KILL_PROCESS),
        *_search(found),
    ]
    for index, (code, _, _, value) in enumerate(instructions):
        if code == _RET and value == _CONDITIONS:
            instructions[index] = (_JA, 0, 0, len(instructions) - index - 1)
    return b"".join(_INSTRUCTION.pack(*i) for i in instructions)


def _search(found: list[tuple[int, int]]) -> list[tuple[int, int, int, int]]:
    """A binary search; the actions, each once, stand behind its comparisons. Short programs load fast."""
    actions = list(dict.fromkeys(action for _, action in found))
    comparisons: list[tuple[int, int, int, int]] = []

    def place(low: int, high: int) -> int:
        """The index of what decides between the runs from ``low`` to before ``high``."""
        if high - low == 1:
            return len(found) - 1 + actions.index(found[low][1])
        here, middle = len(comparisons), (low + high) // 2
        comparisons.append((_JGE, 0, 0, found[middle][0]))
        below, above = place(low, middle), place(middle, high)
        if max(below, above) - here - 1 > 255:
            raise ProfileError("the seccomp list is too scattered: a jump spans 255 instructions at most")
        comparisons[here] = (_JGE, above - here - 1, below - here - 1, found[middle][0])
        return here

    place(0, len(found))
    return [*comparisons, *((_RET, 0, 0, action) for action in actions)]


def _decisions(pyseccomp: Any, profile: SeccompProfile) -> dict[int, int]:
    """number → action, for every call that is not refused with EPERM."""
    looked_at = {rule.call for rule in profile.allow_if} | {answer.call for answer in profile.answer}
    decided: dict[int, int] = {}
    for names, action in ((profile.allow, _ALLOW), (profile.absent, _ERRNO | errno.ENOSYS), (looked_at, _CONDITIONS)):
        for name in names:
            number = _number(pyseccomp, profile, name)
            if number is not None:
                decided[number] = action
    return decided


def _new(pyseccomp: Any, action: int) -> Any:
    made = pyseccomp.SyscallFilter(action)
    made.set_attr(pyseccomp.Attr.ACT_BADARCH, _KILL_PROCESS)
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


def _conditions(pyseccomp: Any, profile: SeccompProfile) -> Any:
    made = _new(pyseccomp, _ERRNO | errno.EPERM)
    for name in {answer.call for answer in profile.answer} & set(profile.allow):
        number = _number(pyseccomp, profile, name)
        if number is not None:
            made.add_rule(_ALLOW, number)
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
