"""The composition root: settings, a model provider and a session become one run.

This is the only module that holds a model key and a session at once, and it hands neither to the other: the provider gets
the key, the session gets proposals. Imports of a provider happen when one is chosen, so that a command that asks no model does
not pay for an HTTP client.
"""
from __future__ import annotations

import enum
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import trio

from agent.loop import Ended, Ending, Loop, Watcher
from agent.providers.base import Provider
from agent.tools.catalogue import Catalogue
from supervisor.errors import LemniError
from supervisor.session.live import Session, open_session
from supervisor.session.request import Approver, Closing, Outcome, RefuseAll, SessionRequest
from supervisor.settings.config import ModelConfig
from supervisor.settings.load import load_config
from supervisor.types import Proposal, Result


@dataclass(frozen=True, slots=True)
class PromptRequest:
    """One prompt. ``data`` is what was piped in beside it: untrusted. ``model`` is a configured name; None is the first."""

    prompt: str
    session: SessionRequest
    model: str | None = None
    data: bytes | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """What a run came to. ``error`` is set where ``ending`` is ERROR; ``closing`` is the session's own account."""

    answer: str
    ending: Ending
    exit: int
    closing: Closing
    error: LemniError | None
    refused: tuple[tuple[Proposal, Result], ...]
    turns: int
    sent: int
    received: int


class _Wish(enum.Enum):
    END = "end"
    HALT = "halt"


class Control:
    """The signals of one run: what a person may do to it from outside. Every method is synchronous and idempotent, may be
    called at any moment from the same thread, and never waits; the first wish to end wins."""

    def __init__(self) -> None:
        self.outcome: Outcome | None = None
        self._wish: _Wish | None = None
        self._wished = trio.Event()
        self._loop: Loop | None = None
        self._closing: Session | None = None

    def interrupt(self) -> None:
        """Give up the current turn: the running command is killed, calls that have not run are canceled."""
        if self._loop is not None:
            self._loop.interrupt()

    def end(self, outcome: Outcome) -> None:
        """End the run at once: ``INTERRUPTED``, ``TERMINATED`` or ``HANGUP``; writes are rejected."""
        if self._wish is None:
            self._wish, self.outcome = _Wish.END, outcome
            self._wished.set()
            if self._closing is not None:
                self._closing.withdraw(outcome)

    def halt(self) -> None:
        """The developer's stop (SR-02): at once, writes rejected, exit 3."""
        if self._wish is None:
            self._wish = _Wish.HALT
            self._wished.set()

    def closing(self, session: Session) -> None:
        """From here on the run is over and its session closes: a wish to end is about what it wrote."""
        self._closing = session

    async def obey(self, loop: Loop, session: Session, scope: trio.CancelScope) -> None:
        """Carry the wishes out for one run; ends with it."""
        self._loop = loop
        await self._wished.wait()
        if self._wish is _Wish.HALT:
            await session.halt()
        scope.cancel()


def open_provider(model: ModelConfig) -> AbstractAsyncContextManager[Provider]:
    """The provider of a configured model. ``SettingError`` and ``SecretError`` before anything is started."""
    if model.provider == "scripted":
        from agent.providers.scripted import ScriptedProvider, load_script

        return _given(ScriptedProvider(model.name, load_script(Path(model.script or ""))))
    from agent.providers.endpoint import Endpoint
    from agent.providers.openai import open_openai
    from agent.providers.secret import secret_from_environment, secret_from_file

    key = None
    if model.api_key_env is not None:
        key = secret_from_environment(model.api_key_env)
    elif model.api_key_file is not None:
        key = secret_from_file(Path(model.api_key_file))
    return open_openai(Endpoint(model.name, model.api_base or "", model.model or "", key, model.proxy))


@asynccontextmanager
async def _given(provider: Provider) -> AsyncIterator[Provider]:
    yield provider


async def run_prompt(
    request: PromptRequest, watcher: Watcher, approver: Approver | None = None, control: Control | None = None
) -> Report:
    """Open a session, run one prompt in it, close it.

    Raises ``LemniError`` while nothing has been started: settings, a key, a host that cannot make the sandbox. From
    then on what happens comes back as a report, a failing model included, and the session has been closed in order.
    """
    control = control or Control()
    config = request.session.config or load_config(request.session.files)
    # The provider is opened first: a configuration that cannot work starts no session.
    async with open_provider(config.model(request.model)) as provider:
        opening = replace(request.session, config=config)
        async with open_session(opening, approver or RefuseAll(), watcher) as session:
            watcher.opened(session.id, session.project_root, session.opened_us, session.layers)
            loop = Loop(
                session, provider, Catalogue(session.catalogue), watcher,
                continue_after_rejection=session.bounds.continue_after_rejection,
            )
            return await _run(request, session, loop, control)


async def _run(request: PromptRequest, session: Session, loop: Loop, control: Control) -> Report:
    ended: Ended | None = None
    failure: Exception | None = None
    data = None if request.data is None else request.data.decode(errors="surrogateescape")
    async with trio.open_nursery() as nursery:
        scope = trio.CancelScope()
        nursery.start_soon(control.obey, loop, session, scope)
        with scope:
            try:
                ended = await loop.run(request.prompt, data)
            except Exception as failed:
                failure = failed  # looked at outside: a nursery would wrap it into a group
        nursery.cancel_scope.cancel()
    if failure is not None and not isinstance(failure, LemniError):
        raise failure  # a bug: the session closes as an error on the way out
    if ended is None:
        ended = Ended(Ending.ERROR if failure else Ending.STOPPED if session.stop else Ending.INTERRUPTED, "")
    error = failure or ended.error
    control.closing(session)
    closing = await session.finish(_outcome(ended, control))
    if control.outcome is not None and closing.reason == control.outcome.value:  # it may have come while it closed
        ended = replace(ended, ending=Ending.INTERRUPTED, answer="")
    return Report(
        ended.answer, ended.ending, closing.exit, closing, error, ended.refused, ended.turns, ended.sent, ended.received
    )


def _outcome(ended: Ended, control: Control) -> Outcome:
    if control.outcome is not None:
        return control.outcome
    if ended.ending is Ending.ERROR:
        return Outcome.ERROR
    if ended.ending is Ending.INTERRUPTED:
        return Outcome.INTERRUPTED
    return Outcome.DONE
