"""A process that holds a sandbox until it is killed: for the tests of what a ``kill -9`` leaves. Not a test itself."""
from __future__ import annotations

import sys
from pathlib import Path

import trio

sys.path[:0] = [str(Path(__file__).parents[2]), str(Path(__file__).parents[1])]


async def main(marker: str, where: Path) -> None:
    from support.boxes import bash, open_box

    print("starting", flush=True)
    async with open_box(where=where) as box:
        print("open", flush=True)
        leave = f"setsid sleep {marker} & (setsid nohup sleep {marker} >/dev/null 2>&1 &)"
        await box.run(bash(f"{leave}; sleep {marker}", timeout=1e6))


if __name__ == "__main__":
    trio.run(main, sys.argv[1], Path(sys.argv[2]))
