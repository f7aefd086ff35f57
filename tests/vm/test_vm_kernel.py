"""The kernel tests again, under Debian's kernel: limits that v2 enforces, and nothing left of a killed supervisor.

``make test`` runs the ones that unified control groups and 6.1 could break; ``make test-long`` runs them all.
"""
from __future__ import annotations

import pytest

from support.vm import TREE, Ended, Machine
from support.vm_people import DELEGATED, LEFT, PLAIN, ROOT, Person

pytestmark = pytest.mark.kernel
RESOURCES = "tests/escape/test_escape_resources.py"
GROUPS = "tests/kernel/test_sandbox_groups.py"
KILLED = "tests/kernel/test_session_exec.py::test_a_killed_supervisor_takes_its_sandbox_along_and_the_next_start_sweeps"
# Emulation is slow: what does not depend on who it is runs as one of them.
CHOSEN = {
    ROOT: (GROUPS, KILLED, f"{RESOURCES}::test_a_fork_bomb_is_stopped_and_named"),
    DELEGATED: (
        GROUPS, KILLED,
        f"{RESOURCES}::test_memory_is_stopped_and_named", f"{RESOURCES}::test_cpu_seconds_are_stopped_and_named",
    ),
}  # fmt: skip


def suite(machine: Machine, person: Person, *chosen: str, timeout: float) -> Ended:
    arguments = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not slow", *chosen)
    ended = person.python(machine, *arguments, cwd=str(TREE), timeout=timeout)
    assert ended.code == 0, str(ended)
    return ended


@pytest.mark.parametrize("person", CHOSEN, ids=lambda person: person.name)
def test_limits_hold_and_nothing_is_left(machine: Machine, person: Person) -> None:
    ended = suite(machine, person, *CHOSEN[person], timeout=400)
    assert "skipped" not in ended.out.splitlines()[-1], str(ended)
    assert machine.run("sh", "-c", LEFT).out == ""


@pytest.mark.slow
@pytest.mark.parametrize("person", [ROOT, DELEGATED, PLAIN], ids=lambda person: person.name)
def test_every_kernel_and_escape_test(machine: Machine, person: Person) -> None:
    suite(machine, person, "tests/kernel", "tests/escape", timeout=3600)
