"""Parse a profile: TOML text in, a ``Profile`` out, and nothing that the text did not say.

Unknown keys are errors, because a misspelt key of a security profile is a rule that silently does not hold. The shipped
profiles lie in ``data/`` as package data.
"""
from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from importlib import resources
from typing import Any

from profiles.lint import lint
from profiles.model import (
    AllowIf,
    Answer,
    LandlockProfile,
    PathRule,
    Profile,
    ProfileError,
    Scratch,
    SeccompProfile,
    Test,
    View,
)

_MISSING = object()


class _Table:
    """A TOML table that is read key by key; what was not read when it closes is an error."""

    def __init__(self, value: object, where: str) -> None:
        if not isinstance(value, Mapping):
            raise ProfileError(f"{where}: a table is expected")
        self._left: dict[str, Any] = dict(value)
        self._where = where

    def take(self, key: str, kind: type, default: object = _MISSING) -> Any:
        value = self._left.pop(key, default)
        if value is _MISSING:
            raise ProfileError(f"{self._where}.{key}: missing")
        if value is default:
            return value
        # bool is an int in Python; a profile that says `newest = true` is a mistake
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise ProfileError(f"{self._where}.{key}: {kind.__name__} expected, {value!r} found")
        return value

    def words(self, key: str, default: object = _MISSING) -> tuple[str, ...]:
        values = self.take(key, list, default)
        if not all(isinstance(v, str) for v in values):
            raise ProfileError(f"{self._where}.{key}: a list of strings is expected")
        return tuple(values)

    def numbers(self, key: str, default: object = _MISSING) -> tuple[int, ...]:
        values = self.take(key, list, default)
        if not all(isinstance(v, int) and not isinstance(v, bool) for v in values):
            raise ProfileError(f"{self._where}.{key}: a list of whole numbers is expected")
        return tuple(values)

    def table(self, key: str, default: object = _MISSING) -> _Table:
        return _Table(self.take(key, dict, default), f"{self._where}.{key}")

    def tables(self, key: str) -> list[_Table]:
        return [_Table(v, f"{self._where}.{key}[{i}]") for i, v in enumerate(self.take(key, list, []))]

    def names(self) -> list[str]:
        return list(self._left)

    def done(self) -> None:
        if self._left:
            raise ProfileError(f"{self._where}: unknown key {', '.join(sorted(self._left))}")


def parse(text: str) -> Profile:
    """The profile that ``text`` describes. Raises ``ProfileError``; never returns a profile that the lint refuses."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ProfileError(f"not TOML: {error}") from error
    top = _Table(document, "profile")
    profile = Profile(
        name=top.take("name", str),
        view=_view(top.table("view")),
        seccomp=_seccomp(top.table("seccomp")),
        landlock=_landlock(top.table("landlock")),
    )
    top.done()
    findings = lint(profile)
    if findings:
        raise ProfileError(f"{profile.name}: " + "; ".join(findings))
    return profile


@functools.cache
def shipped(name: str = "default") -> Profile:
    """The profile of this name that comes with the product. Raises ``ProfileError`` when there is none."""
    if name not in shipped_names():
        raise ProfileError(f"no shipped profile is called {name!r}")
    return parse(resources.files("profiles").joinpath("data", f"{name}.toml").read_text("utf-8"))


@functools.cache
def shipped_names() -> tuple[str, ...]:
    """The names that ``shipped`` knows, sorted."""
    data = resources.files("profiles").joinpath("data")
    return tuple(sorted(item.name.removesuffix(".toml") for item in data.iterdir() if item.name.endswith(".toml")))


def _view(table: _Table) -> View:
    tmpfs = table.table("tmpfs", {})
    scratch = []
    for path in tmpfs.names():
        entry = tmpfs.table(path)
        scratch.append(Scratch(path, entry.take("size", int), entry.take("inodes", int), entry.take("mode", int)))
        entry.done()
    view = View(
        hostname=table.take("hostname", str),
        trees=table.words("trees"),
        roots=table.words("roots", []),
        etc=table.words("etc", []),
        devices=table.words("devices"),
        masked_files=table.words("masked_files", []),
        masked_directories=table.words("masked_directories", []),
        read_only=table.words("read_only", []),
        scratch=tuple(scratch),
    )
    table.done()
    return view


def _seccomp(table: _Table) -> SeccompProfile:
    numbers = table.table("numbers", {})
    pairs = tuple((name, numbers.take(name, int)) for name in numbers.names())
    conditions = []
    for entry in table.tables("allow_if"):
        tests = []
        for inner in entry.tables("tests"):
            tests.append(Test(inner.take("arg", int), inner.take("mask", int), inner.numbers("values")))
            inner.done()
        conditions.append(AllowIf(entry.take("call", str), tuple(tests)))
        entry.done()
    answers = []
    for entry in table.tables("answer"):
        answers.append(
            Answer(
                call=entry.take("call", str),
                errno=entry.take("errno", str),
                arg=entry.take("arg", int),
                mask=entry.take("mask", int, 0xFFFFFFFF),
                values=entry.numbers("values", []),
                differs_from=entry.take("differs_from", int, None),
            )
        )
        entry.done()
    profile = SeccompProfile(
        newest=table.take("newest", int),
        allow=table.words("allow"),
        absent=table.words("absent", []),
        allow_if=tuple(conditions),
        answer=tuple(answers),
        numbers=pairs,
    )
    table.done()
    return profile


def _landlock(table: _Table) -> LandlockProfile:
    named = table.table("sets", {})
    sets = {key: frozenset(named.words(key)) for key in named.names()}
    rules = []
    for entry in table.tables("rules"):
        path, rights = entry.take("path", str), set[str]()
        for word in entry.words("rights"):
            if not word.startswith("@"):
                rights.add(word)
            elif word[1:] in sets:
                rights |= sets[word[1:]]
            else:
                raise ProfileError(f"landlock rule {path}: no set is called {word[1:]}")
        rules.append(PathRule(path, frozenset(rights)))
        entry.done()
    if "work" not in sets:
        raise ProfileError("landlock.sets.work: missing")
    profile = LandlockProfile(
        required=table.take("required", bool, False),
        rules=tuple(rules),
        work=sets["work"],
        net=frozenset(table.words("net", [])),
        scopes=frozenset(table.words("scopes", [])),
    )
    table.done()
    return profile
