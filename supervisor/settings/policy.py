"""The policy in force, as a value: what an administrator decides for a project (PP-01 … PP-33, O-02, O-03).

A ``Section`` is what one part of a file says, every key optional. Sections are laid over one another key by key (a project
over the defaults), resolved once into a ``Policy`` with every default filled in, and, where an administrator's file is
there, restricted by the user's section: that step only ever takes the stricter of two values.
"""
from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from typing import TypeVar

from supervisor.errors import PolicyError
from supervisor.settings import limits
from supervisor.settings.patterns import CommandPattern
from supervisor.types import TOOL_OF, Verdict

NEVER_ASK = frozenset({"Question", "TaskResult"})  # O-59: a question is itself the consultation
KNOWN_TOOLS = (*TOOL_OF.values(), "Task", "TaskResult", "Question", "Job")
THIRD_PARTY_CLASSES = (
    "ci", "buildScripts", "hooks", "repoConfig", "manifests", "lockFiles", "binaries", "large", "agents", "editors",
)
PLACES = ("workstation", "server")


@dataclass(frozen=True, slots=True)
class ThirdParty:
    """How a change to one class of files that others execute is treated (TF-07): never free. None: built-in patterns."""

    validate: bool = False
    patterns: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Budgets:
    """Ceilings of a session. None sets no ceiling over the configured value; bytes, minutes and counts."""

    actions: int | None = None
    minutes: int | None = None
    extensions: int | None = None
    model_bytes: int | None = None
    commands: int | None = None


@dataclass(frozen=True, slots=True)
class LimitSettings:
    """Caps of the sandbox; None: the default of ``limits``, for ``minutes`` the session's. Bytes, counts, seconds, CPUs."""

    memory: int | None = None
    cpus: int | None = None
    processes: int | None = None
    cpu_seconds: int | None = None
    disk: int | None = None
    inodes: int | None = None
    minutes: int | None = None
    open_files: int | None = None
    file_size: int | None = None


Numbers = TypeVar("Numbers", Budgets, LimitSettings)
# Keys that are read and checked, and decide nothing yet, by the attribute of a Section; beside them ``budgets.extensions``.
WITHOUT_EFFECT = {
    "thirdPartyFiles": "third_party", "largeFile": "large_file", "largeDiff": "large_diff", "history": "history",
    "compactionPercent": "compaction_percent",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Section:
    """What one part of a policy file says. None: it does not say. ``tools`` may hold the key ``*``."""

    tools: tuple[tuple[str, Verdict], ...] | None = None
    commands: tuple[CommandPattern, ...] | None = None
    command_sets: tuple[str, ...] | None = None
    remember_approvals: bool | None = None
    redirections: bool | None = None
    sensitive_tools: tuple[str, ...] | None = None
    third_party: tuple[tuple[str, ThirdParty], ...] | None = None
    limits_required: bool | None = None
    context_exclusions: tuple[str, ...] | None = None
    history: str | None = None
    budgets: Budgets | None = None
    limits: LimitSettings | None = None
    large_file: int | None = None
    large_diff: int | None = None
    compaction_percent: int | None = None
    profile: str | None = None
    apparmor: str | None = None
    execution: tuple[str, ...] | None = None
    environment: tuple[tuple[str, str], ...] | None = None

    def idle(self) -> frozenset[str]:
        """The keys that it says and that decide nothing in this version."""
        said = {key for key, name in WITHOUT_EFFECT.items() if getattr(self, name) not in (None, ())}
        extensions = self.budgets is not None and self.budgets.extensions is not None
        return frozenset(said | {"budgets.extensions"} if extensions else said)

    def over(self, base: Section) -> Section:
        """This section laid over ``base``: its keys replace those of ``base``, key by key."""
        said = {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) is not None}
        return replace(base, **said)


@dataclass(frozen=True, slots=True)
class Project:
    """A perimeter: the roots it covers (absolute paths), who may open it (None: everyone), and its own section."""

    id: str
    roots: tuple[str, ...]
    users: tuple[str, ...] | None
    section: Section


@dataclass(frozen=True, slots=True)
class PolicyFile:
    """One file as parsed. ``sha256`` is the digest of its bytes."""

    source: str
    sha256: str
    defaults: Section
    projects: tuple[Project, ...]

    def select(self, root: str, user: str) -> tuple[Section, str | None]:
        """The section for a project root, and the project's id. The longest root that holds it wins.

        PolicyError ``project_not_authorised`` when projects are listed and none covers the root for this user (GA-08).
        """
        if not self.projects:
            return self.defaults, None
        found = [(len(r), p) for p in self.projects for r in p.roots if _beneath(root, r)]
        if not found:
            raise PolicyError(
                "open the project", on=root, why=f"no project of {self.source} covers it", code="project_not_authorised",
                remedy="add it to the policy (`lemni policy init` does it for a policy of your own)",
            )
        project = max(found, key=lambda pair: pair[0])[1]
        if project.users is not None and user not in project.users:
            raise PolicyError(
                "open the project", on=root, why=f"project {project.id!r} of {self.source} does not list the user {user!r}",
                code="project_not_authorised",
            )
        return project.section.over(self.defaults), project.id


@dataclass(frozen=True, slots=True)
class Policy:
    """The policy of one session, complete. ``origin``: administrator, user, or none (every tool asks)."""

    origin: str
    sha256: str
    project: str | None
    tools: tuple[tuple[str, Verdict], ...]
    other_tools: Verdict
    sensitive_tools: frozenset[str]
    commands: tuple[tuple[CommandPattern, ...], ...]  # a command is free when every list has a pattern that covers it
    remember_approvals: bool
    redirections: bool
    third_party: tuple[tuple[str, ThirdParty], ...]
    limits_required: bool
    context_exclusions: tuple[str, ...]
    history: str
    budgets: Budgets
    limits: LimitSettings
    large_file: int
    large_diff: int
    compaction_percent: int
    profile: str
    apparmor: str
    execution: tuple[str, ...]
    environment: tuple[tuple[str, str], ...]
    idle: frozenset[str] = frozenset()  # keys that somebody wrote and that decide nothing in this version

    def tool(self, name: str) -> Verdict:
        """The base verdict of a tool; a sensitive tool asks at least (PP-11)."""
        verdict = dict(self.tools).get(name)
        if verdict is None:
            verdict = Verdict.ALLOW if name in NEVER_ASK and self.other_tools < Verdict.EXCLUDE else self.other_tools
        return max(verdict, Verdict.ASK) if name in self.sensitive_tools else verdict

    def catalogue(self, names: Iterable[str]) -> tuple[str, ...]:
        """The tools that may be offered to the model: an excluded one is not (X-38)."""
        return tuple(name for name in names if self.tool(name) is not Verdict.EXCLUDE)


Sets = dict[str, tuple[CommandPattern, ...]]


def resolve(section: Section, *, origin: str, sha256: str, project: str | None, sets: Sets) -> Policy:
    """Fill in every default. ``sets`` are the shipped command sets, parsed."""
    listed = (section.commands or ()) + tuple(p for name in section.command_sets or () for p in sets[name])
    tools = dict(section.tools or ())
    other = tools.pop("*", Verdict.ASK)
    said = dict(section.third_party or ())
    return Policy(
        origin=origin,
        sha256=sha256,
        project=project,
        tools=tuple(sorted(tools.items())),
        other_tools=other,
        sensitive_tools=frozenset(section.sensitive_tools or ()),
        commands=(listed,),
        remember_approvals=section.remember_approvals or False,
        redirections=section.redirections or False,
        third_party=tuple((name, said.get(name, ThirdParty())) for name in THIRD_PARTY_CLASSES),
        limits_required=section.limits_required or False,
        context_exclusions=section.context_exclusions or (),
        history=section.history or "auto",
        budgets=_budgets_with_defaults(section.budgets or Budgets()),
        limits=_limits_with_defaults(section.limits or LimitSettings()),
        large_file=section.large_file or limits.LARGE_FILE.default,
        large_diff=section.large_diff or limits.LARGE_DIFF.default,
        compaction_percent=section.compaction_percent or limits.COMPACTION_PERCENT.default,
        profile=section.profile or "default",
        apparmor=section.apparmor or "auto",
        execution=section.execution or PLACES,
        environment=section.environment or (),
        idle=section.idle(),
    )


def restrict(policy: Policy, user: Section, *, source: str, sets: Sets) -> Policy:
    """``policy`` with the user's section: the stricter value of each key, and nothing the administrator did not give."""
    tools, other = policy.tools, policy.other_tools
    if user.tools is not None:
        wanted = dict(user.tools)
        star = wanted.pop("*", Verdict.ALLOW)
        names = {name for name, _ in tools} | wanted.keys()
        base = dict(tools)
        tools = tuple((n, max(base.get(n, other), wanted.get(n, star))) for n in sorted(names))
        other = max(other, star)
    commands = policy.commands
    if user.commands is not None or user.command_sets is not None:
        commands += ((user.commands or ()) + tuple(p for name in user.command_sets or () for p in sets[name]),)
    execution = tuple(p for p in policy.execution if user.execution is None or p in user.execution)
    if not execution:
        raise PolicyError("read execution", on=source, why="no place is left that the administrator's policy also allows")
    if user.profile not in (None, policy.profile):
        raise PolicyError("read profile", on=source, why="the profile is the administrator's choice")
    mine = dict(user.third_party or ())
    return replace(
        policy,
        tools=tools,
        other_tools=other,
        sensitive_tools=policy.sensitive_tools | frozenset(user.sensitive_tools or ()),
        commands=commands,
        remember_approvals=policy.remember_approvals and user.remember_approvals is not False,
        redirections=policy.redirections and user.redirections is not False,
        third_party=tuple((name, _stricter(theirs, mine.get(name))) for name, theirs in policy.third_party),
        limits_required=policy.limits_required or bool(user.limits_required),
        context_exclusions=policy.context_exclusions
        + tuple(p for p in user.context_exclusions or () if p not in policy.context_exclusions),
        history=_first(("hide", "auto", "show"), policy.history, user.history),
        budgets=_smaller(policy.budgets, user.budgets),
        limits=_smaller(policy.limits, user.limits),
        large_file=min(policy.large_file, user.large_file or policy.large_file),
        large_diff=min(policy.large_diff, user.large_diff or policy.large_diff),
        compaction_percent=min(policy.compaction_percent, user.compaction_percent or policy.compaction_percent),
        apparmor=_first(("required", "auto", "off"), policy.apparmor, user.apparmor),
        execution=execution,
        idle=policy.idle | user.idle(),
    )


def _beneath(path: str, root: str) -> bool:
    root = root.rstrip("/")
    return path == root or path.startswith(root + "/") or not root


def _first(order: tuple[str, ...], *values: str | None) -> str:
    return next(word for word in order if word in values)


def _stricter(one: ThirdParty, other: ThirdParty | None) -> ThirdParty:
    """Validation only where both say so; the patterns stay the administrator's, since fewer would flag less."""
    return one if other is None or other.validate else ThirdParty(False, one.patterns)


def _smaller(one: Numbers, other: Numbers | None) -> Numbers:
    if other is None:
        return one
    smaller: dict[str, int | None] = {}
    for key in fields(one):
        given = [v for v in (getattr(one, key.name), getattr(other, key.name)) if v is not None]
        smaller[key.name] = min(given, default=None)
    return replace(one, **smaller)


def _budgets_with_defaults(budgets: Budgets) -> Budgets:
    """``modelBytes`` and ``commands`` exist in the policy only, so they always have a value (O-03)."""
    return replace(
        budgets,
        model_bytes=budgets.model_bytes or limits.MODEL_BYTES.default,
        commands=budgets.commands or limits.COMMANDS.default,
    )


def _limits_with_defaults(settings: LimitSettings) -> LimitSettings:
    default = LimitSettings(
        limits.MEMORY.default, limits.CPUS.default, limits.PROCESSES.default, limits.CPU_SECONDS.default, limits.DISK.default,
        limits.INODES.default, None, limits.OPEN_FILES.default, limits.FILE_SIZE.default,  # minutes: the session's
    )
    said = {f.name: getattr(settings, f.name) for f in fields(settings) if getattr(settings, f.name) is not None}
    return replace(default, **said)
