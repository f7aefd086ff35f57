"""The project's own files, as the architecture tests see them."""
from __future__ import annotations

import ast
import configparser
import functools
import subprocess
from collections.abc import Iterator
from pathlib import Path

from support.lemni import ROOT

CODE = ("supervisor", "agent", "native", "profiles")


def _pure() -> tuple[str, ...]:
    """Paths of the functional core, from the contract that import-linter checks: one list for both."""
    contracts = configparser.ConfigParser()
    contracts.read(ROOT / ".importlinter")
    modules = contracts["importlinter:contract:pure"]["source_modules"].split()
    return tuple(path for module in modules for path in (module.replace(".", "/") + ".py", module.replace(".", "/") + "/"))


PURE = _pure()


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
