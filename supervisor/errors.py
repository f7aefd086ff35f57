"""The errors of ``supervisor``: one tree, on one page.

An error says whose fault it is, what was being done, on what, the errno's name, and the remedy where there is one.
A refusal is not here: it is a value (``types.Refusal``, ``types.Verdict``), because refusing is the product working.
Library code raises these and neither logs nor exits; ``agent.cli`` turns them into words and exit codes.
"""
from __future__ import annotations

import enum
import errno as errno_module


class Fault(enum.Enum):
    """Who can do something about an error."""

    USER = "user"  # a command line, a repository, an answer
    ADMINISTRATOR = "administrator"  # a policy or host configuration
    HOST = "host"  # the kernel or the machine lacks or refuses something
    MODEL = "model"  # the model server or what it sent
    LEMNI = "lemni"  # a bug of ours


class LemniError(Exception):
    """Base of every error raised on purpose.

    ``code`` is a stable reason code for scripts and the journal; ``doing`` completes the sentence "while …".
    """

    fault: Fault = Fault.LEMNI
    code: str = "internal"

    def __init__(
        self,
        doing: str,
        *,
        on: str | None = None,
        errno: int | None = None,
        why: str | None = None,
        remedy: str | None = None,
        code: str | None = None,
        fault: Fault | None = None,
    ) -> None:
        super().__init__(doing)
        self.doing = doing
        self.on = on
        self.errno = errno
        self.why = why
        self.remedy = remedy
        if code is not None:
            self.code = code
        if fault is not None:
            self.fault = fault

    @property
    def errno_name(self) -> str | None:
        """``"EPERM"`` for 1, ``"errno 5000"`` for a number without a name, None without errno."""
        if self.errno is None:
            return None
        return errno_module.errorcode.get(self.errno, f"errno {self.errno}")

    def __str__(self) -> str:
        """One line: what failed, on what, and why. The remedy is apart (``self.remedy``)."""
        parts = [self.doing]
        if self.on is not None:
            parts.append(f" ({self.on})")
        reasons = [r for r in (self.why, self.errno_name) if r]
        if reasons:
            parts.append(": " + ", ".join(reasons))
        return "".join(parts)


class SettingError(LemniError):
    """A value of the environment, configuration or policy that cannot be read or is out of range (CF-10, EM-21).

    ``on`` names the file and line, or the variable; ``why`` quotes the value and says what is accepted.
    """

    fault = Fault.USER
    code = "setting_invalid"


class PolicyError(SettingError):
    """The policy cannot be read or is invalid: everything is disabled and the reason is said (O-02)."""

    fault = Fault.ADMINISTRATOR
    code = "policy_invalid"


class ProjectError(LemniError):
    """The directory cannot be opened as a project: bare repository, not authorised, unreadable."""

    fault = Fault.USER
    code = "project_refused"


class WorkspaceError(LemniError):
    """The working copy could not be made, read, compared or applied."""

    fault = Fault.HOST
    code = "workspace_failed"


class HostUnfit(LemniError):
    """The host lacks something that is required: refused with the remedy, never a weaker sandbox (SB-30, B01)."""

    fault = Fault.HOST
    code = "sandbox_unavailable"


class LaunchFailed(LemniError):
    """A step of the plan failed inside the new process. ``doing`` names the step, ``on`` its operand."""

    fault = Fault.HOST
    code = "sandbox_failed"


class ChannelBroken(LemniError):
    """The control channel ended, or a frame on it does not follow the protocol."""

    fault = Fault.LEMNI
    code = "channel_broken"


class JournalBroken(LemniError):
    """The journal cannot be written: nothing more is authorised (B71)."""

    fault = Fault.HOST
    code = "journal_unwritable"


class EntryRefused(LemniError):
    """A journal entry has no canonical form (NaN, beyond 2^53, lone surrogate, over 64 KiB). Nothing was written."""

    fault = Fault.LEMNI
    code = "entry_refused"


class StoreError(LemniError):
    """A stored session or diff is missing, ambiguous or damaged."""

    fault = Fault.USER
    code = "not_found"


class StoreBroken(StoreError):
    """What a session leaves could not be written: a full or read-only file system."""

    fault = Fault.HOST
    code = "store_unwritable"


class InternalError(LemniError):
    """Something that cannot happen happened: a bug of ours."""
