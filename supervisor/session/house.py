"""The sandbox of a session and the working copy around it, owned by one task from opening to diff.

The task is apart from the session's door so that closing does not depend on where the caller stands: a nursery and its
scopes are left by the task that entered them. While it opens it can be cancelled like anything else; once it stands, it is
shielded, and ends when ``close`` is called, which the session's owner does on every way out.

Order of the end: the sandbox's processes die, then the diff is collected from what they left, then the working copy goes.
"""
from __future__ import annotations

from dataclasses import dataclass

import trio

from supervisor.errors import LaunchFailed, LemniError, WorkspaceError
from supervisor.sandbox import life
from supervisor.sandbox.failures import OVERLAY_REFUSED
from supervisor.sandbox.life import Sandbox, Usage
from supervisor.sandbox.spec import OverlayCopy, PlainCopy, SandboxSpec
from supervisor.session.prepare import HOME_FILES, Prepared
from supervisor.types import Stop
from supervisor.workspace.blobs import Blobs
from supervisor.workspace.changes import ChangeSet
from supervisor.workspace.diff import measure
from supervisor.workspace.files import FileView
from supervisor.workspace.open import Workspace, open_workspace
from supervisor.workspace.overlay import OverlayLayers


@dataclass(slots=True)
class Closed:
    """What the end of the sandbox left: its usage, and the diff where one was wanted. ``error``: what went wrong."""

    usage: Usage
    changes: ChangeSet | None = None
    added: int = 0  # lines
    removed: int = 0
    excess: Stop | None = None  # a cap whose excess was seen at the very end only
    error: LemniError | None = None


class House:
    """Made, then run as a task with ``nursery.start(house.live)``; ``close`` once, by the session."""

    def __init__(self, prepared: Prepared, session: str, blobs: Blobs) -> None:
        self._prepared = prepared
        self._session = session
        self._blobs = blobs
        self._over = trio.Event()
        self._gone = trio.Event()
        self._collect = False
        self._entered = False
        self._standing = False
        self._closed = Closed(Usage(0, 0, 0))
        self.notices: tuple[str, ...] = ()
        self.sandbox: Sandbox
        self.workspace: Workspace
        self.files: FileView

    async def live(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Open, stand until ``close``, destroy, collect. Errors of opening are raised; those of the end are in ``Closed``."""
        self._entered = True
        try:
            try:
                await self._stand(task_status, want_copy=False)
            except LaunchFailed as refused:
                if self._standing or refused.code != OVERLAY_REFUSED:
                    raise
                self.notices = (
                    f"no overlay can be mounted over this project with its scratch in {self._prepared.state} "
                    f"({refused.errno_name}): the working copy is a plain copy",
                )
                await self._stand(task_status, want_copy=True)
        except (LemniError, OSError) as error:
            if not self._standing:
                raise
            self._closed.error = error if isinstance(error, LemniError) else WorkspaceError(
                "collecting the changes", on=error.filename, errno=error.errno
            )
        finally:
            self._gone.set()

    async def _stand(self, task_status: trio.TaskStatus[None], *, want_copy: bool) -> None:
        prepared = self._prepared
        project, host = prepared.project, prepared.host
        scratch = prepared.state / "scratch" / self._session
        with (
            life.claim(host, prepared.state, project.root, project.owner_uid, project.owner_gid) as claim,
            trio.CancelScope() as scope,
        ):
            ids = claim.ids
            async with open_workspace(
                project, prepared.exclusions, scratch, ids.command_host_uid, ids.command_host_gid,
                want_copy=want_copy or claim.must_copy, hidden=prepared.hidden,
            ) as workspace:
                self.workspace = workspace
                self.notices += workspace.notices
                async with life.open_sandbox(self._spec(workspace), host, claim, prepared.profile) as sandbox:
                    self.sandbox = sandbox
                    as_command = (ids.command_host_uid, ids.command_host_gid) if host.privileged else (None, None)
                    self.files = FileView(sandbox.workdir, *as_command)
                    scope.shield = self._standing = True
                    task_status.started()
                    await self._over.wait()
                self._closed.usage = sandbox.usage()
                with trio.move_on_after(0.01):  # it is there or it is not: nothing is waited for
                    self._closed.excess = await sandbox.exceeded()
                if self._collect:
                    await trio.to_thread.run_sync(self._collect_changes)

    def abandon(self) -> None:
        """Let the task end even when nobody could close it properly: a shielded task that waits for ever is worse."""
        self._over.set()

    async def close(self, *, collect: bool) -> Closed:
        """End it, and wait until nothing of it is left."""
        self._collect = collect
        self._over.set()
        if self._entered:
            await self._gone.wait()
        return self._closed

    def reject(self) -> None:
        """What is being collected is not wanted any more: the collecting ends at its next file. ``discard`` follows."""
        self._blobs.abandon()

    async def discard(self) -> None:
        """Forget what was collected, and that the collecting was cut: it was rejected meanwhile."""
        self._closed.changes, self._closed.added, self._closed.removed, self._closed.error = None, 0, 0, None
        await trio.to_thread.run_sync(self._blobs.discard)

    def _collect_changes(self) -> None:
        found = self.workspace.collect(self._blobs)
        self._closed.added, self._closed.removed = measure(found, self._blobs.read)
        self._closed.changes = found

    def _spec(self, workspace: Workspace) -> SandboxSpec:
        copies = tuple(
            OverlayCopy(c.lower, c.upper, c.work, c.target, c.owner_uid, c.owner_gid)
            if isinstance(c, OverlayLayers) else PlainCopy(c.path, c.target)
            for c in workspace.copies
        )
        return SandboxSpec(
            copies, self._prepared.limits, self._prepared.policy.profile, self._prepared.policy.limits_required,
            self._prepared.environment, HOME_FILES,
        )
