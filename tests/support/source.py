"""The project's own files, as the architecture tests see them."""
from __future__ import annotations

import ast
import functools
import subprocess
from collections.abc import Iterator
from pathlib import Path

from support.lemni import ROOT

CODE = ("supervisor", "agent", "native", "profiles")
# Modules that decide or describe and never reach out: no input, no output, no clock, no chance.
PURE = (
    "supervisor/types.py", "supervisor/errors.py", "supervisor/guard/",
    "supervisor/sandbox/ops.py", "supervisor/sandbox/spec.py", "supervisor/sandbox/wire.py",
    "supervisor/journal/entry.py", "supervisor/journal/redact.py",
    "supervisor/workspace/exclusions.py", "supervisor/workspace/changes.py", "supervisor/workspace/diff.py",
    "agent/calls.py", "agent/context.py", "agent/tools/", "agent/cli/visible.py",
)


def python_files(*folders: str) -> Iterator[Path]:
    """Python files of these folders, relative to the root, sorted."""
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield path.relative_to(ROOT)


@functools.cache
def parsed(path: Path) -> ast.Module:
    return ast.parse((ROOT / path).read_text(encoding="utf-8"), str(path))


def imported(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and dotted name of every import, ``from a import b`` as ``a.b``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                yield node.lineno, f"{'.' * node.level}{node.module or ''}.{alias.name}"


def is_pure(path: Path) -> bool:
    return path.as_posix().startswith(PURE)


def project_files() -> list[Path]:
    """Files that git has or would take; every file of a tree that is no git checkout, but for what builds leave."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, check=False,
    )
    if listed.returncode == 0:
        names = [name for name in listed.stdout.decode().split("\0") if name]
        return sorted(path for name in names if (path := Path(name)) and (ROOT / path).is_file())
    skipped = {".venv", "build", "dist", "__pycache__", ".git"}
    return sorted(
        path.relative_to(ROOT) for path in ROOT.rglob("*") if path.is_file() and not skipped & set(path.parts)
    )
