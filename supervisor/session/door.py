"""The door of a session: feeds the guard machine, and carries out its commands in order and nothing else.

Every decision is the machine's. This file knows how to carry a command out: write an entry and wait for the disk, ask the
person, run in the sandbox, hand a result back. What it adds is failure: a journal that cannot be written turns every later
``Run`` into "not run"; a sandbox that is gone ends the session. Each call has a cancel scope, which an ``Abort`` cancels:
it ends what the call is waiting for, be it a person or a process.
"""
from __future__ import annotations

import contextlib
import hashlib
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field

import trio

from supervisor.errors import ChannelBroken, EntryRefused, JournalBroken, LemniError, StoreError
from supervisor.guard.lattice import Judgement
from supervisor.guard.machine import GuardConfig, Machine, Phase
from supervisor.guard.protocol import (
    Abort,
    ActionFinished,
    ActionProposed,
    Announce,
    Answer,
    Answered,
    Ask,
    GuardCommand,
    GuardEvent,
    InterruptAsked,
    ModelExchanged,
    ModelTurnStarting,
    Moved,
    PartFailed,
    PromptReceived,
    ResourceExceeded,
    Run,
    StopAsked,
    StopSession,
    WriteEntry,
)
from supervisor.journal import entry
from supervisor.journal.writer import Journal
from supervisor.sandbox.life import Usage
from supervisor.session import record
from supervisor.session.execute import Executor
from supervisor.session.house import Closed, House
from supervisor.session.looking import Looking
from supervisor.session.prepare import Prepared
from supervisor.session.request import (
    REJECTING,
    ApprovalRequest,
    Approver,
    Closing,
    Outcome,
    SessionRequest,
    Watcher,
)
from supervisor.session.request import Answer as PersonsAnswer
from supervisor.types import Action, Attribution, CallState, Identity, Proposal, Reason, Result, Stop, StopKind
from supervisor.workspace.store import Store

CLOSE_SECONDS = 120.0  # for everything between the last act and the last entry, a large diff included
CALL_SECONDS = 15.0  # for a call in flight to end once it was told to
CAUSE_SECONDS = 0.5  # after the sandbox is gone: how long its own word on why is waited for

Act = Callable[[Executor, str, Action], Awaitable[ActionFinished]]


def boot_us() -> int:
    """Microseconds of the boot clock: it counts suspension and no change of the date (O-20)."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000


@dataclass(slots=True)
class _Open:
    """A call between its proposal and its answer. The answer may come out of another task's event: an interrupt's, say."""

    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    answered: trio.Event = field(default_factory=trio.Event)
    result: Result | None = None


class Session:
    """One session. Made by ``open_session`` only. Every method may be called from any task of the program."""

    def __init__(
        self, session: str, request: SessionRequest, prepared: Prepared, identity: Identity, journal: Journal,
        approver: Approver, watcher: Watcher, judgement: Callable[[Action], Judgement] | None, act: Act,
    ) -> None:
        self.id = session
        self.project_root = prepared.project.root
        self.policy, self.bounds, self.config = prepared.policy, prepared.bounds, prepared.config
        self.catalogue = prepared.offered
        self.layers = prepared.host.layers
        self.opened_us = 0
        self.notices: tuple[str, ...] = ()
        self._request, self._prepared, self._identity = request, prepared, identity
        self._journal, self._approver, self._watcher = journal, approver, watcher
        self._machine = Machine(
            GuardConfig(prepared.policy, prepared.bounds, request.interactive, prepared.offered, judgement)
        )
        self._act = act
        self._store = Store(prepared.state)
        self._house = House(prepared, session, self._store.blobs(session))
        self._executor: Executor
        self._calls: dict[str, _Open] = {}
        self._door = trio.Lock()  # one call at a time, in the order of the requests
        self._stopped = trio.Event()
        self._broken: LemniError | None = None  # the journal's, once it failed
        self._closing: Closing | None = None
        self._finishing = trio.Lock()
        self._ending = False
        self._withdrawn: Outcome | None = None
        self._watching = trio.CancelScope()
        self._looking = Looking()
        self._record = record.begun(session, request, prepared, identity)

    # The door

    @property
    def stop(self) -> Stop | None:
        """Set once a guardrail stopped the session."""
        return self._machine.stop

    async def begin(self, prompt: str) -> None:
        """A message of the person: fresh budgets, journalled by digest and length (JR-03, SE-08)."""
        data = prompt.encode("utf-8", "surrogatepass")
        if self._machine.stop is None or self._machine.stop.kind in (StopKind.BOUND, StopKind.LOOP):
            self._stopped = trio.Event()
        await self._feed(PromptReceived(hashlib.sha256(data).hexdigest(), len(data), boot_us()))

    async def before_model_call(self) -> Stop | None:
        """Whether there may be one; a Stop says no. After a bound, one summary turn without tools is the caller's to make."""
        if self._machine.stop is None:
            await self._feed(ModelTurnStarting(boot_us()))
        return self._machine.stop

    async def model_exchange(self, sent: int, received: int, duration_us: int) -> None:
        """Count and journal one call of the model."""
        await self._feed(ModelExchanged(sent, received, duration_us))

    async def submit(self, proposal: Proposal) -> Result:
        """Judge, journal and perhaps run one call. Never raises for what the model does; answers at once after a stop."""
        async with self._door:
            if self._ending:
                return Result(proposal.call_id, CallState.CANCELED, "Not run: the session is over.", Reason.STOPPED)
            call = self._calls[proposal.call_id] = _Open()
            try:
                await self._feed(ActionProposed(proposal, boot_us()))
                await call.answered.wait()
            except BaseException:
                with trio.CancelScope(shield=True, deadline=trio.current_time() + CLOSE_SECONDS):
                    await self._wind_up(proposal.call_id)
                raise
            finally:
                del self._calls[proposal.call_id]
        assert call.result is not None
        return call.result

    async def interrupt(self) -> None:
        """The turn (LC-15): what has not begun is canceled, what runs is killed, later calls of the turn are canceled."""
        if not self._ending:
            await self._feed(InterruptAsked())

    async def halt(self) -> None:
        """The developer's stop (SR-02 … SR-05): at once, and what was written is rejected."""
        if not self._ending:
            await self._feed(StopAsked())
            await self._house.sandbox.kill()

    async def wait_stopped(self) -> Stop:
        """Wait until a guardrail stops the session."""
        while self._machine.stop is None:
            await self._stopped.wait()
        return self._machine.stop

    def minutes_left(self) -> float:
        """Seconds of the message's duration that remain; 0.0 when it is over."""
        return max(0.0, (self._machine.budget.deadline - boot_us()) / 1_000_000)

    def model_bytes_left(self) -> int:
        """Bytes that may still be sent to the model and received from it in this session."""
        return max(0, self._machine.budget.max_model_bytes - self._machine.budget.model_bytes)

    def withdraw(self, outcome: Outcome) -> None:
        """A signal while the session closes: what it wrote is rejected, as by one that came before, unless it is told of
        already. ``outcome`` is one of REJECTING. Never waits."""
        self._withdrawn = self._withdrawn or outcome
        self._house.reject()

    async def finish(self, outcome: Outcome) -> Closing:
        """End the session: processes dead, diff collected and stored, journal closed. The first call decides; idempotent."""
        with trio.CancelScope(shield=True, deadline=trio.current_time() + CLOSE_SECONDS):
            async with self._finishing:
                self._closing = self._closing or await self._close(outcome)
        if self._closing is None:  # the deadline: what is left goes by itself, and is swept at the next start at the latest
            late = LemniError("close the session", why=f"it took longer than {CLOSE_SECONDS:.0f} s", code="close_late")
            account = self._account(outcome, Closed(Usage(0, 0, 0), error=late), rejected=True)
            self._closing = account.closing(self._journal.path, self.notices)
        return self._closing

    # Carrying commands out

    async def _feed(self, event: GuardEvent) -> None:
        """Give the machine an event and carry its commands out."""
        await self._carry_out(self._machine.feed(event))

    async def _carry_out(self, commands: Iterable[GuardCommand]) -> None:
        """Carry commands out, each finished before the next."""
        pending = deque(commands)
        try:
            while pending:
                command = pending.popleft()
                match command:
                    case WriteEntry(written, sync):
                        pending += await self._write(written, sync)
                    case Run(call_id, action):
                        pending += self._machine.feed(await self._run(call_id, action))
                    case Ask():
                        pending += await self._ask(command)
                    case _:
                        self._tell(command)
        except BaseException:
            for command in pending:  # whoever waits for an answer gets it, even when the rest cannot be carried out
                if isinstance(command, Answer):
                    self._tell(command)
            raise

    def _tell(self, command: GuardCommand) -> None:
        match command:
            case Answer(result):
                if (call := self._calls.get(result.call_id)) is not None:
                    call.result = result
                    call.answered.set()
            case Abort(call_id):
                if (call := self._calls.get(call_id)) is not None:
                    call.scope.cancel()
            case Moved(call_id, tool, state):
                self._watcher.state(call_id, tool, state)
            case Announce(code, text):
                self._watcher.notice(code, text)
            case StopSession():
                self._stopped.set()

    async def _write(self, written: entry.Event, sync: bool) -> tuple[GuardCommand, ...]:
        """Write an entry. Once that fails nothing more is written, and nothing that has not begun is run (B71)."""
        if self._broken is not None:
            return ()
        try:
            await self._journal.write(written, sync=sync)
        except (JournalBroken, EntryRefused) as failed:
            self._broken = failed
            return self._machine.feed(PartFailed(failed.code, str(failed)))
        return ()

    async def _run(self, call_id: str, action: Action) -> ActionFinished:
        scope = self._calls[call_id].scope
        if self._broken is not None or scope.cancel_called:
            return ActionFinished(call_id, CallState.ERRORED, "It was not run.", Reason.SANDBOX)
        finished = ActionFinished(call_id, CallState.ERRORED, "", Reason.STOPPED)
        try:
            with scope:
                finished = await self._act(self._executor, call_id, action)
        except ChannelBroken as gone:
            await self._explain(gone)
            return ActionFinished(call_id, CallState.ERRORED, "The sandbox ended while it ran.", Reason.SANDBOX)
        if (stop := self._house.sandbox.stop) is not None:  # what the kernel killed for a cap is the session's last command
            await self._feed(ResourceExceeded(stop.what, stop.limit, stop.used))
        return finished

    async def _ask(self, question: Ask) -> tuple[GuardCommand, ...]:
        asked = ApprovalRequest(question.call_id, question.tool, question.action, question.why, question.reason)
        call = self._calls[question.call_id]
        if self._broken is not None or call.scope.cancel_called:
            return ()  # the machine has answered the call already
        with call.scope:
            approved = await self._approver.ask(asked) is PersonsAnswer.APPROVE
            call.scope = trio.CancelScope()  # from here on an Abort is about what the answer lets run
            return self._machine.feed(Answered(question.call_id, approved, boot_us()))
        return ()  # withdrawn: the same

    async def _explain(self, gone: ChannelBroken) -> None:
        """The sandbox ended under a command: by a cap, which it names itself in a moment, or by a fault."""
        if self._machine.stop is not None:
            return
        with trio.move_on_after(CAUSE_SECONDS):
            stop = await self._house.sandbox.exceeded()
            await self._feed(ResourceExceeded(stop.what, stop.limit, stop.used))
            return
        await self._feed(PartFailed(gone.code, f"the sandbox ended ({gone})"))

    async def _watch(self) -> None:
        """A cap that is exceeded while nothing runs, or while the model talks, stops the session too (SB-24)."""
        with self._watching:
            stop = await self._house.sandbox.exceeded()
            with trio.CancelScope(shield=True):
                await self._feed(ResourceExceeded(stop.what, stop.limit, stop.used))

    async def _wind_up(self, call_id: str) -> None:
        """A caller that goes away in the middle of a call: its end is journalled all the same."""
        if self._machine.phase is not Phase.IDLE:
            await self._feed(InterruptAsked())
        if self._machine.phase is Phase.RUNNING:
            await self._feed(ActionFinished(call_id, CallState.ERRORED, "", Reason.INTERRUPTED))

    # Opening and closing

    async def open(self, nursery: trio.Nursery) -> None:
        """Stages 1 to 3, by ``compose``. The frame is on disk already."""
        await self._note(entry.Stage(1, "authentication"))
        await self._note(entry.Authenticated(self._identity.source, "accepted"))
        await self._note(entry.Stage(2, "policy"))
        await self._note(record.policy_in_force(self.policy, self.bounds))
        for code, text in self._prepared.notices:
            await self._announce(code, text)
        await trio.to_thread.run_sync(self._store.save, self._record)
        await self._note(entry.Stage(3, "sandbox"), sync=True)
        await nursery.start(self._house.live)
        sandbox = self._house.sandbox
        self.layers, self.opened_us = sandbox.layers, sandbox.opened_us
        on, off = record.layer_texts(self.layers)
        await self._note(entry.SandboxOpened(self.opened_us, on, off))
        for text in self._house.notices:
            await self._announce("workspace", text)
        self._executor = Executor(sandbox, self._house.files, self.bounds, self._watcher)
        nursery.start_soon(self._watch)
        if not self._house.workspace.looked:
            nursery.start_soon(self._looking.run, self._house.workspace.look, self._found_closed)
        await self._note(entry.Stage(4, "work"))

    async def refuse(self, error: BaseException | None) -> None:
        """The session could not be opened: what stands of it goes, and its journal says why. By ``compose``."""
        self._ending = True
        code = error.code if isinstance(error, LemniError) else "internal" if isinstance(error, Exception) else "interrupted"
        with trio.CancelScope(shield=True, deadline=trio.current_time() + CLOSE_SECONDS):
            await self._house.close(collect=False)
            with contextlib.suppress(JournalBroken, EntryRefused):
                await self._note(entry.SessionRefused(code))
                await self._journal.close(entry.SessionClosed(self._request.own_failure, code))
            with contextlib.suppress(StoreError):  # not there yet, or nothing can be written: the refusal says more
                begun = await trio.to_thread.run_sync(self._store.load, self.id)
                await trio.to_thread.run_sync(self._store.save, record.refused(begun))

    def abandon(self) -> None:
        """Whatever happened to the closing: nothing is left that waits for it."""
        self._house.abandon()

    async def _note(self, written: entry.Event, *, sync: bool = False) -> None:
        """An entry of the session's own: while it opens, a journal that fails is an error of opening."""
        await self._journal.write(written, sync=sync)

    async def _found_closed(self, text: str) -> None:
        self.notices += (text,)
        await self._carry_out((WriteEntry(entry.Noticed("workspace", text), False), Announce("workspace", text)))

    async def _announce(self, code: str, text: str) -> None:
        self.notices += (text,)
        self._watcher.notice(code, text)
        await self._note(entry.Noticed(code, text))

    async def _close(self, outcome: Outcome) -> Closing:
        """Stage 5, under the caller's shield. What fails here changes the outcome, never the teardown."""
        self._ending = True
        self._watching.cancel()
        await self._looking.finish()
        for call in self._calls.values():  # one that another task still waits for ends now, and journals its end
            call.scope.cancel()
        with trio.move_on_after(CALL_SECONDS):
            async with self._door:
                pass
        halted = self._machine.stop is not None and self._machine.stop.kind is StopKind.STOP
        rejected = halted or outcome in REJECTING
        closed = await self._house.close(collect=not rejected)
        if closed.excess is not None:
            await self._feed(ResourceExceeded(closed.excess.what, closed.excess.limit, closed.excess.used))
        if self._withdrawn is not None:
            outcome, rejected = self._withdrawn, True
            await self._house.discard()
        account = self._account(outcome, closed, rejected=rejected)
        if self._broken is not None:
            account.fail(self._broken)
        for step in (self._tell_changes, self._tell_usage, self._seal, self._keep_record):
            try:
                await step(account)
            except (LemniError, OSError) as failed:
                account.fail(failed)
        return account.closing(self._journal.path, self.notices)

    def _account(self, outcome: Outcome, closed: Closed, *, rejected: bool) -> record.Account:
        machine = self._machine
        return record.Account(self.id, outcome, machine.stop, closed, self.opened_us, machine.budget, rejected)

    async def _tell_changes(self, account: record.Account) -> None:
        """What changed: kept first, then journalled by digest."""
        changes = account.changes
        await self._note(entry.Stage(5, "diff"))
        if changes is not None and changes.kept:
            await trio.to_thread.run_sync(self._store.save_changes, self.id, changes)
            for changed in record.change_entries(changes):
                await self._note(changed)
            closed = account.closed
            await self._note(entry.Changes(changes.digest, account.files, closed.added, closed.removed), sync=True)
        elif account.rejected:
            await self._note(entry.ChangeDecision(self.id, "rejected", Attribution.AUTOMATION.value))

    async def _tell_usage(self, account: record.Account) -> None:
        usage = account.closed.usage
        await self._note(entry.SandboxDestroyed(usage.cpu_us, usage.memory_peak, usage.processes_peak))

    async def _seal(self, account: record.Account) -> None:
        await self._journal.close(entry.SessionClosed(account.exit, account.reason))

    async def _keep_record(self, account: record.Account) -> None:
        summary = account.closing(self._journal.path, self.notices)
        await trio.to_thread.run_sync(self._store.save, record.ended(self._record, summary))
