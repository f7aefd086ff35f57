"""Read: the lines of one file."""
from __future__ import annotations

from agent.tools.arguments import Tool, Whole, path_field
from supervisor.types import ReadCall

_MOST_LINES = 1_000_000_000  # a number that no file reaches: the bytes returned are bounded elsewhere

READ = Tool(
    "Read",
    "Read lines of a text file of the project. At most 2000 lines or 64 KiB come back at once; ask for the rest with offset.",
    (
        path_field("File, relative to the project."),
        Whole("offset", "First line to read, counted from 1. Default 1.", 1, _MOST_LINES),
        Whole("limit", "Number of lines. Default 2000.", 1, _MOST_LINES),
    ),
    ReadCall,
)
