"""Slots: never two holders, used again by their own, taken back from the dead with what they left."""
from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from supervisor.errors import HostUnfit
from supervisor.sandbox import slots as module
from supervisor.sandbox.slots import Slots

ROOT = Path(__file__).parents[3]


@pytest.fixture
def two(tmp_path: Path) -> tuple[Slots, Slots]:
    return Slots(tmp_path / "slots"), Slots(tmp_path / "slots")


def test_two_holders_never_have_the_same(two: tuple[Slots, Slots]) -> None:
    one, other = two
    numbers = [slots.take().number for slots in (one, other, one, other)]
    assert sorted(numbers) == [0, 1, 2, 3]
    one.close()
    other.close()


def test_a_slot_that_was_given_back_is_used_again(two: tuple[Slots, Slots]) -> None:
    one, other = two
    slot = one.take()
    one.give(slot)
    assert one.take().number == slot.number
    assert other.take().number != slot.number
    one.close()
    other.close()


def test_names_differ_from_directory_to_directory(tmp_path: Path) -> None:
    one, other = Slots(tmp_path / "a"), Slots(tmp_path / "b")
    assert one.take().name != other.take().name
    one.close()
    other.close()


def test_the_living_are_not_abandoned(two: tuple[Slots, Slots]) -> None:
    one, other = two
    one.take()
    assert list(other.abandoned()) == []
    assert list(one.abandoned()) == []
    one.close()


def test_what_the_dead_left_is_told_and_nothing_else(tmp_path: Path) -> None:
    script = (
        "import os, sys; sys.path.insert(0, sys.argv[2])\nfrom pathlib import Path\n"
        "from supervisor.sandbox.slots import Slots\n"
        "slots = Slots(Path(sys.argv[1])); slot = slots.take()\n"
        "slots.record(slot, ('/sys/x/' + slot.name, '/etc', 'relative/' + slot.name)); os._exit(0)\n"
    )
    subprocess.run([sys.executable, "-c", script, tmp_path / "slots", ROOT], check=True)
    slots = Slots(tmp_path / "slots")
    (left,) = slots.abandoned()
    assert left.left == (f"/sys/x/{left.name}",)
    assert list(slots.abandoned()) == []


def test_whoever_takes_a_dead_ones_slot_is_told_too(tmp_path: Path) -> None:
    first = Slots(tmp_path / "slots")
    slot = first.take()
    first.record(slot, (f"/sys/x/{slot.name}",))
    for fd in first._held.values():
        os.close(fd)  # as death does: the lock goes, the file stays
    second = Slots(tmp_path / "slots")
    assert second.take().left == (f"/sys/x/{slot.name}",)
    second.close()


def test_there_is_an_end_of_slots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SLOTS", 2)
    slots = Slots(tmp_path / "slots")
    slots.take()
    slots.take()
    with pytest.raises(HostUnfit):
        slots.take()
    slots.close()


def test_the_same_path_on_another_file_system_gives_another_name(tmp_path: Path) -> None:
    """Two containers with a /run of their own may share the hierarchy of groups."""
    place = tmp_path / "slots"
    first = Slots(place).take()
    place.rename(tmp_path / "elsewhere")
    second = Slots(place).take()
    assert (first.number, second.number) == (0, 0)
    assert first.name != second.name
