"""``lemni doctor``: would a session open here, and if not, what to do."""
from __future__ import annotations

from itertools import pairwise

import click


@click.command(
    "doctor",
    short_help="Say what this machine offers and what is missing.",
    epilog="Exit status: 0 a sandbox opens here, 1 not.",
)
@click.option("--json", "as_json", is_flag=True, help="As one JSON object.")
def command(as_json: bool) -> int:
    """Open a sandbox for real and list every isolation layer: present or missing, the kernel's word, and the remedy.

    \b
    lemni doctor
    """
    import trio

    from agent.cli.terminal import GREEN, RED, YELLOW, err, out, paint
    from agent.cli.visible import visible
    from supervisor.sandbox.examine import examine
    from supervisor.session.state import state_directory

    layers = trio.run(examine, state_directory())
    fit = all(layer.on for layer in layers if layer.required)
    if as_json:
        from agent.cli.jsontext import dumps

        out(dumps({
            "fit": fit,
            "layers": [
                {"name": item.name, "on": item.on, "required": item.required, "fact": item.fact, "remedy": item.remedy or None}
                for item in layers
            ],
        }))
        return 0 if fit else 1
    width = max(len(layer.name) for layer in layers)
    for layer, next_one in pairwise((*layers, None)):
        assert layer is not None
        state = paint("present", GREEN) if layer.on else paint("missing", RED if layer.required else YELLOW)
        out(f"{layer.name:<{width}}  {state}  {visible(layer.fact, lines=False)}")
        # One remedy for several layers in a row is told once, after the last of them.
        told_below = next_one is not None and not next_one.on and next_one.remedy == layer.remedy
        if not layer.on and layer.remedy and not told_below:
            out(f"{'':<{width}}  remedy   {visible(layer.remedy, lines=False)}")
    if fit:
        err("sandboxes open on this machine")
    else:
        remedies = any(layer.remedy for layer in layers if layer.required and not layer.on)
        err("sandboxes do not open on this machine" + (": see the remedies above" if remedies else ""))
    return 0 if fit else 1
