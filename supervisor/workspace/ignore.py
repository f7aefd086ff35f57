"""What builds and tests leave behind: new files that nobody wants to review by default. Pure.

Two sources: a built-in list of well-known names, and the developer's own ignore rules as they stood outside the session
(never the session's: an agent must not hide its work by writing a .gitignore, B52). The rules are those of gitignore(5): the
last match wins, ``!`` takes back, and beneath an ignored directory everything is ignored. Own code of fifty lines rather than
a library: paths are bytes here, and rules are read lazily, for changed directories only.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Final

from supervisor.workspace.globs import Glob, GlobError, LinearPattern, linear

# Whatever happens to these, also to files that were there before: nobody writes them by hand
_CACHES: Final = ("__pycache__/", "*.pyc", ".pytest_cache/", ".mypy_cache/", ".ruff_cache/", ".hypothesis/", ".coverage")
# New files only: a directory of such a name may hold sources
_BUILDS: Final = (
    "node_modules/", "target/", ".tox/", ".nox/", ".venv/", "*.egg-info/", ".gradle/", ".cache/", "htmlcov/", "*.o",
    ".DS_Store",
)

_Rule = tuple[LinearPattern, bool, bool, bool]  # pattern, anchored, directories only, negated


def parse_rules(text: bytes) -> list[_Rule]:
    """The rules of one ignore file; a line that means nothing is skipped, as git does."""
    rules: list[_Rule] = []
    for raw in text.removeprefix(b"\xef\xbb\xbf").split(b"\n"):
        line = raw.removesuffix(b"\r")
        while line.endswith(b" ") and not line.endswith(b"\\ "):
            line = line[:-1]
        if not line or line.startswith(b"#"):
            continue
        negated = line.startswith(b"!")
        line = line[1:] if negated else line
        try:
            glob = Glob.parse(line)
        except GlobError:
            continue
        rules.append((linear(glob.regex()), glob.anchored, glob.directories_only, negated))
    return rules


def _verdict(rules: list[_Rule], path: bytes, is_directory: bool) -> bool | None:
    """The last matching rule's word on this very path, or None."""
    name = path.rsplit(b"/", 1)[-1]
    for pattern, anchored, directories_only, negated in reversed(rules):
        if directories_only and not is_directory:
            continue
        if pattern.fullmatch(path if anchored else name) is not None:
            return not negated
    return None


class IgnoreRules:
    """Whether a path is debris. ``read(path)`` gives an ignore file's bytes by its path relative to the project, or None.

    ``outer`` are the bytes of ignore files of lower rank, weakest first: the user's own, then ``info/exclude``.
    """

    def __init__(self, read: Callable[[bytes], bytes | None], outer: tuple[bytes, ...] = ()) -> None:
        self._read = read
        self._outer = [rule for text in outer for rule in parse_rules(text)]
        self._files: dict[bytes, list[_Rule]] = {}
        self._directories: dict[bytes, bool] = {b"": False}
        self._caches = parse_rules("\n".join(_CACHES).encode())
        self._builds = parse_rules("\n".join(_BUILDS).encode())

    def is_debris(self, path: bytes, is_directory: bool, *, is_new: bool) -> bool:
        """Judge a changed path; ``is_new``: nothing stood there before the session."""
        if self._beneath(self._caches, path, is_directory):
            return True
        return is_new and (self._beneath(self._builds, path, is_directory) or self._ignored(path, is_directory))

    @staticmethod
    def _beneath(rules: list[_Rule], path: bytes, is_directory: bool) -> bool:
        parts = path.split(b"/")
        last = len(parts) - 1
        return any(_verdict(rules, part, is_directory or depth < last) for depth, part in enumerate(parts))

    def _ignored(self, path: bytes, is_directory: bool) -> bool:
        parent = path.rsplit(b"/", 1)[0] if b"/" in path else b""
        if parent not in self._directories:
            self._directories[parent] = self._ignored(parent, True)
        if self._directories[parent]:
            return True
        while True:
            rules = self._rules(parent)
            verdict = _verdict(rules, path[len(parent) + 1 :] if parent else path, is_directory)
            if verdict is not None:
                return verdict
            if not parent:
                return bool(_verdict(self._outer, path, is_directory))
            parent = parent.rsplit(b"/", 1)[0] if b"/" in parent else b""

    def _rules(self, directory: bytes) -> list[_Rule]:
        if directory not in self._files:
            text = self._read(directory + b"/.gitignore" if directory else b".gitignore")
            self._files[directory] = parse_rules(text) if text else []
        return self._files[directory]
