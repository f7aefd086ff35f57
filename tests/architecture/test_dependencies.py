"""What is declared is what is used: no import without its requirement, no requirement without its import."""
from __future__ import annotations

import re
import sys
import tomllib
from importlib import metadata

from support.lemni import ROOT
from support.source import CODE, imported, parsed, python_files

# Distribution: the modules that its code uses without an import statement that could be read.
INDIRECT = {"cffi"}  # native/*_build.py import it to build; the extensions import its backend


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_declared_and_imported_are_the_same() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = {normal(re.split(r"[<>=!~;\[ ]", requirement, maxsplit=1)[0]) for requirement in project["dependencies"]}
    owners = metadata.packages_distributions()
    used: set[str] = set()
    for path in python_files(*CODE):
        if path.name.endswith("_build.py"):
            continue
        for _, name in imported(parsed(path)):
            top = name.split(".")[0]
            if top and top not in sys.stdlib_module_names and top not in CODE:
                used |= {normal(owner) for owner in owners.get(top, [f"unknown:{top}"])}
    for path in sorted((ROOT / "native").glob("*.pyx")):
        for top in re.findall(r"(?m)^(?:from|import) (\w+)(?!.*\bcimport\b)", path.read_text()):
            assert top in sys.stdlib_module_names or top in CODE, f"{path.name} imports {top}"
    assert used - declared == set()
    assert declared - used - INDIRECT == set()
