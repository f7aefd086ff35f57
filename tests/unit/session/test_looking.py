"""The look for what cannot be read: told when it is done, and at the session's end what there is by then."""
from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
import trio
from trio.testing import MockClock

from supervisor.session import looking as module
from supervisor.session.looking import Looking


class Told:
    def __init__(self) -> None:
        self.texts: list[str] = []

    async def __call__(self, text: str) -> None:
        await trio.lowlevel.checkpoint()
        self.texts.append(text)


async def test_what_is_found_is_told_when_the_look_is_done() -> None:
    looking, told = Looking(), Told()
    await looking.run(lambda going_on: "found" if going_on() else "ended", told)
    assert told.texts == ["found"]
    await looking.finish()
    assert told.texts == ["found"]


async def test_nothing_found_is_nothing_told() -> None:
    looking, told = Looking(), Told()
    await looking.run(lambda _: None, told)
    assert told.texts == []


async def test_a_session_that_ends_first_is_told_what_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GRACE", 0)
    monkeypatch.setattr(module, "PATIENCE", 60)  # not waited for
    looking, told = Looking(), Told()
    begun = threading.Event()

    def look(going_on: Callable[[], bool]) -> str:
        begun.set()
        while going_on():
            pass
        return "so far"

    async with trio.open_nursery() as nursery:
        nursery.start_soon(looking.run, look, told)
        await trio.to_thread.run_sync(begun.wait)
        await looking.finish()
        assert told.texts == ["so far"]


async def test_a_look_that_a_disk_holds_up_holds_up_nobody(autojump_clock: MockClock) -> None:
    looking, told = Looking(), Told()
    disk = threading.Event()

    def look(_: Callable[[], bool]) -> None:
        disk.wait()

    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(looking.run, look, told)
            await trio.testing.wait_all_tasks_blocked()
            await looking.finish()
    finally:
        disk.set()
    assert told.texts == []


async def test_one_that_was_never_needed_is_finished_at_once() -> None:
    await Looking().finish()
