"""What builds and tests leave behind: new files that nobody wants to review by default. Pure.

Two sources: a built-in list of well-known names, and the developer's own ignore rules as they stood outside the session
(never the session's: an agent must not hide its work by writing a .gitignore, B52). The rules are those of gitignore(5): the
last match wins, ``!`` takes back, and beneath an ignored directory everything is ignored. Own code of fifty lines rather than
a library: paths are bytes here, and rules are read lazily, for changed directories only.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Final

from supervisor.globs import Glob, GlobError, LinearPattern, linear

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
        self._caches = parse_rules("\n".join(_CACHES).encode())
        self._builds = parse_rules("\n".join(_BUILDS).encode())
        # Verdicts of directories are kept: what lies beneath asks for them again and again, at any depth
        self._cached: dict[bytes, bool] = {b"": False}
        self._built: dict[bytes, bool] = {b"": False}
        self._ignoring: dict[bytes, bool] = {b"": False}
        self._chains: dict[bytes, tuple[tuple[int, list[_Rule]], ...]] = {}

    def is_debris(self, path: bytes, is_directory: bool, *, is_new: bool) -> bool:
        """Judge a changed path; ``is_new``: nothing stood there before the session."""
        if self._listed(self._caches, self._cached, path, is_directory):
            return True
        return is_new and (self._listed(self._builds, self._built, path, is_directory) or self._ignored(path, is_directory))

    @staticmethod
    def _listed(rules: list[_Rule], known: dict[bytes, bool], path: bytes, is_directory: bool) -> bool:
        """Whether a built-in pattern matches the path's name or that of a directory above it."""
        above = _first_unknown(known, path)
        for directory in above:
            known[directory] = known[_parent(directory)] or bool(_verdict(rules, directory, True))
        return known[_parent(path)] or bool(_verdict(rules, path, is_directory))

    def _ignored(self, path: bytes, is_directory: bool) -> bool:
        """Whether the developer's rules ignore the path, or a directory above it."""
        for directory in _first_unknown(self._ignoring, path):
            self._ignoring[directory] = self._ignoring[_parent(directory)] or self._matched(directory, True)
        return self._ignoring[_parent(path)] or self._matched(path, is_directory)

    def _matched(self, path: bytes, is_directory: bool) -> bool:
        """The word of the nearest ignore file that has one on this very path."""
        for start, rules in reversed(self._chain(_parent(path))):
            verdict = _verdict(rules, path[start:], is_directory)
            if verdict is not None:
                return verdict
        return bool(_verdict(self._outer, path, is_directory))

    def _chain(self, directory: bytes) -> tuple[tuple[int, list[_Rule]], ...]:
        """The ignore files that hold rules, from the root down to a directory: (where their paths begin, rules)."""
        missing = [directory]
        while missing[-1] not in self._chains and missing[-1]:
            missing.append(_parent(missing[-1]))
        for at in reversed(missing):
            if at not in self._chains:
                rules = parse_rules(self._read(at + b"/.gitignore" if at else b".gitignore") or b"")
                above = self._chains[_parent(at)] if at else ()
                self._chains[at] = (*above, (len(at) + 1 if at else 0, rules)) if rules else above
        return self._chains[directory]


def _parent(path: bytes) -> bytes:
    return path.rsplit(b"/", 1)[0] if b"/" in path else b""


def _first_unknown(known: dict[bytes, bool], path: bytes) -> list[bytes]:
    """The directories above a path that have no verdict yet, from the top down."""
    above: list[bytes] = []
    directory = _parent(path)
    while directory not in known:
        above.append(directory)
        directory = _parent(directory)
    return above[::-1]
