"""``lemni journal``: what was done can be proved, or it is said why not. Exit codes of its own, for scripts."""
from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click


class JournalUsage(click.UsageError):
    """A usage error that exits 3: 2 says "not sealed" here."""

    exit_code = 3


class JournalGroup(click.Group):
    """A group whose errors exit 3: 1 says "altered" here."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        with usage_is_three():
            return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        from agent.cli.problems import BROKEN_PIPE, ERROR, tell
        from agent.cli.terminal import OutputGone
        from supervisor.errors import LemniError

        try:
            with usage_is_three():
                value = super().invoke(ctx)
                sys.stdout.flush()
                return value
        except (LemniError, OutputGone) as error:
            return {ERROR: 3, BROKEN_PIPE: BROKEN_PIPE}[tell(error)]


@contextmanager
def usage_is_three() -> Iterator[None]:
    """Give usage errors that pass the code that this command promises."""
    try:
        yield
    except click.UsageError as error:
        raise JournalUsage(error.format_message(), error.ctx) from None


@click.group("journal", cls=JournalGroup, short_help="Check the record of what was done: verify.")
def command() -> None:
    """The record of what was proposed, decided and done: append-only, each entry chained to the one before."""


@command.command(
    "verify",
    short_help="Check that journals are complete and unaltered.",
    epilog="Exit status: 0 intact, 1 altered or cut, 2 not sealed, torn or recovered, 3 usage, unreadable, unsupported.",
)
@click.argument("files", nargs=-1, type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="The findings as one JSON object.")
def verify(files: Sequence[Path], as_json: bool) -> int:
    """Check FILES, or every journal of yours with the ledger that anchors them.

    \b
    lemni journal verify
    lemni journal verify ~/.local/state/lemniscate/journal/*.jsonl
    """
    from agent.cli.terminal import out
    from agent.cli.visible import visible
    from supervisor.journal.verify import verify as verify_files
    from supervisor.journal.verify import verify_all
    from supervisor.session.state import state_directory

    report = verify_files(list(files)) if files else verify_all(state_directory() / "journal")
    if as_json:
        from agent.cli.jsontext import dumps

        out(dumps(report.as_json()))
    else:
        for line in report.lines():
            out(visible(line, lines=False))
    return int(report.exit)
