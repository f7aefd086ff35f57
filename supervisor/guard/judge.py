"""One call against the policy: perimeter, tool, then what precisely is asked; the strictest wins (PP-26 … PP-31)."""
from __future__ import annotations

from collections.abc import Sequence

from supervisor.guard.commands import judge_command
from supervisor.guard.families import TooDeep, refused_family
from supervisor.guard.lattice import Judgement, strictest
from supervisor.guard.perimeter import judge_perimeter
from supervisor.settings.policy import Policy
from supervisor.settings.words import Word
from supervisor.types import TOOL_OF, Action, BashCall, Reason, Verdict


def judge_tool(policy: Policy, tool: str) -> Judgement:
    """The base verdict: what the policy says of the tool as such."""
    verdict = policy.tool(tool)
    rule = f"tools.{tool}" if tool in dict(policy.tools) else "tools.*"
    if verdict is Verdict.EXCLUDE:
        return Judgement(verdict, Reason.POLICY, rule, f"the policy excludes {tool}")
    if verdict is Verdict.ASK:
        return Judgement(verdict, Reason.NEEDS_APPROVAL, rule, f"the policy asks before each {tool}")
    return Judgement(verdict, None, rule)


def judge(policy: Policy, action: Action) -> Judgement:
    """The verdict on one well-formed call. Any failure of the evaluation is EXCLUDE, never a question (PP-30)."""
    try:
        judgements = [judge_perimeter(action), judge_tool(policy, TOOL_OF[type(action)])]
        if isinstance(action, BashCall):
            judgements.append(judge_command(action.command, policy.commands, redirections=policy.redirections))
        found = strictest(*judgements)
    except Exception as failed:  # whatever went wrong in judging: nothing is let through on the strength of a bug
        why = f"the policy could not be evaluated ({type(failed).__name__})"
        return Judgement(Verdict.EXCLUDE, Reason.EVALUATION_FAILED, "evaluation failed", why)
    if found.verdict is Verdict.ALLOW:  # name the rule that was decisive: the listed pattern for a command, else the tool's
        return next((j for j in reversed(judgements) if j.rule), found)
    return found


def judge_exec(policy: Policy, argv: Sequence[str]) -> Judgement:
    """`lemni exec`: the person's own command. Only *ask* is skipped; an excluded Bash or a refused family still refuses."""
    base = judge_tool(policy, "Bash")
    if base.verdict is Verdict.EXCLUDE:
        return base
    words = [Word(tuple((char, True) for char in argument)) for argument in argv]
    try:
        family = refused_family(words)
    except TooDeep as deep:
        return Judgement(Verdict.EXCLUDE, Reason.EVALUATION_FAILED, "evaluation failed", str(deep))
    if family is not None:
        why = f"{family}: refused whatever anyone agrees to"
        return Judgement(Verdict.EXCLUDE, Reason.REFUSED_FAMILY, "refused family", why)
    return Judgement(Verdict.ALLOW, None, "exec")
