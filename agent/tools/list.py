"""List: the entries of one directory."""
from __future__ import annotations

from agent.tools.arguments import Tool, path_field
from supervisor.types import ListCall

LIST = Tool(
    "List",
    "List the entries of one directory of the project, not those of its subdirectories.",
    (path_field('Directory, relative to the project; "." is the project itself.'),),
    ListCall,
)
