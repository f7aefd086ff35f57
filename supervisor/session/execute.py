"""From an authorised action to what it did: the only place of the supervisor where an action meets its means.

Bash goes to the sandbox; the file tools go beneath the working copy's descriptor, as the sandbox sees it. Whether an action
may run is not asked here: the guard machine has said so, and it is in the journal.
"""
from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence

import trio

from supervisor.guard.protocol import ActionFinished
from supervisor.journal import entry
from supervisor.sandbox.life import Sandbox
from supervisor.sandbox.spec import Command
from supervisor.session.output import describe
from supervisor.session.request import Watcher
from supervisor.settings.bounds import Bounds
from supervisor.types import (
    Action,
    BashCall,
    CallState,
    EditCall,
    ListCall,
    ReadCall,
    Reason,
    SearchCall,
    WriteCall,
)
from supervisor.workspace.files import Done, FileResult, FileView, Outside

# No start-up file is read, whatever the sandbox's home or environment holds (TC-25 … TC-27).
BASH = (b"/bin/bash", b"--noprofile", b"--norc", b"-c")


class Executor:
    """Carries out the actions of one session in its sandbox."""

    def __init__(self, sandbox: Sandbox, files: FileView, bounds: Bounds, watcher: Watcher) -> None:
        self._sandbox = sandbox
        self._files = files
        self._bounds = bounds
        self._watcher = watcher

    async def run(self, call_id: str, action: Action) -> ActionFinished:
        """Carry ``action`` out. Raises ChannelBroken when the sandbox is gone; cancelled, it leaves no process of it."""
        if isinstance(action, BashCall):
            return await self._bash(call_id, action)
        return await self._file(call_id, action)

    async def own(self, call_id: str, argv: Sequence[bytes], cwd: bytes, seconds: float | None) -> ActionFinished:
        """The person's own command (`lemni exec`): its output is relayed whole, its duration is bounded as any (CB-02)."""
        bound = float(self._bounds.command_seconds)
        if seconds is not None and seconds > bound:
            self._watcher.notice(
                "command_bound",
                f"{seconds:g} s is above the bound of a command: {bound:g} s hold (LEMNISCATE_COMMAND_MAX_SECONDS raises it)",
            )
        # env looks the name up in the sandbox's PATH, and has the shell's statuses 126 and 127. A name with "=" would be
        # an assignment to it: such a name is run as it stands.
        whole = tuple(argv) if b"=" in argv[0] else (b"/usr/bin/env", b"--", *argv)
        command = Command(whole, cwd=cwd, timeout=min(bound, seconds or bound), keep=0, relay=True)
        ran = await self._sandbox.run(command, lambda stream, data: self._watcher.output(call_id, stream, data))
        if ran.stderr:  # of a command that could not be started; a relayed stream itself is not kept
            with contextlib.suppress(BrokenPipeError):
                self._watcher.output(call_id, 2, ran.stderr)
        state = CallState.ERRORED if ran.timed_out or ran.killed else CallState.DONE
        return ActionFinished(call_id, state, "", Reason.TIMEOUT if ran.timed_out else None, ran)

    async def _bash(self, call_id: str, call: BashCall) -> ActionFinished:
        timeout = float(call.timeout or self._bounds.command_seconds)
        command = Command((*BASH, call.command.encode()), timeout=timeout, keep=self._bounds.command_output_bytes)
        ran = await self._sandbox.run(command, lambda stream, data: self._watcher.output(call_id, stream, data))
        described = describe(ran, timeout)
        if ran.timed_out:
            return ActionFinished(call_id, CallState.ERRORED, described, Reason.TIMEOUT, ran)
        return ActionFinished(call_id, CallState.DONE, described, None, ran)

    async def _file(self, call_id: str, call: ReadCall | ListCall | SearchCall | WriteCall | EditCall) -> ActionFinished:
        # Not abandoned on cancellation: the thread works on the working copy's descriptor, which outlives it so.
        result = await trio.to_thread.run_sync(self._carry_out, call)
        if isinstance(result, Done):
            wrote = result.sha256 != ""
            touched = entry.FileTouched(
                call_id, _KINDS[type(call)], os.fsdecode(result.path or b"."), result.sha256 if wrote else None,
                result.length if wrote else None,
            )
            return ActionFinished(call_id, CallState.DONE, result.text, touched=touched)
        reason = Reason.PERIMETER if isinstance(result, Outside) else Reason.FAILED
        return ActionFinished(call_id, CallState.ERRORED, result.text, reason)

    def _carry_out(self, call: ReadCall | ListCall | SearchCall | WriteCall | EditCall) -> FileResult:
        match call:
            case ReadCall():
                return self._files.read(call)
            case ListCall():
                return self._files.list(call)
            case SearchCall():
                return self._files.search(call)
            case WriteCall():
                return self._files.write(call)
            case EditCall():
                return self._files.edit(call)


_KINDS: dict[type, str] = {ReadCall: "read", ListCall: "list", SearchCall: "search", WriteCall: "write", EditCall: "edit"}

