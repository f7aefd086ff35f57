"""A policy file's text to values: strict, every refusal with file, line and value, an unknown key refused."""
from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Callable

from yaml.nodes import Node, ScalarNode

from profiles.load import shipped_names
from supervisor.errors import PolicyError
from supervisor.globs import Glob, GlobError
from supervisor.settings import limits
from supervisor.settings.document import Document
from supervisor.settings.limits import Range
from supervisor.settings.patterns import COMMAND_SETS, CommandPattern, command_set, parse_pattern
from supervisor.settings.policy import (
    KNOWN_TOOLS,
    PLACES,
    THIRD_PARTY_CLASSES,
    Budgets,
    LimitSettings,
    PolicyFile,
    Project,
    Section,
    Sets,
    ThirdParty,
)
from supervisor.types import Verdict

# The six spellings of PP-19 and PP-24, and no seventh.
SPELLINGS = {
    "exclude": Verdict.EXCLUDE,
    "ask": Verdict.ASK,
    "allow": Verdict.ALLOW,
    "disabled": Verdict.EXCLUDE,
    "allowedWithPermission": Verdict.ASK,
    "allowedWithoutPermission": Verdict.ALLOW,
}

_BUDGETS: dict[str, tuple[str, Range]] = {
    "actions": ("actions", limits.ACTIONS),
    "minutes": ("minutes", limits.MINUTES),
    "extensions": ("extensions", limits.EXTENSIONS),
    "modelBytes": ("model_bytes", limits.MODEL_BYTES),
    "commands": ("commands", limits.COMMANDS),
}
_LIMITS: dict[str, tuple[str, Range]] = {
    "memory": ("memory", limits.MEMORY),
    "cpus": ("cpus", limits.CPUS),
    "processes": ("processes", limits.PROCESSES),
    "cpuSeconds": ("cpu_seconds", limits.CPU_SECONDS),
    "disk": ("disk", limits.DISK),
    "inodes": ("inodes", limits.INODES),
    "minutes": ("minutes", limits.SANDBOX_MINUTES),
    "openFiles": ("open_files", limits.OPEN_FILES),
    "fileSize": ("file_size", limits.FILE_SIZE),
}
_SIZES = frozenset({"memory", "disk", "fileSize", "modelBytes"})
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# Variables that may carry code into a shell or a loader (TC-27), or that are the sandbox's own.
_FORBIDDEN_VARIABLES = frozenset({
    "BASH_ENV", "ENV", "SHELLOPTS", "BASHOPTS", "ZDOTDIR", "PS4", "PROMPT_COMMAND", "LD_PRELOAD", "LD_AUDIT", "LD_LIBRARY_PATH",
    "HOME",
})


@functools.cache
def command_sets() -> Sets:
    """The shipped sets, parsed once."""
    return {name: command_set(name) for name in COMMAND_SETS}


def parse_policy(data: bytes, source: str) -> PolicyFile:
    """Read one policy file. PolicyError: not readable as a policy, with ``on`` = "FILE:LINE"."""
    document = Document(source, PolicyError)
    root = document.parse(data)
    if root is None:
        raise PolicyError("read the policy", on=source, why="the file is empty")
    keys = document.mapping(root, "the policy", ("version", "defaults", "projects"))
    if "version" not in keys:
        raise PolicyError("read the policy", on=document.place(root), why="`version: 1` is missing")
    document.integer(keys["version"], "version", 1, 1)
    reader = _SectionReader(document)
    defaults = reader.section(document.mapping(keys["defaults"], "defaults", reader.known), "defaults") \
        if "defaults" in keys else Section()
    projects = tuple(
        _project(document, reader, item, f"projects[{index}]")
        for index, item in enumerate(document.items(keys["projects"], "projects") if "projects" in keys else [])
    )
    ids = [project.id for project in projects]
    for repeated in {name for name in ids if ids.count(name) > 1}:
        raise PolicyError("read projects", on=document.place(keys["projects"]), why=f"the id {repeated!r} stands twice")
    return PolicyFile(source, hashlib.sha256(data).hexdigest(), defaults, projects)


def _project(document: Document, reader: _SectionReader, node: Node, key: str) -> Project:
    keys = document.mapping(node, key, (*reader.known, "id", "roots", "users"))
    for needed in ("id", "roots"):
        if needed not in keys:
            raise PolicyError(f"read {key}", on=document.place(node), why=f"`{needed}` is missing")
    roots = document.texts(keys["roots"], f"{key}.roots")
    if not roots or any(not root.startswith("/") or "//" in root or "/../" in root + "/" for root in roots):
        raise document.refusal(keys["roots"], f"{key}.roots", "a list of absolute, plain paths is expected")
    users = document.texts(keys["users"], f"{key}.users") if "users" in keys else None
    own = {name: value for name, value in keys.items() if name in reader.known}
    return Project(document.text(keys["id"], f"{key}.id"), roots, users, reader.section(own, key))


class _SectionReader:
    """Reads the keys that ``defaults`` and a project share; ``known`` lists them."""

    def __init__(self, document: Document) -> None:
        self.document = document
        d = document
        self.readers: dict[str, tuple[str, Callable[[Node, str], object]]] = {
            "tools": ("tools", self._tools),
            "commands": ("commands", self._commands),
            "commandSets": ("command_sets", lambda n, k: tuple(d.word(i, k, COMMAND_SETS) for i in d.items(n, k))),
            "rememberApprovals": ("remember_approvals", d.boolean),
            "redirections": ("redirections", lambda n, k: d.word(n, k, ("ask", "allow")) == "allow"),
            "sensitiveTools": ("sensitive_tools", lambda n, k: tuple(self._tool_name(i, k) for i in d.items(n, k))),
            "thirdPartyFiles": ("third_party", self._third_party),
            "limitsEnforcement": ("limits_required", lambda n, k: d.word(n, k, ("auto", "required")) == "required"),
            "contextExclusions": ("context_exclusions", self._exclusions),
            "history": ("history", lambda n, k: d.word(n, k, ("auto", "hide", "show"))),
            "budgets": ("budgets", lambda n, k: Budgets(**self._numbers(n, k, _BUDGETS))),
            "limits": ("limits", lambda n, k: LimitSettings(**self._numbers(n, k, _LIMITS))),
            "largeFile": ("large_file", lambda n, k: d.size(n, k, limits.LARGE_FILE.low, limits.LARGE_FILE.high)),
            "largeDiff": ("large_diff", lambda n, k: d.size(n, k, limits.LARGE_DIFF.low, limits.LARGE_DIFF.high)),
            "compactionPercent": (
                "compaction_percent",
                lambda n, k: d.integer(n, k, limits.COMPACTION_PERCENT.low, limits.COMPACTION_PERCENT.high),
            ),
            "profile": ("profile", self._profile),
            "apparmor": ("apparmor", lambda n, k: d.word(n, k, ("required", "auto", "off"))),
            "execution": ("execution", self._execution),
            "environment": ("environment", self._environment),
        }
        self.known = tuple(self.readers)

    def section(self, keys: dict[str, Node], key: str) -> Section:
        values = {}
        for name, node in keys.items():
            field, read = self.readers[name]
            values[field] = read(node, f"{key}.{name}")
        return Section(**values)  # type: ignore[arg-type]  # each reader returns its field's type; tested key by key

    def _tool_name(self, node: Node, key: str) -> str:
        """A tool's name. Names of tools to come and of MCP servers are legal; patterns with arguments are not."""
        name = self.document.text(node, key)
        if "(" in name or any(char.isspace() for char in name):
            raise self.document.refusal(node, key, f"a tool's name is expected: {', '.join(KNOWN_TOOLS)}")
        return name

    def _tools(self, node: Node, key: str) -> tuple[tuple[str, Verdict], ...]:
        found = []
        for name, value in self.document.mapping(node, key).items():
            if "(" in name or not name or any(char.isspace() for char in name):
                raise self.document.refusal(value, f"{key}.{name}", "the key must be a tool's name or *")
            found.append((name, SPELLINGS[self.document.word(value, f"{key}.{name}", SPELLINGS)]))
        return tuple(found)

    def _commands(self, node: Node, key: str) -> tuple[CommandPattern, ...]:
        found = []
        for item in self.document.items(node, key):
            try:
                found.append(parse_pattern(self.document.text(item, key)))
            except ValueError as wrong:
                raise self.document.refusal(item, key, str(wrong)) from None
        return tuple(found)

    def _third_party(self, node: Node, key: str) -> tuple[tuple[str, ThirdParty], ...]:
        found = []
        for name, value in self.document.mapping(node, key, THIRD_PARTY_CLASSES).items():
            here = f"{key}.{name}"
            if isinstance(value, ScalarNode):
                found.append((name, ThirdParty(self.document.word(value, here, ("forbid", "validate")) == "validate")))
                continue
            keys = self.document.mapping(value, here, ("value", "patterns"))
            validate = "value" in keys and self.document.word(keys["value"], here, ("forbid", "validate")) == "validate"
            patterns = self.document.texts(keys["patterns"], f"{here}.patterns") if "patterns" in keys else None
            found.append((name, ThirdParty(validate, patterns)))
        return tuple(found)

    def _numbers(self, node: Node, key: str, table: dict[str, tuple[str, Range]]) -> dict[str, int]:
        found = {}
        for name, value in self.document.mapping(node, key, table).items():
            field, span = table[name]
            read = self.document.size if name in _SIZES else self.document.integer
            found[field] = read(value, f"{key}.{name}", span.low, span.high)
        return found

    def _exclusions(self, node: Node, key: str) -> tuple[str, ...]:
        """Paths and patterns that name something below the project."""
        for item in self.document.items(node, key):
            text = self.document.text(item, key)
            parts = text.removeprefix("/").removesuffix("/").split("/")
            if text.startswith("!") or {"\n", "\0"} & set(text) or {"", ".", ".."} & set(parts) or not text.strip("*/"):
                accepted = "a plain path or pattern below the project is expected; there is no negation"
                raise self.document.refusal(item, key, accepted)
            try:
                Glob.parse(text.encode("utf-8", "surrogateescape"))
            except GlobError as wrong:
                raise self.document.refusal(item, key, f"a pattern of gitignore(5) is expected, and {wrong}") from None
        return self.document.texts(node, key)

    def _profile(self, node: Node, key: str) -> str:
        return self.document.word(node, key, shipped_names())

    def _execution(self, node: Node, key: str) -> tuple[str, ...]:
        found = tuple(self.document.word(item, key, PLACES) for item in self.document.items(node, key))
        if not found:
            raise self.document.refusal(node, key, "at least one of workstation, server")
        return found

    def _environment(self, node: Node, key: str) -> tuple[tuple[str, str], ...]:
        """Literal values for the sandbox's environment: nothing is ever copied from the workstation's (TC-28)."""
        found = []
        for name, value in self.document.mapping(node, key).items():
            here = f"{key}.{name}"
            if not _VARIABLE.fullmatch(name) or name in _FORBIDDEN_VARIABLES or name.startswith("BASH_FUNC_"):
                raise self.document.refusal(value, here, "this variable may not be set in a sandbox")
            text = self.document.scalar(value, here, "a text is expected")
            if "\0" in text:
                raise self.document.refusal(value, here, "a text without NUL is expected")
            found.append((name, text))
        return tuple(found)
