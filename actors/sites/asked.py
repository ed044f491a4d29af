"""Asks the site process of this machine, for a command or a request; it goes through that process's unix socket (actors.sites.desk)."""

from __future__ import annotations

import asyncio
import os
import secrets
from typing import Any, Final

import msgpack

from actors.asking import NotReached
from actors.endpoints import Endpoint
from actors.inquiry.sites import ForcedInfo, Refused, Replica, ShardInfo, SiteInfo, Sites
from actors.links import Link, LinkClient
from actors.sites.desk import AWAY, REFUSED, ROLE
from actors.topology import Topology
from actors.wire import Wire

WITHIN_SECONDS: Final = 10.0
_NOBODY: Final = "the site process does not answer; `holdfast status` says whether it runs"


class _Asker:
    """One question.  Owner of its link."""

    def __init__(self, question: bytes) -> None:
        self._question = question
        self.answer: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()

    def link_up(self, link: Link) -> None:
        link.send(self._question)

    def link_frame(self, link: Link, data: bytes) -> None:
        if not self.answer.done():
            self.answer.set_result(msgpack.unpackb(data))

    def link_down(self, link: Link) -> None:
        """Dialled anew, and asked again: asking twice does no harm."""


async def ask(topology: Topology, verb: str, *words: str, within_s: float = WITHIN_SECONDS) -> Any:
    """Raises Refused, and NotReached with one sentence."""
    asker = _Asker(bytes(msgpack.packb([1, verb, words])))
    at = Endpoint(path=topology.site_endpoint())
    client = LinkClient(lambda: at, asker, Wire(topology.secret), ROLE, f"{ROLE}-{os.getpid()}:{secrets.token_hex(8)}")
    client.start()
    try:
        async with asyncio.timeout(within_s):
            _, outcome, value = await asker.answer
    except TimeoutError:
        raise NotReached(_NOBODY) from None
    finally:
        await client.stop()
    if outcome == REFUSED:
        raise Refused(value)
    if outcome == AWAY:
        raise NotReached(value)
    return value


async def ask_info(topology: Topology) -> Sites:
    """Raises NotReached."""
    return sites_of(await ask(topology, "info"))


def sites_of(row: dict[str, Any]) -> Sites:
    """As dataclasses.asdict made it."""
    shards = tuple([
        ShardInfo(**{
            **shard,
            "replicas": tuple([Replica(**each) for each in shard["replicas"]]),
            "forced": tuple([ForcedInfo(**{**each, "gone": tuple(each["gone"])}) for each in shard["forced"]]),
            **{name: tuple(shard[name]) for name in ("transitions", "in_sync", "eligible")},
        })
        for shard in row["shards"]
    ])  # fmt: skip
    sites = tuple([SiteInfo(**{**site, "knows": tuple(site["knows"])}) for site in row["sites"]])
    return Sites(row["this"], sites, shards, row["register"], row["format"])
