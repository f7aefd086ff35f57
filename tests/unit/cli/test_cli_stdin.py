"""Standard input beside a prompt is read when it is data, and never waited for in vain."""
from __future__ import annotations

import os
import pty
import socket
from pathlib import Path

import pytest

from agent.cli import stdin


def test_a_pipe_is_read_to_its_end() -> None:
    reader, writer = os.pipe()
    os.write(writer, b"some data")
    os.close(writer)
    try:
        assert stdin.read(reader) == stdin.Piped(b"some data")
    finally:
        os.close(reader)


def test_a_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_bytes(b"\xff\n")
    with path.open("rb") as file:
        assert stdin.read(file.fileno()) == stdin.Piped(b"\xff\n")


def test_too_much_is_cut_and_told(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_bytes(b"x" * (stdin.LIMIT + 5))
    with path.open("rb") as file:
        piped = stdin.read(file.fileno())
    assert piped is not None
    assert len(piped.data) == stdin.LIMIT
    assert "the rest was not read" in piped.notice


def test_exactly_the_limit_is_not_too_much(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_bytes(b"x" * stdin.LIMIT)
    with path.open("rb") as file:
        assert stdin.read(file.fileno()) == stdin.Piped(b"x" * stdin.LIMIT)


def test_a_silent_pipe_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stdin, "PATIENCE", 0.01)
    reader, writer = os.pipe()
    try:
        assert stdin.read(reader) is None
        os.write(writer, b"half")
        piped = stdin.read(reader)
        assert piped is not None
        assert piped.data == b"half"
        assert "silent" in piped.notice
    finally:
        os.close(reader)
        os.close(writer)


def test_anything_else_is_left_alone() -> None:
    with open(os.devnull, "rb") as null:
        assert stdin.read(null.fileno()) is None
    one, other = socket.socketpair()
    with one, other:
        assert stdin.read(one.fileno()) is None
    leader, follower = pty.openpty()
    try:
        assert stdin.read(follower) is None
    finally:
        os.close(leader)
        os.close(follower)
    assert stdin.read(9999) is None
