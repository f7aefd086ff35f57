"""Bash: one command in the sandbox."""
from __future__ import annotations

from agent.tools.arguments import MAX_COMMAND, Text, Tool, Whole
from supervisor.types import BashCall

_MOST_SECONDS = 86_400  # a day; the session's own bound on a command (CB-02) is lower and is judged there

BASH = Tool(
    "Bash",
    "Run a command by bash in the sandbox, in the project's directory. Returns its exit status, standard output and standard "
    "error. There is no network, no terminal and no standard input. Each command starts in a fresh shell.",
    (
        Text("command", "The command, in bash's syntax.", MAX_COMMAND),
        Whole("timeout", "Whole seconds after which the command is ended. Default: the session's bound.", 1, _MOST_SECONDS),
    ),
    BashCall,
)
