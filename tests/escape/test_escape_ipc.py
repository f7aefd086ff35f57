"""Memory and queues that processes share: private to the sandbox, and usable in it."""
from __future__ import annotations

import pytest

from support.attempts import attempt, jail, needs_sandbox

pytestmark = [pytest.mark.kernel, needs_sandbox]


async def test_shared_memory_is_empty_and_semaphores_work() -> None:
    async with jail() as box:
        assert await attempt(box, "ls -A /dev/shm | wc -l") == "0"
        assert await attempt(box, "python3 -c 'import multiprocessing as m; m.Lock(); print(\"ok\")'") == "ok"


async def test_forkserver_works() -> None:
    script = "import multiprocessing as m; m.set_start_method('forkserver'); "
    script += "p = m.Process(target=print, args=('ok',)); p.start(); p.join()"
    async with jail() as box:
        assert await attempt(box, f'python3 -c "{script}"') == "ok"


async def test_system_v_is_private() -> None:
    script = "need ipcs; ipcs -a | grep -cE '^0x'; "
    script += "python3 -c 'import ctypes; print(ctypes.CDLL(None).shmget(0, 4096, 0o1600) >= 0)'"
    async with jail() as box:
        assert (await attempt(box, script)).split() == ["0", "True"]


async def test_message_queues_are_private() -> None:
    script = """python3 -I -S -c "
import ctypes
libc = ctypes.CDLL('librt.so.1', use_errno=True)
print(libc.mq_open(b'/lemni-test', 0o102, 0o600, None) >= 0)" """
    async with jail() as one, jail() as two:
        assert await attempt(one, script) == "True"
        again = script.replace("0o102", "0o2")  # open, do not create
        assert await attempt(two, again) == "False"
