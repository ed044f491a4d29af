"""What the shards of a running broker had committed when a backup of it began, and where its stores are.

Of several sites whoever leads a shard is asked, and the copies of this site are waited for: a copy has what is committed and nothing else,
but it may lack what was committed last (docs/replication.md).
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from dataclasses import replace

from actors.asking import NotReached, Shards
from actors.backup.taking import Source, Told
from actors.datadir import Site
from actors.reader.copies import CopiesHere
from actors.sites.whereabouts import SeveralSites
from actors.topology import Topology
from shards.engine import StoreFailed
from shards.queries import Cut, CutFound
from shards.view import StoreView

WITHIN_S = 60.0
"""A shard that was killed is back in seconds."""
_LOOK_S = 0.05
_ANEW_EVERY = 40
"""Looks, after which the files are opened anew."""


def source_of(topology: Topology, site: Site, backend: str, within_s: float = WITHIN_S) -> Source:
    """Of a broker that runs. site: what its site.json says. Raises NotReached."""
    stores = [topology.engine_path(shard) for shard in range(topology.n_shards)]
    if topology.sites is None:
        return Source(topology.data_dir, site, stores, backend, committed(topology, within_s))
    copies = CopiesHere(topology.run_dir, topology.site)
    for shard in range(topology.n_shards):
        if why := copies.missing(shard):
            raise NotReached(f"{why.partition(':')[0]}, and a backup has all shards: take it of a site that has them (`holdfast ds info`)")
    known = SeveralSites(topology).known.store
    if not known:
        raise NotReached("this site has not taken its place among the others yet: try again in a moment")
    store, _, incarnation = known.partition(":")
    # Operations are counted by each engine for itself.
    told = {shard: Told(each.position, 0) for shard, each in committed(topology, within_s).items()}
    _until_there(topology, told, within_s)
    return Source(topology.data_dir, replace(site, site=store, incarnation=int(incarnation)), stores, backend, told, copies=True)


def committed(topology: Topology, within_s: float = WITHIN_S) -> dict[int, Told]:
    """By shard. Raises NotReached when one does not answer."""

    async def ask() -> dict[int, Told]:
        async with Shards(topology, within_s) as shards:
            found = await shards.query_all(Cut())
        return {shard: Told(cut.watermark, cut.sequence) for shard, cut in enumerate(found) if isinstance(cut, CutFound)}

    return asyncio.run(ask())


def _until_there(topology: Topology, told: dict[int, Told], within_s: float) -> None:
    """The copies of this site have come to these positions. Raises NotReached."""
    deadline = time.monotonic() + within_s
    for shard, each in told.items():
        with tempfile.TemporaryDirectory(prefix="holdfast-look-") as scratch:
            try:
                view = StoreView(str(topology.engine_path(shard)), scratch)
            except StoreFailed as error:
                raise NotReached(f"the copy of shard {shard} at this site cannot be read: {error}") from error
            looks = 0
            try:
                while True:
                    looks += 1
                    try:
                        view.follow(each.position, anew=looks % _ANEW_EVERY == 0)
                        break
                    except StoreFailed as error:
                        if time.monotonic() > deadline:
                            raise NotReached(f"the copy of shard {shard} at this site is behind, or cannot be read: {error}") from error
                    time.sleep(_LOOK_S)
            finally:
                view.close()
