"""``lemni exec -- CMD…``: one command of the person's own in a sandbox over this repository, without a model."""
from __future__ import annotations

import click


@click.command(
    "exec",
    short_help="Run one command in a sandbox over this repository.",
    context_settings={"allow_interspersed_args": False},
    epilog="Exit status: the command's; 128+N for signal N; 125 when lemni failed or refused; 3 on a limit of the session.",
)
@click.option("--timeout", type=click.FloatRange(min=0, min_open=True), metavar="SECONDS", help="End the command after.")
@click.argument("words", metavar="-- COMMAND [ARGUMENT]…", nargs=-1, required=True, type=click.UNPROCESSED)
def command(timeout: float | None, words: tuple[str, ...]) -> int:
    """Run COMMAND in a sandbox: this repository as a copy, no network, no secret, capped resources.

    Its output is this command's output, byte for byte, except on a terminal, where control characters are shown instead
    of obeyed. Its standard input is empty. What it changes is kept as a diff, whose id stands on standard error.

    \b
    lemni exec -- make test
    lemni exec --timeout 60 -- python3 -m unittest
    lemni exec -- sh -c 'ls | wc -l'
    """
    from agent.cli.running import run

    return run(words, timeout)
