"""native/init/check.c built hosted: the init's own judgement of a plan or a payload, as a Python function."""
from __future__ import annotations

import ctypes
import functools
import subprocess
import tempfile
from pathlib import Path

from support import needs

SOURCE = Path(__file__).parents[2] / "native/init/check.c"


@functools.cache
def library() -> ctypes.CDLL:
    needs.require("cc")
    with tempfile.TemporaryDirectory() as directory:
        built = Path(directory) / "check.so"
        subprocess.run(["cc", "-O1", "-g", "-shared", "-fPIC", "-o", built, SOURCE], check=True)
        return ctypes.CDLL(str(built))  # stays mapped when the file is gone


def check_plan(plan: bytes, fds: int) -> tuple[int, int | None]:
    """(fault, step or None)."""
    buffer = ctypes.create_string_buffer(plan, len(plan))
    out = (ctypes.c_uint64 * 8)()
    step = ctypes.c_uint32()
    fault = library().check_plan(buffer, len(plan), fds, out, ctypes.byref(step))
    return fault, None if step.value == 0xFFFF_FFFF else step.value


def check_run(payload: bytes) -> int:
    """0, or the errno."""
    buffer = ctypes.create_string_buffer(payload, len(payload))
    out = (ctypes.c_uint64 * 8)()
    return int(library().check_run(buffer, len(payload), out))
