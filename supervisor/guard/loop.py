"""Loop detection: the same call with the same arguments, once too often in a row, is blocked before it runs (LD-01 … LD-13).

Equality is structural (O-61): same tool and same parsed arguments, whatever the key order or white space; a request that
could not be parsed is compared as raw text. Refused and failed requests count, since repeating them is a loop too.
"""
from __future__ import annotations

from dataclasses import dataclass, replace

from supervisor.types import Action, Proposal

Signature = tuple[str, Action | str]


def signature(proposal: Proposal) -> Signature:
    """What two identical calls have in common. Actions are frozen dataclasses: their equality keeps types apart."""
    return proposal.tool, proposal.raw_arguments if proposal.action is None else proposal.action


@dataclass(frozen=True, slots=True)
class LoopWindow:
    """The last call and how often it came in a row. ``threshold`` calls run; the next one is blocked (X-30)."""

    threshold: int
    enabled: bool = True
    last: Signature | None = None
    count: int = 0

    def after(self, proposal: Proposal) -> LoopWindow:
        """The window once ``proposal`` has been seen, blocked or not."""
        seen = signature(proposal)
        return replace(self, last=seen, count=self.count + 1 if seen == self.last else 1)

    @property
    def looping(self) -> bool:
        """Whether the last call seen is one too many."""
        return self.enabled and self.count > self.threshold

    def restarted(self) -> LoopWindow:
        """A user message restarts the window (O-61)."""
        return replace(self, last=None, count=0)
