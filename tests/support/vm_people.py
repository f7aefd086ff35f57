"""The people of the test machine, and their place in it, as systemd would have put them there."""
from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from typing import Any

from support.vm import TREE, Ended, Machine

USER_SLICE = "user.slice/user-1000.slice"
# Control groups as systemd makes them: controllers handed down to the user's slice; what is delegated belongs to the user.
WORLD = """
set -e
cd /sys/fs/cgroup
mkdir -p user.slice/user-0.slice user.slice/user-1000.slice/user@1000.service/app.slice system.slice/lemni.service
for slice in user.slice user.slice/user-0.slice user.slice/user-1000.slice system.slice; do
    echo "+cpu +memory +pids" > $slice/cgroup.subtree_control
done
for group in user.slice/user-1000.slice/user@1000.service{,/app.slice} system.slice/lemni.service; do
    chown 1000:1000 $group $group/cgroup.{procs,threads,subtree_control}
done
getent passwd 1000 >/dev/null || echo 'person:x:1000:1000::/disk/person:/bin/bash' >> /etc/passwd
for person in "$@"; do
    home=/disk/${person%:*}
    mkdir -p $home/repository && cd $home/repository
    echo 'a file' > file
    git init -q -b main && git add . && git -c user.name=P -c user.email=p@example.invalid commit -q -m first
    chown -R ${person#*:}:${person#*:} $home
done
"""

# A service starts in a fresh group: the last start's children are gone, and no controller is handed down.
STARTED = """
cd "/sys/fs/cgroup/$1"
for controller in $(cat cgroup.subtree_control); do echo "-$controller" > cgroup.subtree_control; done
for child in */; do [ ! -d "$child" ] || rmdir "$child"; done
"""
# What sandboxes leave when they leave something: groups and inits. A supervisor's own place in its service stays.
LEFT = "find /sys/fs/cgroup -name 'lemni-*' ! -name lemni-supervisor; grep -lsz '[l]emni-init' /proc/[0-9]*/cmdline; true"


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody who works on the machine: who, and where systemd put them."""

    name: str
    uid: int
    group: str
    limits: bool  # whether control groups can be made from there

    @property
    def home(self) -> str:
        return f"/disk/{self.name}"

    def python(self, machine: Machine, *arguments: str, cwd: str | None = None, timeout: float = 240.0) -> Ended:
        """Run this test's interpreter in the machine, as this person, in their repository."""
        if self.group.endswith(".service"):
            machine.run("sh", "-c", STARTED, "sh", self.group)
        env = {"HOME": self.home, "PYTHONPATH": str(TREE), "PYTHONDONTWRITEBYTECODE": "1", "NO_COLOR": "1"}
        where = cwd or f"{self.home}/repository"
        return machine.run(sys.executable, *arguments, uid=self.uid, group=self.group, cwd=where, env=env, timeout=timeout)

    def lemni(self, machine: Machine, *arguments: str) -> Ended:
        return self.python(machine, "-m", "agent.cli", *arguments)

    def layers(self, machine: Machine) -> dict[str, dict[str, Any]]:
        """What ``lemni doctor`` says of each layer."""
        ended = self.lemni(machine, "doctor", "--json")
        assert ended.code == 0, str(ended)
        return {layer["name"]: layer for layer in json.loads(ended.out)["layers"]}


ROOT = Person("root", 0, "user.slice/user-0.slice/session-1.scope", limits=True)
# In a terminal of a desktop, or below systemd-run --user --scope: the user's manager owns what is above.
DELEGATED = Person("delegated", 1000, f"{USER_SLICE}/user@1000.service/app.slice/terminal.scope", limits=True)
# A service with User= and Delegate=yes: nothing but its own group belongs to it, and it is in that group itself.
SERVICE = Person("service", 1000, "system.slice/lemni.service", limits=True)
# Logged in over ssh: nothing is delegated.
PLAIN = Person("plain", 1000, f"{USER_SLICE}/session-2.scope", limits=False)
PEOPLE = (ROOT, DELEGATED, SERVICE, PLAIN)
