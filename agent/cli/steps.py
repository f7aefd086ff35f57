"""The steps of a session on standard error, as they happen, for a person.

Everything that comes from the model, a file or a command passes ``visible`` first. Long outputs are shown by their first
lines and their last few, with the number of those between; the model's own view is cut elsewhere, by other rules.
"""
from __future__ import annotations

import dataclasses
import time

from agent.cli.flow import HEAD_LINES, TAIL_LINES, Output, Words
from agent.cli.numbers import counted, milliseconds, size
from agent.cli.terminal import BOLD, CYAN, DIM, GREEN, RED, YELLOW, Status, err, paint
from agent.cli.visible import deceptive, visible
from agent.loop import SilentWatcher
from supervisor.types import (
    Action,
    BashCall,
    CallState,
    EditCall,
    Execution,
    Layer,
    ListCall,
    Proposal,
    ReadCall,
    Result,
    SearchCall,
    WriteCall,
)

QUIET_SECONDS = 1.0  # after this long without news, the status line says what is waited for


class Steps(SilentWatcher):
    """Prints. One object a session; ``tick`` is called about once a second for the status line."""

    def __init__(self) -> None:
        self._status = Status()
        self._since = time.monotonic()
        self._waiting = ""
        self._words = Words()
        self._told: set[str] = set()
        self._refusal = ""
        self._outputs: dict[str, Output] = {}
        self._arguments: dict[str, tuple[str, str, int]] = {}  # call: tool, start of its text, characters so far

    def opened(self, session: str, project: bytes, opened_us: int, layers: tuple[Layer, ...]) -> None:
        on = sum(layer.on for layer in layers)
        off = ", ".join(layer.name for layer in layers if not layer.on)
        err(
            paint("session ", DIM) + session
            + paint(f"  sandbox opened in {milliseconds(opened_us)}, {counted(on, 'layer')} on", DIM)
            + paint(f"; off: {off}" if off else "", DIM)
        )

    def notice(self, code: str, text: str) -> None:
        if code.startswith("refused_"):  # of the call at hand: said where it ends
            self._refusal = text
            return
        if text in self._told:  # a session's account repeats what it announced
            return
        self._told.add(text)
        self._line(paint("! ", YELLOW) + visible(text, lines=False) + paint(f" [{code}]", DIM))

    def turn(self, number: int, summary: bool) -> None:
        self._words = Words()
        self._arguments.clear()
        self._wait("waiting for the model's summary" if summary else "waiting for the model")

    def text(self, fragment: str) -> None:
        self._status.clear()
        self._since = time.monotonic()
        self._words.write(fragment)

    def reasoning(self, fragment: str) -> None:
        self._wait("the model is thinking", keep=True)

    def arguments(self, call_id: str, tool: str, fragment: str) -> None:
        """Fragments of a call that is not complete: the start of its text and its size, on the status line."""
        self._words.end()
        known, start, size = self._arguments.get(call_id, (tool, "", 0))
        start = start if len(start) > 200 else start + fragment
        self._arguments[call_id] = (known or tool, start, size + len(fragment))
        tool, start, size = self._arguments[call_id]
        self._status.show(f"… {visible(tool, lines=False)} {size} characters: {visible(start, lines=False)}")

    def proposed(self, proposal: Proposal) -> None:
        self._words.end()
        if proposal.action is None:
            fault = proposal.fault.value if proposal.fault else "refused"
            self._line(paint("✗ ", RED, BOLD) + visible(proposal.tool, lines=False) + f": {fault}")
            self._block(visible(proposal.fault_text))
            return
        head, body = described(proposal.action)
        self._line(paint("▸ ", CYAN, BOLD) + paint(proposal.tool, BOLD) + (" " + head if head else ""))
        for line in shortened(body):
            err("  " + line)
        if any(deceptive(text) for text in dataclasses.astuple(proposal.action) if isinstance(text, str)):
            self._line(paint("! characters that a terminal does not show are written <U+…>", YELLOW))

    def state(self, call_id: str, tool: str, state: CallState) -> None:
        if state is CallState.CALLING:
            self._wait(f"{visible(tool, lines=False)} runs")

    def output(self, call_id: str, stream: int, data: bytes) -> None:
        self._status.clear()
        self._since = time.monotonic()
        self._outputs.setdefault(call_id, Output()).write(stream, data)

    def result(self, proposal: Proposal, result: Result) -> None:
        self._status.clear()
        self._waiting = ""
        refusal, self._refusal = self._refusal, ""
        if (output := self._outputs.pop(result.call_id, None)) is not None:
            output.end()
        if result.execution is not None:
            err("  " + paint("└ ", DIM) + ended(result.execution))
        if result.state is CallState.DONE:
            if result.execution is None:
                err("  " + paint("└ ", DIM) + paint(_came_of(proposal.action, result.text), DIM))
            return
        if proposal.action is None and result.state is CallState.ERRORED:  # said where it was proposed
            return
        reason = result.reason.value if result.reason else result.state.value
        if result.execution is None or result.state is CallState.CANCELED:
            first = refusal or result.text.strip().partition("\n")[0]
            word = "refused" if result.state is CallState.CANCELED else "failed"
            err("  " + paint("└ ", DIM) + paint(f"{word} [{reason}] ", RED) + visible(first, lines=False))

    def tick(self) -> None:
        """Say what is waited for, once it takes long enough to wonder."""
        quiet = time.monotonic() - self._since
        if self._waiting and quiet >= QUIET_SECONDS:
            self._status.show(f"… {self._waiting}, {int(quiet)} s")

    def close(self) -> None:
        """End what is open on the screen."""
        self._words.end()
        self._status.clear()

    @property
    def streamed(self) -> bool:
        """Whether the text of the last turn is on the screen already."""
        return self._words.any

    def _wait(self, what: str, *, keep: bool = False) -> None:
        if not keep or what != self._waiting:
            self._since = time.monotonic()
        self._waiting = what

    def _line(self, text: str) -> None:
        self._words.end()
        self._status.clear()
        err(text)

    def _block(self, text: str) -> None:
        for line in text.splitlines():
            err("  " + paint("│ ", DIM) + line)


def described(action: Action) -> tuple[str, list[str]]:
    """A call in words: the rest of its headline, and the lines below it, in full and visible."""
    match action:
        case ReadCall(path, offset):
            return visible(path, lines=False) + (f" from line {offset}" if offset > 1 else ""), []
        case ListCall(path):
            return visible(path, lines=False), []
        case SearchCall(pattern, path, glob):
            names = f" in names like {visible(glob, lines=False)}" if glob else ""
            return f'"{visible(pattern, lines=False)}" in {visible(path, lines=False)}{names}', []
        case WriteCall(path, content):
            return visible(path, lines=False), [paint("+ " + line, GREEN) for line in _lines(content)]
        case EditCall(path, old, new, everywhere):
            removed = [paint("- " + line, RED) for line in _lines(old)]
            added = [paint("+ " + line, GREEN) for line in _lines(new)]
            return visible(path, lines=False) + (" everywhere" if everywhere else ""), removed + added
        case BashCall(command, _):
            first, *more = visible(command).split("\n")
            return first, more


def shortened(lines: list[str]) -> list[str]:
    """The lines, or their first and last ones with the number of those between."""
    if len(lines) <= HEAD_LINES + TAIL_LINES:
        return lines
    left = len(lines) - HEAD_LINES - TAIL_LINES
    return [*lines[:HEAD_LINES], paint(f"… {counted(left, 'more line')}", DIM), *lines[-TAIL_LINES:]]


def ended(execution: Execution) -> str:
    """How a command ended, what it cost, and what was not kept."""
    if execution.timed_out:
        how = paint("timed out", RED)
    elif execution.signal is not None:
        how = paint(f"signal {execution.signal}", RED)
    else:
        how = paint(f"exit {execution.code}", GREEN if execution.code == 0 else RED)
    dropped = execution.dropped_stdout + execution.dropped_stderr
    return how + paint(
        f" · {milliseconds(execution.duration_us)} · CPU {milliseconds(execution.cpu_us)}"
        f" · {size(execution.max_rss)} resident" + (f" · {size(dropped)} of output dropped" if dropped else ""),
        DIM,
    )


def _lines(text: str) -> list[str]:
    return visible(text).removesuffix("\n").split("\n")


def _came_of(action: Action | None, text: str) -> str:
    """What a file tool did, in its own words where they are words (``[no match]``), else how much it read."""
    if isinstance(action, WriteCall | EditCall):
        return visible(text, lines=False)
    if text.startswith("[") and text.endswith("]") and "\n" not in text:
        return visible(text[1:-1], lines=False)
    lines = text.count("\n") + (not text.endswith("\n") if text else 0)
    return "1 line" if lines == 1 else f"{lines} lines"
