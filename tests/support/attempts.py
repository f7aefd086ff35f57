"""Attempts at an escape, made inside a real sandbox, each with the reason for which it has to fail.

An attempt that does not get as far as the thing it attempts proves nothing. So every script ends with a mark of its own and
a tool that is missing inside ends it with ``MISSING``, which skips the test by name instead of passing it.
"""
from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from supervisor.sandbox.life import Sandbox
from supervisor.sandbox.spec import Limits
from supervisor.types import Execution
from support.boxes import bash, open_box, text

MISSING = 97
_MARK = "attempted"

# sc NUMBER ARG…: a raw system call; its result or errno's name. sock FAMILY TYPE PROTOCOL: the same for socket(2).
HELPERS = r"""
need() { for tool; do command -v "$tool" >/dev/null || { echo "missing: $tool"; exit 97; }; done; }
sc() { python3 -I -S - "$@" <<'END'
import ctypes, errno, sys
libc = ctypes.CDLL(None, use_errno=True)
arguments = [ctypes.c_long(int(a, 0)) if a.lstrip("-")[:1].isdigit() else a.encode() for a in sys.argv[1:]]
result = libc.syscall(*arguments)
print(result if result >= 0 else errno.errorcode[ctypes.get_errno()])
END
}
sock() { python3 -I -S - "$@" <<'END'
import errno, socket, sys
try:
    socket.socket(*(int(a, 0) for a in sys.argv[1:]))
    print("OPENED")
except OSError as error:
    print(errno.errorcode[error.errno])
END
}
need python3
"""

FILES = {"README": "a project\n", "src/a.py": "print('a')\n"}
needs_sandbox = pytest.mark.needs("userns", "overlay", "seccomp", "bash")


async def attempt(box: Sandbox, script: str, *, timeout: float = 60.0) -> str:
    """What the script printed: stdout, then stderr. Skips when a tool was missing, fails when it did not come to its end."""
    ran = await attempted(box, script, timeout=timeout)
    said, mark, _ = ran.stdout.decode("utf-8", "backslashreplace").rpartition(_MARK)
    assert mark, text(ran)
    return "\n".join(part for part in (said.strip(), ran.stderr.decode("utf-8", "backslashreplace").strip()) if part)


async def attempted(box: Sandbox, script: str, *, timeout: float = 60.0) -> Execution:
    """Run the script with the helpers; skip when a tool was missing."""
    ran = await box.run(bash(f"{HELPERS}\n{script}\necho {_MARK}", timeout=timeout))
    if ran.code == MISSING:
        pytest.skip(text(ran))
    return ran


@asynccontextmanager
async def jail(limits: Limits | None = None) -> AsyncIterator[Sandbox]:
    """A sandbox over a small project."""
    async with open_box(limits, FILES) as box:
        yield box
