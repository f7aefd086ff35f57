"""Descriptors, terminals and the environment: nothing of the caller's comes along."""
from __future__ import annotations

import os
from pathlib import Path

import pytest

from support.attempts import attempt, jail, needs_sandbox

pytestmark = [pytest.mark.kernel, needs_sandbox]


async def test_nothing_above_stdio_is_inherited(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("hunter2")
    with open(secret, "rb") as file:  # noqa: ASYNC230  (a small file of ours)
        os.set_inheritable(file.fileno(), True)
        async with jail() as box:
            said = await attempt(box, "ls -l /proc/self/fd | awk 'NR>1 {print $9}' | sort -n | tr '\\n' ' '")
            assert said.split() == ["0", "1", "2", "3"]  # 3 is the directory that ls reads
            assert "Bad file" in await attempt(box, f"cat <&{file.fileno()} 2>&1")


async def test_stdio_are_pipes() -> None:
    async with jail() as box:
        kinds = (await attempt(box, "for i in 0 1 2; do readlink /proc/self/fd/$i; done")).split()
    assert [kind.split(":")[0] for kind in kinds] == ["pipe"] * 3


async def test_nothing_is_typed_into_a_terminal() -> None:
    script = r"""python3 -I -S - <<'END'
import ctypes, errno, os
libc = ctypes.CDLL(None, use_errno=True)
seen = set()
main, side = os.openpty()
for fd in (0, 1, 2, side):
    for request in (0x5412, 0x100005412, 0x541C, 0x5423):
        result = libc.syscall(16, fd, ctypes.c_ulong(request), ctypes.byref(ctypes.c_int(3)))
        seen.add("DONE" if result >= 0 else errno.errorcode[ctypes.get_errno()])
print(*sorted(seen))
END"""
    async with jail() as box:
        assert await attempt(box, script) == "EPERM"


async def test_there_is_no_terminal_of_the_host_and_own_ones_work() -> None:
    async with jail() as box:
        assert "No such device" in await attempt(box, "(: </dev/tty) 2>&1")
        assert "pty-ok" in await attempt(box, "need script; script -qec 'echo pty-ok' /dev/null </dev/null")


async def test_the_environment_of_the_caller_is_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_SECRET_OF_THE_CALLER", "hunter2")
    async with jail() as box:
        assert await attempt(box, "cat /proc/*/environ 2>/dev/null | tr '\\0' '\\n' | grep -c -e hunter2 -e A_SECRET") == "0"
        bad = "SSH_|DBUS|XDG_RUNTIME|AWS_|TOKEN|SECRET|KEY$|BASH_ENV|^ENV$|SHELLOPTS|BASHOPTS|ZDOTDIR|BASH_FUNC|LD_"
        bad += "|GIT_(SSH|ASKPASS)|HTTPS?_PROXY"
        assert await attempt(box, f"env | cut -d= -f1 | grep -cE '{bad}'") == "0"


async def test_session_and_group_are_the_commands_own() -> None:
    async with jail() as box:
        said = await attempt(box, "need ps; ps -o sid=,pgid= -p $$ | tr -s ' ' | sed \"s/$$/own/g\"")
        assert said == "own own"
