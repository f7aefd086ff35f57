"""Edit: replace a text in one file."""
from __future__ import annotations

from agent.tools.arguments import MAX_TEXT, Flag, Refused, Text, Tool, path_field
from supervisor.types import EditCall


def _make(path: str, old: str, new: str, all: bool = False) -> EditCall:
    if not old:
        raise Refused("old is empty; the text to replace is accepted there. To create a file, use Write.")
    if old == new:
        raise Refused("old and new are the same text: there is nothing to change.")
    return EditCall(path, old, new, all)


EDIT = Tool(
    "Edit",
    "Replace a text in a file. It must occur exactly once, character for character, unless all is true.",
    (
        path_field("File, relative to the project."),
        Text("old", "The text to replace, exactly as it stands in the file, blanks and line ends included.", MAX_TEXT,
             blank=True, nul=True),
        Text("new", "The text to put in its place.", MAX_TEXT, blank=True, nul=True),
        Flag("all", "Replace every occurrence. Default false."),
    ),
    _make,
)
