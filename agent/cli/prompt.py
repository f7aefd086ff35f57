"""``lemni -p``: one task from its prompt to its diff, for a person or a script (HV-10, SE-27…31)."""
from __future__ import annotations

import signal
from dataclasses import dataclass, field

import click
import trio

from agent.cli import problems, signals, stdin
from agent.cli.events import Events
from agent.cli.harden import harden
from agent.cli.request import session_request
from agent.cli.steps import Steps
from agent.cli.summary import summary
from agent.cli.terminal import BOLD, RED, OutputGone, err, one_screen, out, paint
from agent.cli.visible import visible
from agent.wiring import Control, PromptRequest, Report, run_prompt
from supervisor.errors import LemniError
from supervisor.session.request import Outcome


@dataclass(slots=True)
class Ended:
    """What a run came to: a report, or the error that kept it from starting."""

    report: Report | None = None
    error: LemniError | None = None
    signals: list[signal.Signals] = field(default_factory=list)


def run(prompt: str, *, model: str | None, mode: str, as_json: bool) -> int:
    """Run the task and return the exit code."""
    harden()
    piped = stdin.read()
    if not prompt.strip() and piped is None:
        raise click.UsageError("the prompt is empty")
    control = Control()
    watcher = Events(lambda: control.end(Outcome.HANGUP)) if as_json else Steps()
    if piped is not None and piped.notice:
        watcher.notice("stdin", piped.notice)
    try:
        session = session_request("print", mode)
    except LemniError as error:
        watcher.close()
        return _not_started(Ended(error=error), watcher)
    request = PromptRequest(prompt=prompt, session=session, model=model, data=piped.data if piped else None)
    ended = trio.run(_run, request, watcher, control)
    watcher.close()
    if ended.report is None:
        assert ended.error is not None
        return _not_started(ended, watcher)
    if isinstance(watcher, Events):
        watcher.ended(ended.report)
        gone = watcher.gone
    else:
        gone = _show(ended.report, watcher)
    return ended.report.exit if gone is None else problems.gone(gone)


async def _run(request: PromptRequest, watcher: Steps | Events, control: Control) -> Ended:
    ended = Ended()

    def on_signal(number: signal.Signals) -> None:
        ended.signals.append(number)
        control.end(signals.OUTCOMES[number])

    async with trio.open_nursery() as nursery:
        await nursery.start(signals.watch, on_signal)
        nursery.start_soon(_tick, watcher)
        try:
            ended.report = await run_prompt(request, watcher, control=control)
        except LemniError as error:
            ended.error = error
        nursery.cancel_scope.cancel()
    return ended


async def _tick(watcher: Steps | Events) -> None:
    while True:
        await trio.sleep(1)
        watcher.tick()


def _not_started(ended: Ended, watcher: Steps | Events) -> int:
    assert ended.error is not None
    code = signals.EXITS[ended.signals[0]] if ended.signals else problems.ERROR
    problems.show(ended.error)
    if isinstance(watcher, Events):
        watcher.refused(ended.error, code)
    return code


def _show(report: Report, watcher: Steps) -> OutputGone | None:
    """The answer on standard output, unless it stands on the same screen already; how it ended on standard error.

    Where the answer cannot be written the rest is said all the same: it tells where the changes are.
    """
    gone = None
    if report.answer and not (one_screen() and watcher.streamed):
        try:
            out(visible(report.answer).rstrip())
        except OutputGone as error:
            gone = error
    if report.error is not None:
        problems.show(report.error)
    closing = report.closing
    if closing.stop is not None:
        err(paint("stopped: ", RED, BOLD) + visible(closing.stop.text, lines=False))
    for proposal, result in report.refused:
        reason = result.reason.value if result.reason else result.state.value
        err(paint("refused: ", RED) + f"{visible(proposal.tool, lines=False)} [{reason}]")
    for notice in closing.notices:
        watcher.notice("session", notice)
    summary(closing)
    return gone
