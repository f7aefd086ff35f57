"""Where a symbolic link leads, worked out without following it. Pure.

A link that a session made is applied only when it stays inside the project *as the project will be*: counting ``..`` in its
text is not enough, because a path may go through other links (``s -> ../..`` makes ``s/../x`` climb further than it looks).
"""
from __future__ import annotations

from collections.abc import Callable

from supervisor.workspace.gitnames import is_git_name

_HOPS = 40  # as the kernel's own limit (path_resolution(7))


def why_not(path: bytes, target: bytes, read_link: Callable[[bytes], bytes | None]) -> str:
    """Why a link at ``path`` with this target must not be applied, or "" when it may.

    ``read_link(path)`` gives the target of what will be a link at that relative path, or None. Components that do not exist
    count as plain names: they could be made later.
    """
    if target.startswith(b"/"):
        return "it is a link to an absolute path"
    here = path.split(b"/")[:-1]
    rest = target.split(b"/")
    hops = 0
    while rest:
        part = rest.pop(0)
        if part in (b"", b"."):
            continue
        if part == b"..":
            if not here:
                return "it is a link that leads outside the project"
            here.pop()
            continue
        if is_git_name(part):
            return "it is a link into git's own directory"
        here.append(part)
        further = read_link(b"/".join(here))
        if further is None:
            continue
        hops += 1
        if hops > _HOPS:
            return "it is a link that leads in circles"
        if further.startswith(b"/"):
            return "it is a link that leads outside the project"
        here.pop()
        rest = further.split(b"/") + rest
    return ""
