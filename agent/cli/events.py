"""``--json``: the same steps as one JSON object a line on standard output, the last of them ``{"type": "result", …}``."""
from __future__ import annotations

import codecs
import dataclasses
from collections.abc import Callable
from typing import Any

from agent.cli.jsontext import dumps
from agent.cli.terminal import OutputGone, out
from agent.loop import SilentWatcher
from agent.wiring import Report
from supervisor.errors import LemniError
from supervisor.session.request import Closing
from supervisor.types import CallState, Layer, Proposal, Result


class Events(SilentWatcher):
    """Writes each step as an event."""

    def __init__(self, on_gone: Callable[[], None]) -> None:
        self._on_gone = on_gone  # called when nobody reads any more
        self.gone: OutputGone | None = None
        self._decoders: dict[tuple[str, int], codecs.IncrementalDecoder] = {}

    def opened(self, session: str, project: bytes, opened_us: int, layers: tuple[Layer, ...]) -> None:
        self._event(
            "opened", session=session, project=project, opened_us=opened_us,
            layers=[{"name": layer.name, "on": layer.on, "fact": layer.fact} for layer in layers],
        )

    def turn(self, number: int, summary: bool) -> None:
        self._event("turn", number=number, summary=summary)

    def text(self, fragment: str) -> None:
        self._event("text", text=fragment)

    def reasoning(self, fragment: str) -> None:
        self._event("reasoning", text=fragment)

    def arguments(self, call_id: str, tool: str, fragment: str) -> None:
        self._event("arguments", call=call_id, tool=tool, text=fragment)

    def proposed(self, proposal: Proposal) -> None:
        action = dataclasses.asdict(proposal.action) if proposal.action is not None else None
        fault = proposal.fault.value if proposal.fault is not None else None
        self._event(
            "call", call=proposal.call_id, tool=proposal.tool, arguments=action, fault=fault, text=proposal.fault_text
        )

    def state(self, call_id: str, tool: str, state: CallState) -> None:
        self._event("state", call=call_id, tool=tool, state=state.value)

    def output(self, call_id: str, stream: int, data: bytes) -> None:
        decoder = self._decoders.get((call_id, stream))
        if decoder is None:  # one a stream, so that a character cut between two chunks stays one
            decoder = self._decoders[call_id, stream] = codecs.getincrementaldecoder("utf-8")("surrogateescape")
        self._event("output", call=call_id, stream=stream, text=decoder.decode(data))

    def notice(self, code: str, text: str) -> None:
        self._event("notice", code=code, text=text)

    def result(self, proposal: Proposal, result: Result) -> None:
        execution = None
        if (ended := result.execution) is not None:
            execution = {
                "code": ended.code, "signal": ended.signal, "timed_out": ended.timed_out, "killed": ended.killed,
                "duration_us": ended.duration_us, "cpu_us": ended.cpu_us, "max_rss": ended.max_rss,
                "dropped_stdout": ended.dropped_stdout, "dropped_stderr": ended.dropped_stderr,
            }
        self._event(
            "done", call=result.call_id, tool=proposal.tool, state=result.state.value,
            reason=result.reason.value if result.reason else None, text=result.text, execution=execution,
        )

    def ended(self, report: Report) -> None:
        """The last event of a session that was opened."""
        closing = report.closing
        if report.error is not None:
            self._error(report.error)
        self._event(
            "result", answer=report.answer, exit=report.exit, session=closing.session, ending=report.ending.value,
            reason=closing.reason,
            refusals=[
                {
                    "call": result.call_id, "tool": proposal.tool,
                    "reason": result.reason.value if result.reason else None, "text": result.text,
                }
                for proposal, result in report.refused
            ],
            changes=change_counts(closing),
        )

    def refused(self, error: LemniError, code: int) -> None:
        """The last events of a session that could not be opened."""
        self._error(error)
        self._event("result", answer=None, exit=code, session=None, ending="error", reason=error.code)

    def tick(self) -> None:
        """Nothing to redraw."""

    def close(self) -> None:
        """Nothing is open."""

    def _error(self, error: LemniError) -> None:
        self._event("error", code=error.code, problem=str(error), fault=error.fault.value, remedy=error.remedy)

    def _event(self, kind: str, **fields: Any) -> None:
        if self.gone is not None:
            return
        try:
            out(dumps({"type": kind, **fields}))
        except OutputGone as gone:
            self.gone = gone
            self._on_gone()


def change_counts(closing: Closing) -> dict[str, int] | None:
    """Numbers of a session's changes; None when none were kept."""
    if closing.changes is None:
        return None
    return {"files": closing.files, "added": closing.added, "removed": closing.removed}
