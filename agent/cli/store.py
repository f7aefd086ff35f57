"""What the commands about stored sessions share: the store, this directory's project, and a session by its prefix."""
from __future__ import annotations

import os
from datetime import datetime

from supervisor.errors import ProjectError
from supervisor.workspace.project import Project, find_project
from supervisor.workspace.store import SessionRecord, Store


def here() -> Project:
    """The project that the person stands in. ProjectError where there is none."""
    return find_project(standing())


def standing() -> bytes:
    """The directory that the person stands in. ProjectError where it is no more."""
    try:
        return os.getcwdb()
    except OSError as error:
        raise ProjectError(
            "finding the directory that you stand in", errno=error.errno, code="project_unreadable",
            remedy="it was removed or moved: go to one that exists",
        ) from None


def chosen(store: Store, prefix: str | None) -> SessionRecord:
    """The session of this prefix, or this repository's latest one whose changes nobody decided on. StoreError."""
    return store.find(prefix, here().id)


def when(microseconds: int) -> str:
    """A time for reading, in the local zone: ``2026-03-01 14:05``."""
    return datetime.fromtimestamp(microseconds / 1_000_000).astimezone().strftime("%Y-%m-%d %H:%M")
