"""A HOME in which ``lemni -p`` plays a script under a policy."""
from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

FREE = {"Read": "allow", "List": "allow", "Search": "allow", "Write": "allow", "Edit": "allow", "Bash": "allow"}


def call(tool: str, **arguments: Any) -> dict[str, Any]:
    """One call of a turn."""
    return {"tool": tool, "args": arguments}


def configure(
    home: Path,
    turns: Sequence[Mapping[str, Any]],
    *,
    tools: Mapping[str, str] | None = FREE,
    commands: Sequence[str] = ("*",),
    **policy: Any,
) -> None:
    """Write configuration, script and policy. ``tools`` None: no policy at all. YAML reads JSON, so JSON it is."""
    settings = home / ".lemniscate"
    settings.mkdir(mode=0o700, exist_ok=True)
    script = settings / "script.yaml"
    script.write_text(json.dumps({"turns": list(turns)}))
    model = {"name": "scripted", "provider": "scripted", "script": str(script)}
    (settings / "config.yaml").write_text(json.dumps({"models": [model]}))
    if tools is not None:
        document = {"version": 1, "defaults": {"tools": dict(tools), "commands": list(commands), **policy}}
        (settings / "policy.yaml").write_text(json.dumps(document))
        (settings / "policy.yaml").chmod(0o600)
