"""Where a model is and how long to wait for it, as a value; checked once, before anything is sent there."""
from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

from agent.providers.secret import Secret
from supervisor.errors import SettingError
from supervisor.settings.config import is_plain_address


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where the model is, and how long to wait for it. Durations in seconds.

    ``first_byte`` is long because a local server may read a long context for minutes before it says a word; ``idle`` is the
    silence between two reads after that (keep-alive comments break it). ``max_answer`` is in bytes.
    """

    name: str
    api_base: str
    model: str
    key: Secret | None = None
    proxy: str | None = None
    connect: float = 10.0
    first_byte: float = 600.0
    idle: float = 120.0
    delays: tuple[float, ...] = (0.5, 1.5)
    max_answer: int = 64 * 1024 * 1024

    @property
    def url(self) -> str:
        return self.api_base.rstrip("/") + "/chat/completions"

    def checked_scheme(self) -> str:
        """The scheme of an address that is one: with a host and a real port, without a user, a query or a fragment.

        ``SettingError`` otherwise: a key in an address would be shown wherever the address is.
        """
        if not is_plain_address(self.api_base):
            raise SettingError(
                "reading apiBase", on=self.name, why="it is no address, or has a user, a query or a fragment",
                remedy="write it as http(s)://HOST[:PORT]/v1, and the key under apiKeyEnv or apiKeyFile",
            )
        return urlsplit(self.api_base).scheme
