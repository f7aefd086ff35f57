"""Builds what is not Python: the static init, the cffi doors to system calls, the Cython hot paths.

Everything else is in pyproject.toml. The init is a program, not an extension: a sub-command of ``build`` compiles it and
puts it into the package beside its importers, with its exec bit.
"""
from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path
from typing import Any, ClassVar, cast

from setuptools import Command, Extension, setup
from setuptools.command.build import build
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

HERE = Path(__file__).parent
INIT_SOURCES = sorted(str(p.relative_to(HERE)) for p in (HERE / "native/init").glob("*.c"))
INIT_HEADERS = sorted(str(p.relative_to(HERE)) for p in (HERE / "native/init").glob("*.h"))
INIT_OUTPUT = "native/lemni-init"

# Freestanding: no libc at all. A static glibc costs 4 times as much to start, and musl would be one more thing to install.
# Position-independent without a loader: start.c relocates itself. Few pages, few faults: no separate read-only segments, and
# no relro, since nobody would protect the pages after relocating.
INIT_FLAGS = shlex.split(
    "-std=c11 -O2 -Wall -Wextra -Werror -Wmissing-prototypes -Wswitch-enum -Wshadow -Wvla "
    "-ffreestanding -nostdlib -static-pie -fPIE -fvisibility=hidden -fno-builtin -fno-asynchronous-unwind-tables "
    "-fstack-protector-strong -mstack-protector-guard=global -fcf-protection=none "
    "-Wl,-z,noexecstack,-z,norelro,-z,noseparate-code,--build-id=none,--no-undefined"
)
# By what the compiler builds for. Arm's atomics would be calls into a library that is not there.
TARGET_FLAGS = {"aarch64": ["-mno-outline-atomics"]}
EXTENSION_FLAGS = shlex.split("-O2 -Wall -Wextra -fstack-protector-strong -D_FORTIFY_SOURCE=2")


class BuildInit(Command):
    """Compile ``native/init`` into ``native/lemni-init``."""

    description = "compile the sandbox's static init"
    user_options: ClassVar[list[tuple[str, str | None, str]]] = [("build-lib=", "b", "where the package is built")]
    editable_mode = False

    def initialize_options(self) -> None:
        self.build_lib: str | None = None

    def finalize_options(self) -> None:
        self.set_undefined_options("build_py", ("build_lib", "build_lib"))

    def target(self) -> Path:
        assert self.build_lib is not None
        return (HERE if self.editable_mode else Path(self.build_lib)) / INIT_OUTPUT

    def run(self) -> None:
        if not INIT_SOURCES:
            return
        target = self.target()
        target.parent.mkdir(parents=True, exist_ok=True)
        compiler = shlex.split(os.environ.get("CC", "cc"))
        machine = subprocess.run([*compiler, "-dumpmachine"], check=True, capture_output=True, text=True).stdout
        flags = [*INIT_FLAGS, *TARGET_FLAGS.get(machine.partition("-")[0], [])]
        partial = target.with_name(target.name + ".new")
        subprocess.run([*compiler, *flags, "-o", str(partial), *INIT_SOURCES], check=True, cwd=HERE)
        partial.chmod(0o755)
        partial.replace(target)

    def get_outputs(self) -> list[str]:
        return [str(self.target())]

    def get_output_mapping(self) -> dict[str, str]:
        return {}

    def get_source_files(self) -> list[str]:
        return [*INIT_SOURCES, *INIT_HEADERS]


class BuildExtensions(build_ext):
    """build_ext, and with ``--inplace`` the init too, so that one command makes a checkout usable."""

    def run(self) -> None:
        super().run()
        if self.inplace:
            command = cast(BuildInit, self.get_finalized_command("build_init"))
            command.editable_mode = True
            command.run()


class BuildPython(build_py):
    """build_py, but the recipes of the cffi doors are left out: they are sources, of no use once built."""

    def build_module(self, module: str, module_file: str, package: str) -> Any:
        if module.endswith("_build"):
            return None
        return super().build_module(module, module_file, package)  # type: ignore[no-untyped-call]


class Build(build):
    sub_commands: ClassVar[list[Any]] = [*build.sub_commands, ("build_init", None)]


def cython_extensions() -> list[Extension]:
    sources = sorted((HERE / "native").glob("*.pyx"))
    if not sources:
        return []
    from Cython.Build import cythonize

    extensions = [
        Extension(
            f"native.{p.stem}",
            [str(p.relative_to(HERE))],
            libraries=["crypto"] if p.stem == "record" else [],
            extra_compile_args=EXTENSION_FLAGS,
        )
        for p in sources
    ]
    return list(cythonize(  # type: ignore[no-untyped-call]
        extensions, build_dir="build/cython", language_level=3
    ))


setup(
    ext_modules=cython_extensions(),
    cffi_modules=[f"{p.relative_to(HERE)}:ffi" for p in sorted((HERE / "native").glob("*_build.py"))],
    cmdclass={"build": Build, "build_py": BuildPython, "build_ext": BuildExtensions, "build_init": BuildInit},
)
