"""The bounds in force: defaults < environment < configuration, then capped by the policy (CF-07 … CF-16, X-32, O-63).

Pure: the environment comes in as a mapping, read once per process by ``load`` (CF-12). Every value that is not the default
is announced with its origin, and so is every value that the policy lowered.
"""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from supervisor.errors import SettingError
from supervisor.settings import limits
from supervisor.settings.config import Config
from supervisor.settings.document import decimal
from supervisor.settings.limits import Range
from supervisor.settings.policy import PLACES, Policy

EXECUTION_VARIABLE = "LEMNISCATE_AGENT_EXECUTION"
VARIABLES: dict[str, Range] = {
    "LEMNISCATE_SESSION_MAX_ACTIONS": limits.ACTIONS,
    "LEMNISCATE_SESSION_MAX_MINUTES": limits.MINUTES,
    "LEMNISCATE_SESSION_MAX_EXTENSIONS": limits.EXTENSIONS,
    "LEMNISCATE_COMMAND_MAX_SECONDS": limits.COMMAND_SECONDS,
    "LEMNISCATE_COMMAND_MAX_OUTPUT_BYTES": limits.COMMAND_OUTPUT,
}


@dataclass(frozen=True, slots=True)
class Announcement:
    """A setting that differs from its default (CF-16). ``direction``: "loosens", "tightens" or "switches off" (it)."""

    key: str
    value: int | bool
    default: int | bool
    direction: str
    origin: str  # a variable, FILE:LINE, or "policy"

    @property
    def text(self) -> str:
        verb, _, particle = self.direction.partition(" ")
        does = f"{verb} it {particle}".rstrip()
        return f"{self.key} is {_shown(self.value)} (default {_shown(self.default)}): {self.origin} {does}"


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a session runs under. Counts, minutes, bytes, seconds. ``execution``: "workstation" or "server"."""

    actions: int = limits.ACTIONS.default
    minutes: int = limits.MINUTES.default
    extensions: int = limits.EXTENSIONS.default
    model_bytes: int = limits.MODEL_BYTES.default
    commands: int = limits.COMMANDS.default
    loop_threshold: int = limits.LOOP_THRESHOLD.default
    loop_detection: bool = True
    command_seconds: int = limits.COMMAND_SECONDS.default
    command_output_bytes: int = limits.COMMAND_OUTPUT.default
    subagent_depth: int = limits.SUBAGENT_DEPTH.default
    subagent_per_session: int = limits.SUBAGENT_PER_SESSION.default
    subagent_concurrent: int = limits.SUBAGENT_CONCURRENT.default
    continue_after_rejection: bool = False
    execution: str = "workstation"
    announcements: tuple[Announcement, ...] = ()


def compute_bounds(environment: Mapping[str, str], config: Config, policy: Policy) -> Bounds:
    """The bounds of a session.

    SettingError: a variable that is set and unreadable, even when the configuration overrides it (CF-10); a place that the
    policy or the installation does not offer (``execution_refused``, ``gateway_missing``).
    """
    variables = {name: _read(environment, name, span) for name, span in VARIABLES.items()}
    execution = _place(environment, policy)
    said = config.execution
    origins = dict(config.origins)
    ceilings = policy.budgets
    announcements: list[Announcement] = []

    def choose(key: str, span: Range, variable: str | None, configured: int | None, ceiling: int | None = None) -> int:
        value, origin = span.default, ""
        from_environment = variables.get(variable) if variable else None
        if from_environment is not None:
            value, origin = from_environment, str(variable)
        if configured is not None:
            value, origin = configured, origins.get(key, "the policy")  # a key without origin is the policy's own
        if ceiling is not None and value > ceiling:
            value, origin = ceiling, "the policy"
        if value != span.default:
            direction = "loosens" if value > span.default else "tightens"
            announcements.append(Announcement(key, value, span.default, direction, origin))
        return value

    def switch(key: str, configured: bool | None, default: bool, direction: str) -> bool:
        value = default if configured is None else configured
        if value != default:
            announcements.append(Announcement(key, value, default, direction, origins.get(key, "configuration")))
        return value

    return Bounds(
        actions=choose("sessionMaxActions", limits.ACTIONS, "LEMNISCATE_SESSION_MAX_ACTIONS", said.session_max_actions,
                       ceilings.actions),
        minutes=choose("sessionMaxMinutes", limits.MINUTES, "LEMNISCATE_SESSION_MAX_MINUTES", said.session_max_minutes,
                       ceilings.minutes),
        extensions=choose("sessionMaxExtensions", limits.EXTENSIONS, "LEMNISCATE_SESSION_MAX_EXTENSIONS",
                          said.session_max_extensions, ceilings.extensions),
        model_bytes=choose("budgets.modelBytes", limits.MODEL_BYTES, None, ceilings.model_bytes),
        commands=choose("budgets.commands", limits.COMMANDS, None, ceilings.commands),
        loop_threshold=choose("toolLoopThreshold", limits.LOOP_THRESHOLD, None, said.tool_loop_threshold),
        loop_detection=switch("toolLoopDetection", said.tool_loop_detection, True, "switches off"),
        command_seconds=choose("LEMNISCATE_COMMAND_MAX_SECONDS", limits.COMMAND_SECONDS,
                               "LEMNISCATE_COMMAND_MAX_SECONDS", None),
        command_output_bytes=choose("LEMNISCATE_COMMAND_MAX_OUTPUT_BYTES", limits.COMMAND_OUTPUT,
                                    "LEMNISCATE_COMMAND_MAX_OUTPUT_BYTES", None),
        subagent_depth=choose("subagentMaxDepth", limits.SUBAGENT_DEPTH, None, said.subagent_max_depth),
        subagent_per_session=choose("subagentMaxPerSession", limits.SUBAGENT_PER_SESSION, None, said.subagent_max_per_session),
        subagent_concurrent=choose("subagentMaxConcurrent", limits.SUBAGENT_CONCURRENT, None, said.subagent_max_concurrent),
        continue_after_rejection=switch("continueAfterToolRejection", said.continue_after_tool_rejection, False, "loosens"),
        execution=execution,
        announcements=tuple(announcements),
    )


def _read(environment: Mapping[str, str], name: str, span: Range) -> int | None:
    """None where the variable is absent. An empty variable is present and unreadable (O-19)."""
    text = environment.get(name)
    if text is None:
        return None
    value = decimal(text)
    if value is None or not span.low <= value <= span.high:
        shown = repr(text if len(text) <= 80 else text[:77] + "...")
        raise SettingError(
            "read the bounds", on=name,
            why=f"{shown} is not accepted: a whole number from {span.low} to {span.high} is expected",
        )
    return value


def _place(environment: Mapping[str, str], policy: Policy) -> str:
    """Where sandboxes run (EM-17 … EM-21). Exactly two values; absent is the workstation."""
    value = environment.get(EXECUTION_VARIABLE, "workstation")
    if value not in PLACES:
        shown = repr(value if len(value) <= 80 else value[:77] + "...")
        raise SettingError(
            "choose the place of execution", on=EXECUTION_VARIABLE, code="execution_refused",
            why=f"{shown} is not accepted: exactly workstation or server",
        )
    if value not in policy.execution:
        raise SettingError(
            "choose the place of execution", on=EXECUTION_VARIABLE, code="execution_refused",
            why=f"the policy of this project allows {', '.join(policy.execution)}, not {value}",
        )
    if value == "server":
        raise SettingError(
            "choose the place of execution", on=EXECUTION_VARIABLE, code="gateway_missing",
            why="server needs a gateway, and none is configured; nothing falls back to the workstation",
        )
    return value


def _shown(value: int | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
