"""A register in a file on a watched disk, for tests that fail or kill it.

Argument: the directory.  A line ``count N`` on standard input counts one key up N times; each prints ``done`` or ``unknown`` with what is
then read, or ``away``; ``idle`` at the end.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from actors.register.local import LocalRegister, open_register
from shards.replication.ports import RegisterAway
from shards.replication.register import NO_VALUE

KEY = "/holdfast/shard/0"


async def counted(register: LocalRegister) -> str:
    try:
        held = await register.read(KEY)
        value, version = (int(held.value), held.version) if held else (0, NO_VALUE)
        outcome = await register.cas(KEY, version, b"%d" % (value + 1))
        now = await register.read(KEY)
        return f"{outcome.value} {int(now.value) if now else 0}"
    except RegisterAway:
        return "away"


async def main() -> None:
    register = open_register(Path(sys.argv[1]))
    held = await register.read(KEY)
    print("open", int(held.value) if held else 0, flush=True)
    while line := sys.stdin.readline().split():
        for _ in range(int(line[1])):
            print(await counted(register), flush=True)
        print("idle", flush=True)


if __name__ == "__main__":
    asyncio.run(main())
