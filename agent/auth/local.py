"""Who the person is on a workstation: the name that the host's name service gives to the real uid (DA-01, O-31).

``USER``, ``LOGNAME`` and ``HOME`` are not asked: whoever starts the program writes them.
"""
from __future__ import annotations

import os
import pwd

from agent.errors import IdentityError
from supervisor.types import Identity


def identify(uid: int | None = None) -> Identity:
    """The identity of ``uid`` (the real uid by default). ``IdentityError`` where the name service does not know it."""
    if uid is None:
        uid = os.getuid()
    try:
        name = pwd.getpwuid(uid).pw_name
    except KeyError:
        name = ""
    if not name:
        raise IdentityError(
            "resolving who you are", on=f"uid {uid}", why="the host's name service has no entry for it",
            remedy="ask the administrator for an account (getent passwd must list it), or check the directory's connection",
        )
    return Identity(name, uid, "nss")
