"""The life of a tool call: six states and the transitions between them, as a table (LC-02, LC-25)."""
from __future__ import annotations

from supervisor.errors import InternalError
from supervisor.types import CallState

TRANSITIONS: dict[CallState, frozenset[CallState]] = {
    CallState.GENERATING: frozenset({CallState.GENERATED, CallState.ERRORED, CallState.CANCELED}),
    CallState.GENERATED: frozenset({CallState.CALLING, CallState.ERRORED, CallState.CANCELED}),
    CallState.CALLING: frozenset({CallState.DONE, CallState.ERRORED}),
    CallState.DONE: frozenset(),
    CallState.ERRORED: frozenset(),
    CallState.CANCELED: frozenset(),
}
# ``generated → errored`` is a request that was complete and meant nothing: malformed arguments, an unknown tool (LC-07).
FINAL = frozenset(state for state, following in TRANSITIONS.items() if not following)


def advance(state: CallState, following: CallState) -> CallState:
    """``following``, where the table has it; InternalError otherwise."""
    if following not in TRANSITIONS[state]:
        raise InternalError("move a call", on=f"{state.value} -> {following.value}", why="not a transition of the table")
    return following
