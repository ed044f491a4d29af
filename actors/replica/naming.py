"""The register says which copy of a shard a site has: whoever allocates copies reads it there."""

from __future__ import annotations

import asyncio

from shards.replication.configuration import Rid
from shards.replication.ports import RegisterAway
from shards.replication.register import NO_VALUE, Register

AGAIN_S = 1.0


async def keep_named(register: Register, key: str, rid: Rid) -> None:
    """Returns when it says so.  Another id that is found there is of a copy that this site has no more."""
    while True:
        try:
            held = await register.read(key)
        except RegisterAway:
            await asyncio.sleep(AGAIN_S)
            continue
        if held is not None and held.value == rid.encode():
            return
        await register.cas(key, NO_VALUE if held is None else held.version, rid.encode())
