"""An interpreter of seccomp's classic BPF, so that a filter is tested for every call without loading it.

Only what seccomp accepts: loads of 32-bit words of struct seccomp_data, jumps, and, and return. Anything else is an error.
"""
from __future__ import annotations

import struct
from collections.abc import Sequence

ALLOW, ERRNO, KILL_PROCESS = 0x7FFF0000, 0x00050000, 0x80000000
X86_64, I386 = 0xC000003E, 0x40000003


def run(program: bytes, number: int, arguments: Sequence[int] = (), arch: int = X86_64) -> int:
    """What the filter returns for this call: ALLOW, KILL_PROCESS, or ERRNO | errno."""
    padded = [a & 0xFFFFFFFFFFFFFFFF for a in (*arguments, 0, 0, 0, 0, 0, 0)][:6]
    data = struct.pack("<IIQ6Q", number & 0xFFFFFFFF, arch, 0, *padded)
    accumulator = 0
    pc = 0
    while True:
        code, yes, no, k = struct.unpack_from("<HBBI", program, pc * 8)
        pc += 1
        if code == 0x20:  # ld [k]
            (accumulator,) = struct.unpack_from("<I", data, k)
        elif code == 0x06:  # ret k
            return int(k)
        elif code == 0x05:  # ja
            pc += k
        elif code == 0x54:  # and k
            accumulator &= k
        elif code in (0x15, 0x25, 0x35, 0x45):
            taken = {0x15: accumulator == k, 0x25: accumulator > k, 0x35: accumulator >= k, 0x45: bool(accumulator & k)}[code]
            pc += yes if taken else no
        else:
            raise AssertionError(f"instruction {code:#x} at {pc - 1}")
