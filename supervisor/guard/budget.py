"""Budgets: what a session may spend, what it has spent, and the bound it meets first (SE-01 … SE-15).

Actions, minutes and extensions start again at every user message; model bytes and commands are the session's own (SE-10,
O-03). Time is the boot clock in microseconds, given as an argument, waits for people included (O-20).
"""
from __future__ import annotations

from dataclasses import dataclass, replace

from supervisor.settings.limits import EXTENSION_ACTIONS, EXTENSION_MINUTES

MINUTE = 60_000_000


@dataclass(frozen=True, slots=True)
class Exhausted:
    """A bound that is reached: its name, its limit and what was used, in the budget's own unit."""

    budget: str  # "actions", "minutes", "modelBytes", "commands"
    limit: int
    used: int


@dataclass(frozen=True, slots=True)
class Budget:
    """Ceilings and consumption. ``deadline``/``started`` are microseconds of the boot clock."""

    max_actions: int
    max_minutes: int
    max_extensions: int
    max_model_bytes: int
    max_commands: int
    actions: int = 0
    extensions: int = 0
    model_bytes: int = 0
    commands: int = 0
    started: int = 0
    granted_actions: int = 0
    granted_us: int = 0
    total_actions: int = 0  # of all messages: for the session's account, no bound

    def begin(self, now: int) -> Budget:
        """A user message: actions, minutes and extensions start from nothing."""
        return replace(self, actions=0, extensions=0, granted_actions=0, granted_us=0, started=now)

    @property
    def deadline(self) -> int:
        return self.started + self.max_minutes * MINUTE + self.granted_us

    def exhausted(self, now: int) -> Exhausted | None:
        """The bound that forbids a further model call or action at ``now`` (X-07)."""
        actions = self.max_actions + self.granted_actions
        if self.actions >= actions:
            return Exhausted("actions", actions, self.actions)
        if late := self.overdue(now):
            return late
        if self.model_bytes >= self.max_model_bytes:
            return Exhausted("modelBytes", self.max_model_bytes, self.model_bytes)
        return None

    def overdue(self, now: int) -> Exhausted | None:
        """The duration's own part of ``exhausted``."""
        if now < self.deadline:
            return None
        return Exhausted("minutes", (self.deadline - self.started) // MINUTE, (now - self.started) // MINUTE)

    def exhausted_commands(self) -> Exhausted | None:
        """The bound that forbids a further command. An agent without commands left may still read, write and answer."""
        if self.commands >= self.max_commands:
            return Exhausted("commands", self.max_commands, self.commands)
        return None

    def action(self) -> Budget:
        """One complete request more, well-formed or not (O-18)."""
        return replace(self, actions=self.actions + 1, total_actions=self.total_actions + 1)

    def command(self) -> Budget:
        return replace(self, commands=self.commands + 1)

    def exchange(self, size: int) -> Budget:
        """``size`` bytes sent and received more."""
        return replace(self, model_bytes=self.model_bytes + size)

    @property
    def extensible(self) -> bool:
        return self.extensions < self.max_extensions

    def extended(self, now: int) -> Budget:
        """One extension: both ceilings rise; time that is overdrawn already is not charged to it (X-01, O-21)."""
        overdrawn = max(0, now - self.deadline)
        return replace(
            self,
            extensions=self.extensions + 1,
            granted_actions=self.granted_actions + EXTENSION_ACTIONS,
            granted_us=self.granted_us + overdrawn + EXTENSION_MINUTES * MINUTE,
        )
