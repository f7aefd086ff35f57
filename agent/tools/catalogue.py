"""The catalogue: closed, ordered, and fixed before anything is read (DC-07, DC-08).

Adding a tool is adding its file, its entry here, and its action to ``supervisor.types.Action``; a test holds the three
together.
"""
from __future__ import annotations

from typing import Any

from agent.calls import Call, clean, shown
from agent.tools.arguments import Refused, Tool
from agent.tools.bash import BASH
from agent.tools.edit import EDIT
from agent.tools.list import LIST
from agent.tools.read import READ
from agent.tools.search import SEARCH
from agent.tools.write import WRITE
from supervisor.types import Proposal, Reason

CATALOGUE: tuple[Tool, ...] = (READ, LIST, SEARCH, WRITE, EDIT, BASH)

_MAX_NAME = 64  # characters of an unknown tool's name that go on; the published limit of a function's name


class Catalogue:
    """The tools of one session: those of ``names``, in the order of the catalogue. It never changes."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self._tools = {tool.name: tool for tool in CATALOGUE if tool.name in names}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._tools)

    def schemas(self) -> list[dict[str, Any]]:
        """The ``tools`` of a chat completions request."""
        return [tool.schema() for tool in self._tools.values()]

    def propose(self, call: Call) -> Proposal:
        """What a call comes to: an action, or a fault in words for the model. Total: no call raises.

        The tool is looked up by its exact name. A tool that policy has taken out of the catalogue is proposed all the same
        when its arguments are right: refusing it is the guard's word, not ours.
        """
        name = clean(call.tool[:_MAX_NAME])
        tool = next((tool for tool in CATALOGUE if tool.name == call.tool), None)
        if call.tool and tool is None:
            offered = ", ".join(self._tools) or "none"
            text = f"There is no tool {shown(name)}. Tools of this session: {offered}."
            return Proposal(call.call_id, name, call.raw, None, Reason.UNKNOWN_TOOL, text)
        if tool is None or call.fault or call.arguments is None:
            return Proposal(call.call_id, name, call.raw, None, Reason.MALFORMED, call.fault)
        try:
            action = tool.parse(call.arguments)
        except Refused as refused:
            return Proposal(call.call_id, name, call.raw, None, Reason.MALFORMED, f"{tool.name}: {refused}")
        return Proposal(call.call_id, name, call.raw, action)
