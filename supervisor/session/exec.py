"""``lemni exec``: one command of the person's own in a sandbox over the repository, no model.

The same session, journal, sandbox and limits. What differs: the verdict (only *ask* is skipped; an excluded Bash or a refused
family still refuses), the attribution (a human's), and the output, which is relayed whole.
"""
from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Sequence

import trio

from supervisor.guard.judge import judge_exec
from supervisor.guard.lattice import Judgement
from supervisor.guard.protocol import ActionFinished
from supervisor.guard.refusals import refused_command
from supervisor.session.execute import Executor
from supervisor.session.live import compose
from supervisor.session.prepare import Prepared, state_of
from supervisor.session.request import OWN_FAILURE, ExecOutcome, Outcome, RefuseAll, SessionRequest, Watcher
from supervisor.types import Action, BashCall, CallState, Proposal, StopKind, Verdict
from supervisor.workspace.project import find_project
from supervisor.workspace.store import Store

CALL = "exec"


async def run_exec(
    request: SessionRequest, argv: Sequence[bytes], watcher: Watcher, seconds: float | None = None,
    rejected: Callable[[], Outcome] = lambda: Outcome.INTERRUPTED,
) -> ExecOutcome:
    """Run ``argv`` where the person stands, in the sandbox. Raises as ``open_session``; ``seconds`` bounds it further.

    Cancelled, it leaves nothing: the sandbox is destroyed, and what was written is rejected, as ``rejected`` says by then.
    """
    words = [os.fsdecode(word) for word in argv]
    command = shlex.join(words)

    async def own(executor: Executor, call_id: str, action: Action) -> ActionFinished:
        return await executor.own(call_id, argv, find_project(request.directory).start, seconds)

    def judged(prepared: Prepared) -> Callable[[Action], Judgement]:
        return lambda action: judge_exec(prepared.policy, words)

    async with compose(request, RefuseAll(), watcher, judged, own) as session:
        try:
            await session.begin(command)
            result = await session.submit(Proposal(CALL, "Bash", command, BashCall(command)))
        except BaseException as failure:
            if not isinstance(failure, Exception):  # cancelled: as such, or as a nursery's group of that
                await session.finish(rejected())
            raise
        closing = await session.finish(Outcome.DONE)
    ran = result.execution
    refusal = None
    if result.state is CallState.CANCELED and closing.stop is None:
        verdict = judge_exec(session.policy, words)  # the result's own text speaks to a model
        refusal = result.text if verdict.verdict is Verdict.ALLOW else refused_command(verdict)
    stopped = closing.stop is not None and closing.stop.kind is not StopKind.FAILURE
    if stopped:
        exit_code = closing.exit
    elif ran is None or closing.exit != 0:
        exit_code = OWN_FAILURE
    else:
        exit_code = ran.status
    if closing.exit == 0 and exit_code != 0:  # known to us alone: the session itself ended in order
        await trio.to_thread.run_sync(Store(state_of(request)).note_exit, closing.session, exit_code)
    return ExecOutcome(exit_code, refusal, ran, closing)
