"""What the model, and the person, read when a call did not simply run. English, complete, with what to do instead.

The texts carry no right and no policy text beyond the reason (PP-03): they tell the model that trying again the same way is
useless, which is what keeps a refusal from becoming a loop (LD-07).
"""
from __future__ import annotations

from supervisor.guard.budget import Exhausted
from supervisor.guard.lattice import Judgement
from supervisor.types import Reason, Stop, StopKind

_UNITS = {"actions": "actions", "minutes": "minutes", "modelBytes": "bytes exchanged with the model", "commands": "commands"}
_BYTES = {"memory": "memory", "disk": "disk space"}
_RESOURCES = {  # the unit, for one and for any other number, and what is counted
    "processes": ("process", "processes", ""), "cpu_seconds": ("s", "s", " of CPU time"), "wall_seconds": ("s", "s", ""),
    "inodes": ("file", "files", ""),
}


def refused(tool: str, judgement: Judgement) -> str:
    """A verdict that refuses."""
    why = judgement.why or "the policy refuses it"
    match judgement.reason:
        case Reason.PERIMETER:
            return f"{tool} refused: {why}. Paths are relative to the root of the project; nothing outside can be used."
        case Reason.REFUSED_FAMILY:
            return f"{tool} refused: {why}. No approval can unblock it: do not retry, find another way."
        case Reason.EVALUATION_FAILED:
            return f"{tool} refused: {why}. It was not run. Write it differently."
        case _:
            return f"{tool} refused: {why}. It was not run: do not retry, continue with the other tools."


def refused_command(judgement: Judgement) -> str:
    """A command of the person's own (`lemni exec`), in words for a person."""
    return f"{judgement.why or 'the policy refuses it'}; nothing was run"


def nobody_to_ask(tool: str, judgement: Judgement) -> str:
    """``ask`` where nobody can answer: a dry refusal (DG-41)."""
    return (
        f"{tool} refused: it needs the developer's approval ({judgement.why}), and this session has nobody to ask. "
        "It was not run. Do not retry it; continue with what is allowed."
    )


def refused_by_person(tool: str) -> str:
    return f"{tool} refused by the developer. It was not run. Do not retry it unless the developer asks for it."


def blocked_for_repetition(tool: str, count: int) -> str:
    return f"{tool} blocked for repetition, do not retry: the same call with the same arguments came {count} times in a row."


def canceled(stop: Stop) -> str:
    """A call that came after the session was stopped."""
    return f"Not run: {stop.text}"


def interrupted() -> str:
    return "Not run: the developer interrupted this turn."


def ended_by(reason: Reason) -> str:
    """A command that was running and was killed by ``reason``."""
    what = "the developer interrupted this turn" if reason is Reason.INTERRUPTED else "the session was stopped"
    return f"Killed while it ran: {what}."


def too_long(timeout: int, bound: int) -> str:
    return f"timeout {timeout} is above the bound of {bound} seconds. The command was not run."


def stop_for_bound(found: Exhausted) -> Stop:
    """SE-26: a bound was reached, not that the task is finished."""
    text = (
        f"a bound was reached: {found.used} of {found.limit} {_UNITS[found.budget]} are used. "
        "The task may not be finished; nothing more runs in this session."
    )
    return Stop(StopKind.BOUND, found.budget, found.limit, found.used, text)


def stop_for_loop(tool: str, shown: str, threshold: int, count: int) -> Stop:
    """LD-05: the session is handed back with what was looping."""
    text = f"the agent was going in circles: {tool} {shown} came {count} times in a row. The task may not be finished."
    return Stop(StopKind.LOOP, tool, threshold, count, text)


def stop_for_resource(resource: str, limit: int, used: int) -> Stop:
    allowed, reached = (_amount(resource, number) for number in (limit, used))
    text = f"Resource limit: the sandbox exceeded its limit of {allowed} (used: {reached}). The task may not be finished."
    return Stop(StopKind.RESOURCE, resource, limit, used, text)


def _amount(resource: str, number: int) -> str:
    if resource in _BYTES:
        mebibytes = number / (1 << 20)
        return (f"{mebibytes:.0f} MiB" if mebibytes.is_integer() else f"{mebibytes:.1f} MiB") + f" of {_BYTES[resource]}"
    one, many, of = _RESOURCES.get(resource, (resource, resource, ""))
    return f"{number} {one if number == 1 else many}{of}"


def stop_by_person() -> Stop:
    text = "the developer stopped the session; what was not accepted is rejected. The task may not be finished."
    return Stop(StopKind.STOP, "stop", 0, 0, text)


def stop_for_failure(code: str, what: str) -> Stop:
    return Stop(StopKind.FAILURE, code, 0, 0, f"the session cannot go on: {what}. The task may not be finished.")


REASON_OF: dict[StopKind, Reason] = {
    StopKind.BOUND: Reason.BOUND,
    StopKind.LOOP: Reason.LOOP,
    StopKind.RESOURCE: Reason.STOPPED,
    StopKind.STOP: Reason.STOPPED,
    StopKind.FAILURE: Reason.SANDBOX,
}
