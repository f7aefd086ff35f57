"""The order of verdicts: a second judgement can harden the first and never soften it (PP-26, PP-28)."""
from __future__ import annotations

from dataclasses import dataclass

from supervisor.types import Reason, Verdict


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict with its cause. ``rule`` is what decided, for the journal; ``why`` is one English line for people."""

    verdict: Verdict
    reason: Reason | None = None  # None exactly for ALLOW
    rule: str = ""
    why: str = ""


ALLOWED = Judgement(Verdict.ALLOW)


def strictest(*judgements: Judgement) -> Judgement:
    """The most restrictive one; of equals, the first, so that the cause named is the one found first."""
    return max(judgements, key=lambda judgement: judgement.verdict)
