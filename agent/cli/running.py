"""The run behind ``lemni exec``: the command's streams become ours, its end becomes our exit code."""
from __future__ import annotations

import codecs
import errno
import os
import signal
import sys
from collections.abc import Sequence

import trio

from agent.cli import problems, signals
from agent.cli.harden import harden
from agent.cli.numbers import size
from agent.cli.request import session_request
from agent.cli.summary import summary
from agent.cli.terminal import DIM, RED, YELLOW, OutputGone, err, out, paint, silence
from agent.cli.visible import visible
from supervisor.session.exec import run_exec
from supervisor.session.request import OWN_FAILURE, ExecOutcome, SessionRequest
from supervisor.types import CallState


def run(words: Sequence[str], timeout: float | None) -> int:
    """Run the command and return the exit code of ``lemni``."""
    harden()
    relay = Relay()
    received: list[signal.Signals] = []
    try:
        request = session_request("exec")
        outcome = trio.run(_run, request, [os.fsencode(word) for word in words], relay, timeout, received)
    except Exception as error:
        problems.tell(error)
        return OWN_FAILURE
    relay.end()
    if outcome is None:
        err(paint("changes  ", DIM) + f"none kept: ended by {received[0].name}")
        return signals.EXITS[received[0]]
    if outcome.refusal is not None:
        err(paint("refused: ", RED) + visible(outcome.refusal, lines=False))
    for notice in outcome.closing.notices:
        relay.notice("session", notice)
    if outcome.execution is not None and outcome.execution.timed_out:
        err(paint("the command ran longer than allowed and was ended", RED)
            + " (--timeout lowers the bound, LEMNISCATE_COMMAND_MAX_SECONDS raises it)")
    if outcome.closing.stop is not None:
        err(paint("stopped: ", RED) + visible(outcome.closing.stop.text, lines=False))
    dropped = 0 if outcome.execution is None else outcome.execution.dropped_stdout + outcome.execution.dropped_stderr
    if dropped:
        err(paint(f"{size(dropped)} of output beyond the bound dropped", RED))
    if outcome.closing.changes is not None and outcome.closing.changes.entries:
        summary(outcome.closing)
    if relay.gone is not None and relay.gone.errno != errno.EPIPE:  # a reader that has enough changes nothing
        problems.gone(relay.gone)
        return OWN_FAILURE
    return outcome.exit


async def _run(
    request: SessionRequest,
    argv: list[bytes],
    relay: Relay,
    seconds: float | None,
    received: list[signal.Signals],
) -> ExecOutcome | None:
    """None when a signal ended it: the sandbox is destroyed, nothing is kept."""
    outcome: ExecOutcome | None = None

    async with trio.open_nursery() as nursery:

        def on_signal(number: signal.Signals) -> None:
            received.append(number)
            nursery.cancel_scope.cancel()

        await nursery.start(signals.watch, on_signal)
        outcome = await run_exec(request, argv, relay, seconds, lambda: signals.OUTCOMES[received[0]])
        nursery.cancel_scope.cancel()
    return outcome


class Relay:
    """Passes the command's bytes on: exactly, or made visible where the stream is a terminal."""

    def __init__(self) -> None:
        self._told: set[str] = set()
        self.gone: OutputGone | None = None  # the first time that a stream of ours took no more
        self._streams = {1: sys.stdout, 2: sys.stderr}
        self._decoders = {
            number: codecs.getincrementaldecoder("utf-8")("surrogateescape")
            for number, stream in self._streams.items()
            if stream.isatty()
        }

    def state(self, call_id: str, tool: str, state: CallState) -> None:
        """The command is the only call: its states need no words."""

    def output(self, call_id: str, stream: int, data: bytes) -> None:
        if (decoder := self._decoders.get(stream)) is not None:
            self._show(stream, visible(decoder.decode(data)))
            return  # a terminal that is gone sends SIGHUP
        target = self._streams[stream]
        try:
            target.buffer.write(data)
            target.buffer.flush()
        except (OutputGone, OSError) as error:
            silence(target)
            self.gone = self.gone or OutputGone(error.errno)
            raise BrokenPipeError from None  # the command learns it as it would outside; its changes are kept

    def notice(self, code: str, text: str) -> None:
        if code.startswith("refused_"):  # of the command itself: said at the end, in words for a person
            return
        if text in self._told:  # a session's account repeats what it announced
            return
        self._told.add(text)
        err(paint("! ", YELLOW) + visible(text, lines=False))

    def end(self) -> None:
        """What a cut character at the end of a stream left."""
        for number, decoder in self._decoders.items():
            self._show(number, visible(decoder.decode(b"", final=True)))

    def _show(self, stream: int, text: str) -> None:
        try:
            (out if stream == 1 else err)(text, end="")
        except OutputGone as gone:
            self.gone = self.gone or gone
