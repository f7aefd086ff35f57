"""``lemni sessions``: what was done, newest first."""
from __future__ import annotations

import click


@click.command("sessions", short_help="List the sessions of this repository.")
@click.option("--all", "everywhere", is_flag=True, help="Those of every repository.")
@click.option("--json", "as_json", is_flag=True, help="As one JSON list.")
def command(everywhere: bool, as_json: bool) -> int:
    """List the sessions of this repository, newest first, with what became of their changes.

    \b
    lemni sessions
    lemni sessions --all --json | jq '.[0].id'
    """
    from agent.cli.changes import kept
    from agent.cli.store import here, when
    from agent.cli.terminal import err, out
    from agent.cli.visible import visible
    from supervisor.session.state import state_directory
    from supervisor.workspace.store import Store

    project = None if everywhere else here().id
    records = [
        record for record in Store(state_directory()).records() if project is None or record.project_id == project
    ]
    if as_json:
        from agent.cli.jsontext import dumps

        out(dumps([
            {
                "id": record.id, "kind": record.kind, "project": record.project, "started_us": record.started_us,
                "ended_us": record.ended_us, "exit": record.exit, "files": record.files, "added": record.added,
                "removed": record.removed, "collected": record.collected, "decision": record.decision.value,
            }
            for record in records
        ]))
        return 0
    if not records:
        err("no session here yet: lemni -p \"…\" starts one" if not everywhere else "no session yet")
    for record in records:
        where = f"  {visible(record.project, lines=False)}" if everywhere else ""
        out(
            f"{record.id}  {when(record.started_us)}  {record.kind:<6}  exit {'-' if record.exit is None else record.exit:<3}  "
            f"{record.decision.value:<9}  {kept(record)}{where}"
        )
    return 0
