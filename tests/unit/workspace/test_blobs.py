"""Blobs: what nobody wants any more is neither kept nor given."""
from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from supervisor.workspace.blobs import Blobs


def test_abandoned_blobs_take_and_give_nothing_more(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path / "blobs")
    (tmp_path / "file").write_bytes(b"content")
    fd = os.open(tmp_path / "file", os.O_RDONLY)
    try:
        kept = blobs.put(fd)
        blobs.abandon()
        for act in (lambda: blobs.put(fd), lambda: blobs.read(kept.sha256)):
            with pytest.raises(OSError, match="cancel") as refused:
                act()
            assert refused.value.errno == errno.ECANCELED
    finally:
        os.close(fd)
    blobs.discard()
    assert not blobs.directory.exists()
