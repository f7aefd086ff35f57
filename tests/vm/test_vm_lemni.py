"""What a person sees of lemni on Debian's kernel: doctor, a whole session, a command, a limit."""
from __future__ import annotations

import pytest

from support.vm import TREE, Machine
from support.vm_people import DELEGATED, LEFT, PEOPLE, PLAIN, ROOT, SERVICE, Person

pytestmark = pytest.mark.kernel
LIMITED = """\
version: 1
defaults:
  limits: {memory: 64MiB}
"""


@pytest.mark.parametrize("person", PEOPLE, ids=lambda person: person.name)
def test_doctor_tells_the_layers(machine: Machine, person: Person) -> None:
    layers = person.layers(machine)
    assert layers["landlock"]["on"]
    assert "ABI 2" in layers["landlock"]["fact"]
    assert layers["seccomp"]["on"]
    assert layers["separate ids"]["on"] == (person.uid == 0)
    for name in ("cgroup memory", "cgroup pids", "cgroup cpu"):
        assert layers[name]["on"] == person.limits, layers[name]
        assert layers[name]["fact"].startswith("v2")
        assert ("systemd-run" in (layers[name]["remedy"] or "")) != person.limits
    assert layers["trial"]["on"], layers["trial"]


@pytest.mark.parametrize("person", [ROOT, DELEGATED], ids=lambda person: person.name)
def test_a_session_from_the_prompt_to_the_diff(machine: Machine, person: Person) -> None:
    """The demo: the scripted model lists, reads, tests, edits and tests again in one sandbox."""
    ended = person.python(machine, "-m", "demo", cwd=str(TREE))
    assert ended.code == 0, str(ended)
    assert "FAILED (failures=1)" in ended.err
    assert "┃ OK" in ended.err
    assert "changes  1 file" in ended.err
    assert "complete, as the ledger knows it" in ended.out
    assert machine.run("sh", "-c", LEFT).out == ""


@pytest.mark.parametrize("person", [ROOT, PLAIN], ids=lambda person: person.name)
def test_a_command_of_ones_own(machine: Machine, person: Person) -> None:
    script = "git status -s; echo more >> file; git status -s; cat /proc/self/cgroup; stat -c %U . file; whoami; exit 7"
    ended = person.lemni(machine, "exec", "--", "sh", "-c", script)
    assert ended.code == 7, str(ended)
    assert ended.out.splitlines() == [" M file", "0::/", "agent", "agent", "agent"]
    assert "changes  1 file" in ended.err
    assert machine.run("cat", f"{person.home}/repository/file").out == "a file\n"
    assert machine.run("sh", "-c", LEFT).out == ""


@pytest.mark.parametrize("person", [ROOT, SERVICE], ids=lambda person: person.name)
def test_a_limit_is_named_and_ends_with_3(machine: Machine, person: Person) -> None:
    policy = f"{person.home}/.lemniscate/policy.yaml"
    made = machine.run("sh", "-c", 'mkdir -p -m 700 "${2%/*}"; printf %s "$1" > "$2"', "sh", LIMITED, policy, uid=person.uid)
    assert made.code == 0, str(made)
    try:
        ended = person.lemni(machine, "exec", "--", "sh", "-c", "tail /dev/zero; sleep 60")
    finally:
        machine.run("rm", policy)
    assert ended.code == 3, str(ended)
    assert "64 MiB of memory" in ended.err
    assert machine.run("sh", "-c", LEFT).out == ""
