"""What became of a command, from init's records and the streams, as the value that everybody else reads."""
from __future__ import annotations

import errno
import os

from supervisor.sandbox.channel import Pending
from supervisor.sandbox.spec import Command
from supervisor.sandbox.streams import Streams
from supervisor.sandbox.wire import RunFailed, Stage
from supervisor.types import Execution

NOT_FOUND, NOT_STARTED = 127, 126  # the shell's statuses of a command that is not there, and of one that cannot run
SIGKILL = 9

_STAGES = {
    Stage.REQUEST: "the request was refused",
    Stage.FORK: "no process could be started",
    Stage.SESSION: "no session could be made",
    Stage.STDIO: "its streams could not be set up",
    Stage.LIMITS: "its limits could not be set",
    Stage.IDS: "its ids could not be taken",
    Stage.CWD: "its working directory cannot be entered",
    Stage.EXEC: "it cannot be executed",
}


def execution_of(command: Command, pending: Pending, streams: Streams, duration_us: int, timed_out: bool) -> Execution:
    """The execution of ``command``; takes the kept output out of ``streams``.

    A command that could not be started has the shell's status (126, 127) and the reason in its stderr. One that killed the
    process which watches it, or was killed, has no record of its own: it counts as ended by SIGKILL.
    """
    stdout, stderr, dropped_stdout, dropped_stderr = streams.take()
    code: int | None = None
    killer: int | None = SIGKILL
    cpu_us = max_rss = 0
    match pending.end:
        case None:
            pass
        case RunFailed(stage=stage, errno=number):
            missing = stage is Stage.EXEC and number == errno.ENOENT
            code, killer = NOT_FOUND if missing else NOT_STARTED, None
            stderr += reason(command.argv[0], stage, number)
        case exited:
            status = os.waitstatus_to_exitcode(exited.status)
            code, killer = (status, None) if status >= 0 else (None, -status)
            cpu_us, max_rss = exited.utime_us + exited.stime_us, exited.max_rss
    return Execution(
        code=code,
        signal=killer,
        stdout=stdout,
        stderr=stderr,
        dropped_stdout=dropped_stdout,
        dropped_stderr=dropped_stderr,
        duration_us=duration_us,
        cpu_us=cpu_us,
        max_rss=max_rss,
        timed_out=timed_out,
        killed=pending.end is None and not timed_out,
    )


def reason(program: bytes, stage: Stage, number: int) -> bytes:
    """One line for the command's stderr: what could not be done, and why."""
    return b"lemni: %s: %s: %s\n" % (program, _STAGES[stage].encode(), os.strerror(number).encode())
