"""Search: a regular expression in the files of the project."""
from __future__ import annotations

from agent.tools.arguments import MAX_PATH, Text, Tool, path_field
from supervisor.types import SearchCall

_MAX_PATTERN = 4096  # characters; RE2 bounds its own memory beyond that

SEARCH = Tool(
    "Search",
    "Search the files of the project for a regular expression (RE2 syntax, one line at a time). At most 200 matches come back.",
    (
        Text("pattern", "Regular expression in RE2 syntax: no look-around, no back-references.", _MAX_PATTERN),
        path_field("File or directory to search below. Default: the whole project.", required=False),
        Text("glob", 'Only files whose name matches, for example "*.py".', MAX_PATH, required=False, raw_bytes=True),
    ),
    SearchCall,
)
