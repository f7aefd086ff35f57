"""Recipe of ``native._launch``: the cffi door to ``launch.c``, ``sealed.c``, ``detached.c`` and ``links.c``.

API mode, so the compiler checks every declaration.
"""
from __future__ import annotations

from pathlib import Path

from cffi import FFI

HERE = Path(__file__).parent


def declarations() -> str:
    """The header without its preprocessor lines, which cffi does not read."""
    lines = (HERE / "launch.h").read_text().splitlines()
    return "\n".join(line for line in lines if not line.startswith("#"))


ffi = FFI()
ffi.cdef(declarations())
ffi.set_source(
    "native._launch",
    '#include "launch.h"',
    sources=["native/launch.c", "native/sealed.c", "native/detached.c", "native/links.c"],
    include_dirs=["native"],
    depends=["native/launch.h", "native/init/protocol.h", "native/init/sys.h"],
    extra_compile_args=["-O2", "-Wall", "-Wextra", "-fstack-protector-strong", "-D_FORTIFY_SOURCE=2"],
)
