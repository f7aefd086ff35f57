"""The lexical part of the perimeter: a path that names the outside is refused before anything is opened (FP-02, FP-06).

What symbolic links make of a path is not knowable here: the workspace opens beneath the working copy's descriptor and the
kernel refuses to leave it. This part exists so that ``/etc/passwd`` is refused in words, without a question and without a
system call (FP-10). Inside the sandbox the working copy stands at ``/workspace``; absolute paths beneath it are its own.
"""
from __future__ import annotations

from supervisor.guard.lattice import ALLOWED, Judgement
from supervisor.types import Action, BashCall, Reason, Verdict

WORKDIR = "/workspace"
_LIMIT = 4096  # PATH_MAX: a longer path cannot exist


def outside(path: str) -> bool:
    """Whether ``path`` as written leaves the project, whatever its links are. ``a/../../x`` does, ``a/../x`` does not."""
    if path.startswith("/"):
        if path != WORKDIR and not path.startswith(WORKDIR + "/"):
            return True
        path = path[len(WORKDIR):]
    depth = 0
    for part in path.split("/"):
        if part == "..":
            depth -= 1
            if depth < 0:
                return True
        elif part not in ("", "."):
            depth += 1
    return False


def judge_perimeter(action: Action) -> Judgement:
    """EXCLUDE for a file tool on an outside path, ALLOW otherwise. Bash is bounded by the sandbox instead (FP-11)."""
    if isinstance(action, BashCall):
        return ALLOWED
    if len(action.path) > _LIMIT or "\0" in action.path:
        return Judgement(Verdict.EXCLUDE, Reason.PERIMETER, "perimeter", "the path is no path")
    if outside(action.path):
        return Judgement(Verdict.EXCLUDE, Reason.PERIMETER, "perimeter", f"{action.path} is outside the project")
    return ALLOWED
