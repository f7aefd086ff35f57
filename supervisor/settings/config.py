"""The user's and the host's configuration as values: models and the ``execution`` keys (CF-01 … CF-06, O-01, O-63).

A configuration chooses among what the policy leaves open. It is never read from inside a repository, which an agent could
change. Strict like the policy: an unknown key or an unreadable value is refused with file and line.
"""
from __future__ import annotations

import re
from dataclasses import dataclass, fields, replace
from typing import Any

from yaml.nodes import Node

from supervisor.errors import SettingError
from supervisor.settings import limits
from supervisor.settings.document import Document
from supervisor.settings.limits import Range

PROVIDERS = ("openai", "scripted")


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """One model. Paths are absolute or relative to the configuration's folder (``load`` makes them absolute)."""

    name: str
    provider: str  # one of PROVIDERS
    api_base: str | None = None
    model: str | None = None
    api_key_env: str | None = None
    api_key_file: str | None = None
    script: str | None = None
    proxy: str | None = None  # the environment's proxies are not read
    origin: str = ""  # FILE:LINE


@dataclass(frozen=True, slots=True)
class ExecutionConfig:
    """The ``execution`` keys. None: the file does not say."""

    session_max_actions: int | None = None
    session_max_minutes: int | None = None
    session_max_extensions: int | None = None
    tool_loop_threshold: int | None = None
    tool_loop_detection: bool | None = None
    subagent_max_depth: int | None = None
    subagent_max_per_session: int | None = None
    subagent_max_concurrent: int | None = None
    continue_after_tool_rejection: bool | None = None


@dataclass(frozen=True, slots=True)
class Config:
    """The configuration in force. ``origins``: execution key in file spelling → FILE:LINE."""

    models: tuple[ModelConfig, ...] = ()
    execution: ExecutionConfig = ExecutionConfig()
    origins: tuple[tuple[str, str], ...] = ()

    def model(self, name: str | None = None) -> ModelConfig:
        """The model of that name, or the first. SettingError ``model_missing`` or ``model_unknown``."""
        if not self.models:
            raise SettingError(
                "choose a model", why="no model is configured", code="model_missing",
                remedy="add one under `models:` in ~/.lemniscate/config.yaml",
            )
        if name is None:
            return self.models[0]
        for model in self.models:
            if model.name == name:
                return model
        known = ", ".join(model.name for model in self.models)
        raise SettingError("choose a model", on=name, why=f"configured models: {known}", code="model_unknown")

    def over(self, host: Config) -> Config:
        """This configuration (the user's) laid over the host's, key by key; its models come first and win by name."""
        names = {model.name for model in self.models}
        said = {
            f.name: getattr(self.execution, f.name)
            for f in fields(ExecutionConfig)
            if getattr(self.execution, f.name) is not None
        }
        return Config(
            self.models + tuple(model for model in host.models if model.name not in names),
            replace(host.execution, **said),
            tuple((dict(host.origins) | dict(self.origins)).items()),
        )


# File spelling → field and range; booleans have no range.
EXECUTION_KEYS: dict[str, tuple[str, Range | None]] = {
    "sessionMaxActions": ("session_max_actions", limits.ACTIONS),
    "sessionMaxMinutes": ("session_max_minutes", limits.MINUTES),
    "sessionMaxExtensions": ("session_max_extensions", limits.EXTENSIONS),
    "toolLoopThreshold": ("tool_loop_threshold", limits.LOOP_THRESHOLD),
    "toolLoopDetection": ("tool_loop_detection", None),
    "subagentMaxDepth": ("subagent_max_depth", limits.SUBAGENT_DEPTH),
    "subagentMaxPerSession": ("subagent_max_per_session", limits.SUBAGENT_PER_SESSION),
    "subagentMaxConcurrent": ("subagent_max_concurrent", limits.SUBAGENT_CONCURRENT),
    "continueAfterToolRejection": ("continue_after_tool_rejection", None),
}
_ADDRESS = re.compile(r"https?://(?:\[[^\]\s@/?#]+\]|[^\s@/?#:\[\]]+)(?::([0-9]{1,5}))?(?:/[^\s?#]*)?")  # RFC 3986
_MODEL_KEYS = ("name", "provider", "apiBase", "model", "apiKeyEnv", "apiKeyFile", "script", "proxy")


def parse_config(data: bytes, source: str) -> Config:
    """Read one configuration file. SettingError with ``on`` = "FILE:LINE"."""
    document = Document(source, SettingError)
    root = document.parse(data)
    if root is None:
        return Config()
    keys = document.mapping(root, "the configuration", ("models", "execution"))
    models: list[ModelConfig] = []
    for index, node in enumerate(document.items(keys["models"], "models") if "models" in keys else []):
        model = _model(document, node, f"models[{index}]")
        if any(other.name == model.name for other in models):
            raise document.error("read models", on=document.place(node), why=f"the name {model.name!r} stands twice")
        models.append(model)
    values: dict[str, Any] = {}
    origins: list[tuple[str, str]] = []
    if "execution" in keys:
        for name, node in document.mapping(keys["execution"], "execution", EXECUTION_KEYS).items():
            field, span = EXECUTION_KEYS[name]
            key = f"execution.{name}"
            values[field] = document.boolean(node, key) if span is None else document.integer(node, key, span.low, span.high)
            origins.append((name, document.place(node)))
    return Config(tuple(models), ExecutionConfig(**values), tuple(origins))


def is_plain_address(url: str) -> bool:
    """Whether a model's address has a host and a real port, and nothing that could hold a key."""
    found = _ADDRESS.fullmatch(url)
    return found is not None and 0 < int(found[1] or 80) < 65536


def _model(document: Document, node: Node, key: str) -> ModelConfig:
    keys = document.mapping(node, key, _MODEL_KEYS)
    for needed in ("name", "provider"):
        if needed not in keys:
            raise document.error(f"read {key}", on=document.place(node), why=f"`{needed}` is missing")
    provider = document.word(keys["provider"], f"{key}.provider", PROVIDERS)
    needs = {"openai": ("apiBase", "model"), "scripted": ("script",)}[provider]
    for needed in needs:
        if needed not in keys:
            raise document.error(f"read {key}", on=document.place(node), why=f"`{needed}` is missing for {provider}")
    if "apiKeyEnv" in keys and "apiKeyFile" in keys:
        raise document.error(f"read {key}", on=document.place(node), why="`apiKeyEnv` and `apiKeyFile` exclude each other")
    said = {name: document.text(value, f"{key}.{name}") for name, value in keys.items()}
    for name in ("apiBase", "proxy"):
        if name in said and not said[name].startswith(("http://", "https://")):
            raise document.refusal(keys[name], f"{key}.{name}", "a URL that starts with http:// or https:// is expected")
    if "apiBase" in said and not is_plain_address(said["apiBase"]):
        # The value is not shown: it may hold a key.
        accepted = "http(s)://HOST[:PORT]/v1 is expected, without a user, a query or a fragment; keys go to apiKeyEnv"
        raise document.error(f"read {key}.apiBase", on=document.place(keys["apiBase"]), why=accepted)
    return ModelConfig(
        said["name"], provider, said.get("apiBase"), said.get("model"), said.get("apiKeyEnv"), said.get("apiKeyFile"),
        said.get("script"), said.get("proxy"), document.place(node),
    )
