"""Errors into words and exit codes, in one place: what failed, whose fault it is, and what to do about it.

Exit codes of ``lemni``: 0 done, 1 error, 2 usage, 3 a guardrail stopped the agent, 129, 130, 131 and 143 for SIGHUP,
SIGINT, SIGQUIT and SIGTERM, 141 when the reader of standard output is gone. ``lemni exec`` has the command's own, or 125.
"""
from __future__ import annotations

import errno
import sys
import traceback
from collections.abc import Iterator, Sequence

import click

from agent.cli.terminal import BOLD, RED, OutputGone, err, paint, prepare, silence
from agent.cli.visible import visible
from supervisor.errors import Fault, HostUnfit, LemniError

ERROR, USAGE, INTERRUPTED, BROKEN_PIPE = 1, 2, 130, 141

WHOSE = {
    Fault.USER: "yours: the command line, this directory, or your own files",
    Fault.ADMINISTRATOR: "the administrator's: policy or host configuration",
    Fault.HOST: "this machine's: the kernel or the file system refuses or lacks something",
    Fault.MODEL: "the model server's, or of what it sent",
    Fault.LEMNI: "lemni's: this is a bug",
}


def run(command: click.Command, arguments: Sequence[str]) -> int:
    """Run a click command to its end and return the process's exit code; every problem is already on standard error."""
    prepare()
    try:
        value = command.main(list(arguments), prog_name="lemni", standalone_mode=False)
        sys.stdout.flush()  # here, where it can still be said that it fails
        return value if isinstance(value, int) else 0
    except click.ClickException as error:
        try:
            error.show()
        except OSError:
            silence(sys.stderr)
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except SystemExit:  # click's answer when the reader of standard error is gone, and to nothing else
        return BROKEN_PIPE
    except (Exception, BaseExceptionGroup) as error:
        return tell(error)


def tell(error: BaseException) -> int:
    """Say on standard error what failed, whatever it is, and return its exit code.

    A nursery's group is its most telling member: an interrupt, then an error raised on purpose, then anything else.
    """
    leaves = list(_leaves(error))
    if any(isinstance(leaf, KeyboardInterrupt | SystemExit) for leaf in leaves):
        return INTERRUPTED
    error = next((leaf for leaf in leaves if isinstance(leaf, LemniError)), leaves[0])
    if isinstance(error, OutputGone):
        return gone(error)
    if not isinstance(error, LemniError):
        err(visible("".join(traceback.format_exception(error))), end="")
        error = LemniError(
            "something failed that cannot fail",
            why=f"{type(error).__name__}: {error}",
            remedy="report it with the lines above; your repository was not changed",
        )
    show(error)
    return ERROR


def gone(error: OutputGone) -> int:
    """The exit code where standard output took no more: a reader that has enough is told nothing (as SIGPIPE would)."""
    if error.errno == errno.EPIPE:
        return BROKEN_PIPE
    show(HostUnfit(
        "write to standard output", errno=error.errno, code="output_gone",
        remedy="make room where it is written to, or open it (it was closed: >&-); what a session did is in `lemni sessions`",
    ))
    return ERROR


def show(error: LemniError) -> None:
    """Problem, fault and remedy on standard error. Operands may come from anywhere, so all of it is made visible."""
    err(paint("lemni: ", RED, BOLD) + visible(str(error)))
    err(f"  fault   {WHOSE[error.fault]} [{error.code}]")
    if error.remedy:
        first, *more = visible(error.remedy).splitlines() or [""]
        err(f"  remedy  {first}")
        for line in more:
            err(f"          {line}")


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error
