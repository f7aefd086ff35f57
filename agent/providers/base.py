"""What every model provider is: one exchange at a time, its events handed over as they come.

Events go to a plain function rather than through an asynchronous generator: a provider needs time-outs around its reads, and a
cancel scope must not span a ``yield``.
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from agent.calls import CallDelta
from agent.context import Conversation


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A piece of the assistant's words."""

    text: str


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """A piece of reasoning that the server sends apart. It is shown, and kept out of the history."""

    text: str


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens as the server counts them; zero where it does not say."""

    prompt: int
    completion: int


@dataclass(frozen=True, slots=True)
class Done:
    """The end of the stream. ``finish`` is the server's reason (``stop``, ``tool_calls``, ``length``, …), or empty.

    ``cut``: the stream ended before the server said that it was complete.
    """

    finish: str
    cut: bool = False


ModelEvent = TextDelta | ReasoningDelta | CallDelta | Usage | Done


@dataclass(slots=True)
class Meter:
    """Bytes of bodies sent and received in one exchange, its retries included; right at any moment, also after an error.

    Once both together come to ``limit``, ``spent`` is called: whoever owns the exchange gives it up. Providers only count.
    """

    sent: int = 0
    received: int = 0
    limit: int | None = None
    spent: Callable[[], None] = lambda: None

    def send(self, size: int) -> None:
        self.sent += size
        self._look()

    def receive(self, size: int) -> None:
        self.received += size
        self._look()

    def _look(self) -> None:
        if self.limit is not None and self.sent + self.received >= self.limit:
            self.spent()


class Provider(Protocol):
    """One configured model."""

    @property
    def name(self) -> str: ...

    async def exchange(
        self, conversation: Conversation, tools: list[dict[str, Any]], deliver: Callable[[ModelEvent], None], meter: Meter
    ) -> None:
        """One model turn. Delivers events, the last of them ``Done``; raises ``ModelError``. ``tools`` empty: none offered."""
