"""What a session of the command line is asked for: where the person stands, and who they are.

Somebody whom the host's name service does not know gets no session; that they asked is on record all the same (JR-02).
"""
from __future__ import annotations

import os

import trio

from agent.auth.local import identify
from agent.cli.store import standing
from agent.errors import IdentityError
from supervisor.session.live import record_refusal
from supervisor.session.request import SessionRequest
from supervisor.types import Identity


def session_request(surface: str, mode: str = "agent") -> SessionRequest:
    """A request for a session. Raises ``IdentityError``, journalled, and what ``standing`` raises."""
    directory = standing()
    try:
        identity = identify()
    except IdentityError as unknown:
        nobody = SessionRequest(directory, Identity("", os.getuid(), "nss"), surface=surface, interactive=False, mode=mode)
        trio.run(record_refusal, nobody, unknown)
        raise
    return SessionRequest(directory, identity, surface=surface, interactive=False, mode=mode)
