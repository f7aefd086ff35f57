"""``lemni completion``: the script that makes a shell complete lemni's commands and options."""
from __future__ import annotations

import click

FILES = {
    "bash": "~/.local/share/bash-completion/completions/lemni",
    "zsh": "a directory of $fpath, as _lemni",
    "fish": "~/.config/fish/completions/lemni.fish",
}


@click.command("completion", short_help="Print the completion script of a shell.")
@click.argument("shell", type=click.Choice(list(FILES)))
def command(shell: str) -> int:
    """Print the completion script of SHELL.

    \b
    lemni completion bash > ~/.local/share/bash-completion/completions/lemni
    lemni completion fish > ~/.config/fish/completions/lemni.fish
    lemni completion zsh > DIR/_lemni       with DIR one of $fpath
    """
    from click.shell_completion import get_completion_class

    from agent.cli.root import lemni
    from agent.cli.terminal import out

    completer = get_completion_class(shell)
    assert completer is not None, "click knows the three"
    # The base class's source(): bash's own would start bash to learn its version, which says nothing of where this goes.
    script = completer(lemni, {}, "lemni", "_LEMNI_COMPLETE")
    out(script.source_template % script.source_vars())
    return 0
