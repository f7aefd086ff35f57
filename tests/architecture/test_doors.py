"""What import-linter cannot see: compiled modules, calls that need no import, and names resolved at run time."""
from __future__ import annotations

import ast
from pathlib import Path

import pytest

from support.source import CODE, imported, is_pure, parsed, python_files

# Compiled module: the only files that may name it.
DOORS = {
    "native._launch": ("native/launch.py",),
    "native._files": ("native/files.py",),
    "native.capture": ("supervisor/sandbox/streams.py",),
    "native.record": ("supervisor/journal/",),
    "native.chain": ("supervisor/journal/",),
    "native.scan": ("supervisor/journal/",),
}
IMPURE_CALLS = {"open", "print", "input", "eval", "exec", "__import__", "breakpoint"}
IMPURE_MODULES = {
    "asyncio", "ctypes", "httpx", "io", "logging", "multiprocessing", "os", "pathlib", "random", "secrets", "select", "shutil",
    "signal", "socket", "sqlite3", "ssl", "subprocess", "tempfile", "threading", "time", "trio", "urllib", "uuid",
}
FILES = list(python_files(*CODE))


@pytest.mark.parametrize("path", FILES, ids=str)
def test_compiled_modules_are_reached_through_their_doors(path: Path) -> None:
    for line, name in imported(parsed(path)):
        for door, allowed in DOORS.items():
            inside = name == door or name.startswith(door + ".")
            assert not inside or path.as_posix().startswith(allowed), f"{path}:{line}: {door} only through {allowed}"


@pytest.mark.parametrize("path", [path for path in FILES if path.parts[0] != "agent"], ids=str)
def test_nothing_below_the_agent_imports_by_name_at_run_time(path: Path) -> None:
    for line, name in imported(parsed(path)):
        assert not name.startswith("importlib") or name.startswith("importlib.resources"), f"{path}:{line}: {name}"


@pytest.mark.parametrize("path", [path for path in FILES if is_pure(path)], ids=str)
def test_the_functional_core_does_nothing(path: Path) -> None:
    tree = parsed(path)
    for line, name in imported(tree):
        assert name.split(".")[0] not in IMPURE_MODULES, f"{path}:{line}: imports {name}"
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id not in IMPURE_CALLS, f"{path}:{node.lineno}: calls {node.func.id}()"


@pytest.mark.parametrize("path", [p for p in FILES if p.parts[:2] != ("agent", "cli")], ids=str)
def test_library_code_neither_prints_nor_exits(path: Path) -> None:
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id not in {"print", "exit", "quit"}, f"{path}:{node.lineno}: {node.func.id}()"
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            dotted = f"{node.value.id}.{node.attr}"
            assert dotted not in {"sys.exit", "os._exit", "os.abort"}, f"{path}:{node.lineno}: {dotted}"
    assert not any(name.split(".")[0] == "logging" for _, name in imported(parsed(path))), f"{path}: logs"
