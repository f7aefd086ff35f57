"""The map in ARCHITECTURE.md: every source file with the first sentence of its head docstring.

The map is drawn from the files, so that it cannot lie; ``make tree`` redraws it, and a test compares.
"""
from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

from support.lemni import ROOT
from support.source import CODE, project_files

PAGE = ROOT / "ARCHITECTURE.md"
FENCE = re.compile(r"(?s)(<!-- drawn by make tree -->\n```\n)(.*?)(```\n<!-- end -->)")
WIDTH = 96  # characters of a purpose
SUFFIXES = {".py", ".pyx", ".c", ".h", ".toml"}


def real() -> str:
    """The map of the files that are there."""
    lines: list[str] = []
    folder: Path | None = None
    files = [path for path in project_files() if path.parts[0] in CODE and path.suffix in SUFFIXES]
    for path in sorted(files, key=lambda p: (CODE.index(p.parts[0]), p.parent.parts, p.name)):
        if path.parent != folder:
            folder = path.parent
            purpose = _purpose(folder / "__init__.py") if (ROOT / folder / "__init__.py").is_file() else ""
            lines.append(f"{folder}/  {purpose}".rstrip())
        if path.name != "__init__.py":
            lines.append(f"    {path.name:<16}  {_purpose(path)}".rstrip())
    return "\n".join(lines) + "\n"


def drawn() -> str:
    """The map that the page shows."""
    found = FENCE.search(PAGE.read_text())
    assert found, f"{PAGE.name} has no map"
    return found[2]


def redraw() -> None:
    page = PAGE.read_text()
    PAGE.write_text(FENCE.sub(lambda found: found[1] + real() + found[3], page))


def _purpose(path: Path) -> str:
    text = (ROOT / path).read_text(encoding="utf-8")
    match path.suffix:
        case ".py":
            head = ast.get_docstring(ast.parse(text)) or ""
        case ".pyx":
            found = re.search(r'(?s)"""(.*?)"""', text)
            head = found[1] if found else ""
        case ".toml":
            head = text.partition("\n")[0].removeprefix("#")
        case _:
            found = re.search(r"(?s)/\*+(.*?)\*/", text)
            head = re.sub(r"(?m)^\s*\*\s?", "", found[1]) if found else ""
    paragraph = " ".join(head.strip().partition("\n\n")[0].replace("``", "").split())
    sentence = re.split(r"(?<=\.)\s", paragraph, maxsplit=1)[0].rstrip(".")
    sentence = re.sub(r" \([A-Z]{1,2}-?\d+[^)]*\)", "", sentence)  # requirement ids are for the file's own reader
    return sentence if len(sentence) <= WIDTH else sentence[:WIDTH].rsplit(" ", 1)[0] + " …"


if __name__ == "__main__":
    if sys.argv[1:] == ["--print"]:
        sys.stdout.write(real())
    else:
        redraw()
