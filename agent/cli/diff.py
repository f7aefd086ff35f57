"""``lemni diff``: the changes of a session, from what was stored when it ended; the working copy is long gone."""
from __future__ import annotations

import click


@click.command("diff", short_help="Show the changes that a session proposes.")
@click.argument("session", metavar="[ID]", required=False)
@click.option("--patch", is_flag=True, help="The bytes of the patch, for git apply; not on a terminal.")
@click.option("--json", "as_json", is_flag=True, help="The changed paths as one JSON object.")
def command(session: str | None, patch: bool, as_json: bool) -> int:
    """Show the changes of session ID (any unique prefix), or of this repository's latest undecided session.

    Control and invisible characters are shown as <U+…>. The bytes themselves, binary files included: --patch, which exits 1
    and says what is missing where git has no words for a change (empty directories, permission bits).

    \b
    lemni diff
    lemni diff 01k7 --json
    lemni diff --patch | git apply --check
    """
    import sys

    if patch and as_json:
        raise click.UsageError("--patch and --json exclude each other")
    if patch and sys.stdout.isatty():
        raise click.UsageError("--patch writes bytes as they are, which a terminal may obey: send them to a file or a pipe")
    from agent.cli.changes import listed, nothing, show, write_patch
    from agent.cli.store import chosen, here
    from agent.cli.terminal import out
    from supervisor.session.state import state_directory
    from supervisor.workspace.project import object_format
    from supervisor.workspace.store import Store

    store = Store(state_directory())
    record = chosen(store, session)
    changes = store.load_changes(record)
    if as_json:
        from agent.cli.jsontext import dumps

        out(dumps(listed(record, changes)))
    elif patch:
        if not changes.entries:
            nothing(record)
        return write_patch(store, record, changes, object_format(here().git))
    else:
        show(store, record, changes)
    return 0
