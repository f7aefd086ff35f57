"""The command ``lemni`` itself: its options, and its sub-commands, each imported when it is called or listed."""
from __future__ import annotations

import importlib

import click

from supervisor.version import VERSION

COMMANDS = {  # name: module; the attribute in it is ``command``. In the order of the help
    "exec": "agent.cli.execute",
    "sessions": "agent.cli.sessions",
    "diff": "agent.cli.diff",
    "apply": "agent.cli.apply",
    "journal": "agent.cli.journal",
    "policy": "agent.cli.policy",
    "doctor": "agent.cli.doctor",
    "completion": "agent.cli.completion",
}


class LazyGroup(click.Group):
    """A group whose commands live in modules of their own."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(COMMANDS[cmd_name]).command
        return command


@click.command(
    cls=LazyGroup,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="See lemni(1). Exit status: 0 done, 1 error, 2 usage, 3 a guardrail stopped the agent, 130 interrupted.",
)
@click.option("-p", "--prompt", metavar="TEXT", help="Give the agent this task, show its steps, print its answer, end.")
@click.option("--model", metavar="NAME", help="The model of the configuration to use; its first one otherwise.")
@click.option("--mode", type=click.Choice(["agent", "plan"]), default="agent", show_default=True, help="plan only reads.")
@click.option("--json", "as_json", is_flag=True, help="Events as JSON, one a line, on standard output.")
@click.version_option(VERSION, message="%(prog)s %(version)s")
@click.pass_context
def lemni(ctx: click.Context, prompt: str | None, model: str | None, mode: str, as_json: bool) -> int:
    """Supervise a coding agent: it works on a copy of this repository in a sandbox without network, and what comes out is
    a diff that you accept or not.

    \b
    lemni policy init                   say what agents may do in this repository
    lemni -p "fix the failing test"     a task; the diff is kept with the session
    git diff | lemni -p "review this"   data on standard input goes beside the prompt
    lemni diff, lemni apply             look at the latest session's changes, take them
    lemni exec -- make test             one command of your own in the sandbox, no model
    """
    if ctx.invoked_subcommand is not None:
        if prompt is not None:
            raise click.UsageError(f"-p and the command {ctx.invoked_subcommand} exclude each other", ctx)
        return 0
    if prompt is None:
        raise click.UsageError(
            "interactive sessions are not there yet.\n"
            '  Use lemni -p "…" for a task, or lemni exec -- CMD… for a command of your own.',
            ctx,
        )
    from agent.cli.prompt import run

    return run(prompt, model=model, mode=mode, as_json=as_json)
