"""``lemni policy``: write a starter, show what is in force, check a file before it is."""
from __future__ import annotations

from pathlib import Path

import click


@click.group("policy", short_help="What agents may do: init, show, check.")
def command() -> None:
    """What agents may do here."""


@command.command("init", short_help="Write a commented starter policy for this repository.")
def init() -> int:
    """Write a commented starter policy for this repository to ~/.lemniscate/policy.yaml.

    The tools are allowed inside the sandbox, the test commands found here are free, and everything else asks.
    Where /etc/lemniscate/policy.yaml exists, that file rules, and yours can only restrict it.

    \b
    lemni policy init
    """
    from agent.cli.store import here
    from agent.cli.terminal import err, out
    from agent.cli.visible import visible
    from supervisor.settings.load import SettingFiles, write_starter

    files = SettingFiles.standard()
    path = write_starter(files, here().root)
    out(visible(str(path), lines=False))
    err("written; read it, change it, then: lemni policy show")
    if files.admin_policy.exists():
        err(f"{files.admin_policy} is in force here: your file can only restrict it")
    return 0


@command.command("show", short_help="Print the policy in force here, and where it comes from.")
@click.option("--json", "as_json", is_flag=True, help="As one JSON object.")
def show(as_json: bool) -> int:
    """Print every key of the policy in force in this directory, with the bounds that the configuration sets.

    \b
    lemni policy show
    """
    from agent.auth.local import identify
    from agent.cli.store import here
    from agent.cli.terminal import DIM, err, out, paint
    from agent.cli.visible import visible
    from supervisor.settings.load import (
        SettingFiles,
        describe_policy,
        load_bounds,
        load_config,
        load_policy,
        without_effect,
    )

    files = SettingFiles.standard()
    policy = load_policy(files, here().root, identify().name)
    bounds = load_bounds(load_config(files), policy)
    rows = describe_policy(policy, bounds)
    if as_json:
        from agent.cli.jsontext import dumps

        settings: dict[str, list[str]] = {}
        for key, value in rows:  # a key that is a list has a row for each of its values
            settings.setdefault(key, []).append(value)
        idle = [key for key in settings if without_effect(key)]
        out(dumps({"origin": policy.origin, "settings": settings, "withoutEffect": idle}))
        return 0
    width = max(len(key) for key, _ in rows)
    for key, value in rows:
        mark = paint("  (read, and without effect in this version)", DIM) if without_effect(key) else ""
        out(f"{visible(key, lines=False):<{width}}  {visible(value, lines=False)}{mark}")
    for announcement in bounds.announcements:
        err(paint(visible(announcement.text, lines=False), DIM))
    if policy.origin == "none":
        err("no policy: every tool asks, so that lemni -p refuses them all. lemni policy init writes one")
    return 0


@command.command("check", short_help="Say whether a policy file is valid.")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path), required=False)
def check(file: Path | None) -> int:
    """Read FILE (~/.lemniscate/policy.yaml by default) as a policy; nothing is put in force. Exit status 1 if invalid.

    \b
    lemni policy check /etc/lemniscate/policy.yaml
    """
    from agent.cli.terminal import out
    from agent.cli.visible import visible
    from supervisor.settings.load import SettingFiles, check_policy

    path = file if file is not None else SettingFiles.standard().user_policy
    check_policy(path)
    out(f"{visible(str(path), lines=False)}: valid")
    return 0
