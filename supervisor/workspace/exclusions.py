"""Context exclusions: which names of a project a session must not see (VS-10…12, O-05). Pure.

The built-in patterns always hold, in any case (``KEY.PEM`` is a key too); the policy adds its own (``contextExclusions``).
There is no negation: exclusions only add up. Where something matches, everything beneath it is hidden with it. Git's own
directories are never searched: hiding ``refs/heads/.env-cleanup`` would break the repository and hide nothing.
"""
from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from supervisor.errors import PolicyError
from supervisor.globs import Glob, GlobError, LinearPattern, linear

NEVER: Final = r"[^\x00-\xff]"  # matches no byte
BUILT_IN: Final = (".env*", "secrets/", ".ssh/", "*.pem", "*.key", "*.p12", "*.pfx", "*.crt")

@dataclass(frozen=True)
class Exclusions:
    """A set of patterns, compiled for whole batches of names as ``native.files.names`` packs them."""

    floating: tuple[Glob, ...]  # matched on a name at any depth
    anchored: tuple[Glob, ...]  # matched on a path from the project's root
    _batch: LinearPattern = field(init=False, repr=False, compare=False)
    _record: LinearPattern = field(init=False, repr=False, compare=False)
    _paths: tuple[tuple[LinearPattern, bool], ...] = field(init=False, repr=False, compare=False)

    @classmethod
    def parse(cls, policy: Iterable[str] = (), *, built_in: bool = True) -> Exclusions:
        """The built-in patterns and these of the policy; PolicyError quotes a pattern that cannot be meant."""
        globs = [_parse(text, ignore_case=True) for text in (BUILT_IN if built_in else ())]
        globs += [_parse(text, ignore_case=False) for text in policy]
        return cls(tuple(g for g in globs if not g.anchored), tuple(g for g in globs if g.anchored))

    def __post_init__(self) -> None:
        names = "|".join(f"{_letters(glob)}(?:{glob.regex()})" for glob in self.floating) or NEVER
        object.__setattr__(self, "_batch", linear(rf"\x00(?:{names})\x00"))
        object.__setattr__(self, "_record", linear(names))
        object.__setattr__(self, "_paths", tuple((g.compile(), g.directories_only) for g in self.anchored))

    def __bool__(self) -> bool:
        """False when nothing can match: no walk is needed."""
        return bool(self.floating or self.anchored)

    def split(self, batch: bytes) -> tuple[list[bytes], list[bytes]]:
        """From one packed batch of names: those that are excluded, and the other directories.

        One search tells for the whole batch that nothing is excluded, which is the rule; only a hit costs a look at each name.
        """
        if self._batch.search(batch) is None:
            return [], [rest.split(b"\0", 1)[0] for rest in batch.split(b"\0d")[1:]]
        records = batch[1:-1].split(b"\0")
        hidden = {record[1:] for record in records if self._record.fullmatch(record)}
        return sorted(hidden), [r[1:] for r in records if r.startswith(b"d") and r[1:] not in hidden]

    def anchored_below(self, directory: bytes) -> bool:
        """Whether an anchored pattern could match directly or deeper beneath this directory (``b""`` is the root)."""
        return any(not directory or glob.can_match_below(directory) for glob in self.anchored)

    def worth_walking(self, directory: bytes) -> bool:
        """False prunes this directory from the walk."""
        return bool(self.floating) or self.anchored_below(directory)

    def matches_path(self, path: bytes, is_directory: bool) -> bool:
        """Whether an anchored pattern matches this very path."""
        return any(
            (is_directory or not directories_only) and pattern.fullmatch(path) is not None
            for pattern, directories_only in self._paths
        )

    def matches(self, path: bytes, is_directory: bool) -> bool:
        """Whether a pattern matches this very path (not one above it). For what a session made, where there is no walk."""
        name = path.rsplit(b"/", 1)[-1]
        if self._record.fullmatch((b"d" if is_directory else b"f") + name) is not None:
            return True
        return bool(self._paths) and self.matches_path(path, is_directory)


@dataclass(frozen=True, slots=True)
class _FoldedGlob(Glob):
    """A glob that matches whatever the case."""

    def regex(self) -> str:
        return f"(?i:{Glob.regex(self)})"


def _letters(glob: Glob) -> str:
    """Type letters that a glob accepts. A directory pattern also hides a symbolic link of that name: it may lead to one."""
    return "[dl]" if glob.directories_only else r"[^\x00]"


def _parse(text: str, *, ignore_case: bool) -> Glob:
    doing = "reading the context exclusions"
    if text.startswith("!"):
        raise PolicyError(doing, on=text, why="exclusions have no negation, they only add up")
    if "\0" in text or "\n" in text:
        raise PolicyError(doing, on=repr(text), why="a pattern is one line without NUL")
    try:
        glob = Glob.parse(text.encode("utf-8", "surrogateescape"))
    except GlobError as error:
        raise PolicyError(doing, on=text, why=str(error)) from None
    if all(set(part) == {"*"} for part in glob.parts):
        raise PolicyError(doing, on=text, why="it would hide the whole project")
    return _FoldedGlob(glob.parts, glob.anchored, glob.directories_only) if ignore_case else glob
