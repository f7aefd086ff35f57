"""Write: create or replace one file."""
from __future__ import annotations

from agent.tools.arguments import MAX_TEXT, Text, Tool, path_field
from supervisor.types import WriteCall

WRITE = Tool(
    "Write",
    "Create a file, or replace the whole of one, with this text. Missing parent directories are made. "
    "To change a part of a file, use Edit.",
    (
        path_field("File, relative to the project."),
        Text("content", "The whole new text of the file.", MAX_TEXT, blank=True, nul=True),
    ),
    WriteCall,
)
