"""The environment of commands, built from nothing: no variable of the person or the supervisor reaches a sandbox by itself.

The switches below tell package managers that there is no network here: without them ``npm`` waits 70 seconds and ``pip`` 9
before they say so. LeakSanitizer needs ptrace, which no sandbox has; its leak check is off so that sanitised programs run.
"""
from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from supervisor.errors import SettingError
from supervisor.sandbox.spec import HOME

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

PRESETS: dict[str, str] = {
    "PATH": PATH,
    "HOME": HOME.decode(),
    "USER": "agent",
    "LOGNAME": "agent",
    "SHELL": "/bin/bash",
    "TMPDIR": "/tmp",
    "ASAN_OPTIONS": "detect_leaks=0",
    "CARGO_NET_OFFLINE": "true",
    "GIT_TERMINAL_PROMPT": "0",
    "GOFLAGS": "-modcacherw",
    "GOPROXY": "off",
    "GOTOOLCHAIN": "local",
    "MAVEN_ARGS": "--offline",
    "NEXT_TELEMETRY_DISABLED": "1",
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    "PIP_NO_INDEX": "1",
    "UV_OFFLINE": "1",
    "YARN_ENABLE_NETWORK": "0",
    "npm_config_fetch_retries": "0",
    "npm_config_offline": "true",
    "npm_config_update_notifier": "false",
}

GITCONFIG = b"[user]\n\tname = lemni session\n\temail = session@lemni.invalid\n[gc]\n\tauto = 0\n[core]\n\tfsmonitor = false\n"
HOME_FILES: tuple[tuple[bytes, bytes], ...] = ((HOME + b"/.gitconfig", GITCONFIG),)

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
# Read by a shell, the dynamic loader or an interpreter before the first line of the program: code by another name.
_REFUSED = re.compile(
    r"(BASH_ENV|BASH_FUNC_.*|BASHOPTS|ENV|SHELLOPTS|ZDOTDIR|PS4|PROMPT_COMMAND|LD_.*|GCONV_PATH|GIT_SSH.*|GIT_ASKPASS)\Z"
)


def build(
    language: str | None, terminal: str | None, listed: Iterable[str], outside: Mapping[str, str]
) -> tuple[tuple[bytes, bytes], ...]:
    """The whole environment of a sandbox, sorted by name.

    ``language`` and ``terminal`` are the caller's LANG and TERM. ``listed`` are names that the policy lets through, with the
    values of ``outside``; a name that is absent there is skipped. Raises ``SettingError`` for a name that runs code by itself.
    """
    values = dict(PRESETS)
    values["LANG"] = language or "C.UTF-8"
    values["TERM"] = terminal or "dumb"
    for name in listed:
        if _NAME.match(name) is None or _REFUSED.match(name):
            raise SettingError("reading the environment list", on=name, why="this name cannot be passed to a sandbox")
        if name in outside:
            values[name] = outside[name]
    return tuple(sorted((k.encode(), v.encode("utf-8", "surrogateescape")) for k, v in values.items()))
