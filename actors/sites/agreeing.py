"""How many shards a new site of several has when its settings leave that open: as many as the cluster has, which its register says.

Machines are unlike, and `auto` counts cores.  So before the data directory of a new site is made, the register is asked; where nobody has
said yet what the cluster is, this site says it, as its site process would do later (actors.sites.claiming).
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

from actors.endpoints import Endpoint
from actors.register.chosen import Below, register_of
from actors.register.linked import LinkedRegister
from actors.sites.claiming import said_first
from actors.sites.records import Cluster, RecordUnreadable
from actors.topology import SitesPlan
from actors.wire import Wire, WireError
from config.load import from_json
from config.values import Bind
from shards.replication.ports import RegisterAway
from shards.replication.register import RegisterMistake

WITHIN_S: Final = 20.0
"""So long the register is asked again and again; who starts several machines at once starts etcd as well."""
AGAIN_S: Final = 0.5


class NotAgreed(Exception):
    """The register does not say it: one sentence for the operator."""


def shards_of_cluster(
    config_json: str, secrets: dict[str, bytes], secret: bytes, plan: SitesPlan, own: int, within_s: float = WITHIN_S
) -> int:
    """own: the number that this machine alone would take.  Blocks.  Raises NotAgreed."""
    cluster = Cluster(own, plan.n_sites, plan.replication_factor)
    try:
        return asyncio.run(_ask(config_json, secrets, secret, plan, cluster, within_s))
    except (RegisterAway, RegisterMistake, RecordUnreadable, WireError) as error:
        raise NotAgreed(f"n_shards is auto, so the register of the cluster has to say how many shards there are: {error}") from error


async def _ask(config_json: str, secrets: dict[str, bytes], secret: bytes, plan: SitesPlan, own: Cluster, within_s: float) -> int:
    settings = from_json(config_json).register
    at = settings.address
    if settings.endpoints:
        register = Below(register_of(settings, Path(), secrets), settings.prefix)
    elif isinstance(at, Bind) and (at.host, at.port) != (plan.host, plan.port):
        linked = LinkedRegister(
            lambda: Endpoint(host=at.host, port=at.port), Wire.between(secret, plan), "launcher", settings.request_timeout / 1000
        )
        linked.start()
        register = Below(linked, settings.prefix)
    else:
        # The register is a file of this very site, which nobody can have written yet.
        return own.n_shards
    until = asyncio.get_running_loop().time() + within_s
    try:
        while True:
            try:
                return (await said_first(register, own))[0].n_shards
            except RegisterAway:
                if asyncio.get_running_loop().time() > until:
                    raise
            await asyncio.sleep(AGAIN_S)
    finally:
        await register.close()
