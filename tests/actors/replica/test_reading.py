"""Readers beside three copies: whichever is asked, and whoever leads, what was stored is read once, in order, and a cut never goes back."""

from __future__ import annotations

import asyncio
import random
import struct
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from actors.reader.access import Keys
from actors.reader.copies import CopiesHere
from actors.reader.limits import Pace, Slots
from actors.reader.shard_side import LinkSide
from actors.reader.tcp import Doors
from actors.reader.verbs import Desk
from actors.reader.views import Views
from holdfast_spark.client import Client, Endpoint, Unit
from holdfast_spark.protocol import Block, Refused
from mqtt.body import strip_properties
from shards.messages import header
from shards.replication.configuration import Rid, site_of
from shards.replication.log_segment import segment_numbers
from tests.actors.replica.three_sites import NAMES, Producer, Site, ThreeSites, check_disks
from tests.actors.two_sites import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]
TOKEN, STORE = "token", "0123456789abcdef:1"
LEASE = "lake"


@asynccontextmanager
async def readers(sites: ThreeSites) -> AsyncIterator[dict[str, Client]]:
    """A reader of each site over the copy of that site, and who speaks to it; in this process, the way a reader process makes them."""
    loop = asyncio.get_running_loop()
    made: list[tuple[LinkSide, Views, Doors]] = []
    clients: dict[str, Client] = {}
    try:
        for name, site in sites.sites.items():
            at = site.topology
            side = LinkSide(at, loop)
            await side.start()
            views = Views([at.engine_path(0)], at.run_dir / "scratch", side, copies=CopiesHere(at.run_dir, at.site))
            desk = Desk(STORE, "test", views, side, Keys(TOKEN, ()), Slots(4), Pace(0))
            doors = Doors("127.0.0.1", 0, desk.converse, 10)
            clients[name] = Client(Endpoint((("127.0.0.1", doors.open()),), TOKEN))
            made.append((side, views, doors))
        yield clients
    finally:
        for client in clients.values():
            client.close()
        for side, views, doors in made:
            await asyncio.to_thread(doors.stop)
            await side.stop()
            views.close()


@dataclass
class Stream:
    """Micro batches from whichever reader: each from where the last one ended."""

    clients: Mapping[str, Client]
    cut: int = 0
    numbers: list[int] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)

    async def batch(self, name: str) -> int:
        """How many messages it had; asked of the reader of this site."""
        return await asyncio.to_thread(self._batch, self.clients[name])

    def _batch(self, client: Client) -> int:
        stop = max(int(client.cuts()["shards"]["0"]["cut"]), self.cut)
        plan = client.plan({0: self.cut}, {0: stop}, ["#"], None, None, 1000)
        assert not plan["gaps"], plan
        found: list[tuple[int, int]] = []
        for row in plan["units"]:
            unit = Unit(row["shard"], row["generation"], row["from"], row["to"])
            for block in client.scan(STORE, unit, ["#"]):
                found += _rows(block)
        assert all(self.cut <= position < stop for position, _ in found)
        found.sort()
        self.positions += [position for position, _ in found]
        self.numbers += [number for _, number in found]
        self.cut = stop
        return len(found)


def _rows(block: Block) -> Iterator[tuple[int, int]]:
    """(position, number that its publisher gave it)."""
    at = 0
    lengths = struct.unpack(f"<{block.rows}I", block.lengths)
    for position, length in zip(struct.unpack(f"<{block.rows}Q", block.positions), lengths, strict=True):
        body = header(bytes(block.values[at : at + length]))[4]
        at += length
        yield position, int(strip_properties(body).split()[0])


async def until_read(stream: Stream, producer: Producer, rng: random.Random) -> None:
    """Everything that is acknowledged now, in batches of readers by chance."""
    wanted = set(producer.acknowledged)
    async with asyncio.timeout(60):
        while not wanted <= set(stream.numbers):
            await stream.batch(rng.choice(NAMES))


async def test_whoever_leads_and_whichever_site_is_read_every_message_comes_once_and_in_order(tmp_path: Path) -> None:
    """Leaders are killed in the middle of batches, and the store is the one that is on the disks afterwards."""
    rng = random.Random(3)
    async with ThreeSites(tmp_path) as sites, readers(sites) as clients, Producer(sites) as producer:
        stream = Stream(clients)
        for _ in range(3):
            await producer.reaches(100)
            leader = sites.leader()
            assert leader is not None
            reading = asyncio.create_task(until_read(stream, producer, rng))
            await asyncio.sleep(rng.uniform(0, 0.2))
            leader.kill()
            await reading
            await producer.reaches(20)
            await sites.in_sync()
        await producer.finish()
        await sites.whole()
        for name in NAMES:
            alone = Stream(clients)
            await alone.batch(name)
            assert alone.numbers == sorted(producer.acknowledged), f"what was acknowledged, read at {name} at once"
        await stream.batch(NAMES[0])
        for site in sites.sites.values():
            await site.down()
    check_disks(sites, producer)
    numbers = [int(payload.split()[0]) for payload in sites.stored(NAMES[0])]
    assert stream.numbers == numbers
    assert stream.positions == sorted(set(stream.positions))


def segments(site: Site) -> set[int]:
    """Of its log."""
    return set(segment_numbers(str(site.directory / "shards" / "0" / "log")))


async def test_a_copy_is_read_again_when_a_checkpoint_has_taken_its_place(tmp_path: Path) -> None:
    """Its reader had the former files open; it says that it is away as long as they lack what is committed, and nothing else."""
    async with ThreeSites(tmp_path) as sites, readers(sites) as clients, Producer(sites, body=5_000) as producer:
        await producer.reaches(20)
        away = next(site for site in sites.sites.values() if site is not sites.leader())
        stream = Stream(clients)
        await stream.batch(away.name)
        assert stream.numbers
        leader = sites.leader()
        assert leader is not None
        former = segments(leader)
        await away.down()
        async with asyncio.timeout(120):
            # How many messages are in an entry is a matter of how busy the machine is.
            while former & segments(leader):
                await producer.reaches(20)
        other = next(name for name in NAMES if name != away.name)
        await stream.batch(other)
        behind = Client(clients[away.name]._endpoint, patience_s=0)
        with pytest.raises(Refused, match=r"this copy has come to position \d+, and \d+ is committed"):
            await asyncio.to_thread(behind.cuts)
        behind.close()
        away.keep()
        await sites.in_sync()
        assert b"copy.replaced" in (tmp_path / f"{away.name[0]}.log").read_bytes()
        await producer.reaches(20)
        await producer.finish()
        await stream.batch(away.name)
        assert stream.numbers == sorted(producer.acknowledged)


async def test_a_lease_goes_on_with_whoever_leads_next_and_a_site_without_a_copy_says_who_has_one(tmp_path: Path) -> None:
    """Leases are rows of the shard, so every copy has them."""
    async with ThreeSites(tmp_path) as sites, readers(sites) as clients, Producer(sites) as producer:
        await producer.reaches(50)
        leader = sites.leader()
        assert leader is not None
        one, other = (clients[name] for name in NAMES if name != leader.name)
        put = {"name": LEASE, "ttl_ms": 3_600_000, "max_age_ms": None, "max_bytes": None, "block": False, "filters": []}
        await asyncio.to_thread(lambda: one.lease("put", **put, start="earliest"))
        cut = int((await asyncio.to_thread(one.cuts))["shards"]["0"]["cut"])
        await asyncio.to_thread(one.ack, LEASE, {0: cut})
        await leader.down()
        await producer.reaches(20)
        (found,) = await asyncio.to_thread(lambda: other.lease("list"))
        assert (found["name"], found["to"]) == (LEASE, {"0": cut})
        await asyncio.to_thread(one.ack, LEASE, {0: cut + 1})
        leader.keep()
        await sites.in_sync()
        gone = next(name for name in NAMES if sites.leader() is not sites.sites[name])
        left = [name for name in NAMES if name != gone]
        await sites.target(*left)
        await until(lambda: {site_of(Rid(rid)) for rid in sites.sites[gone].says()["replicas"]} == set(left))
        impatient = Client(clients[gone]._endpoint, patience_s=5)
        with pytest.raises(Refused, match=f"site {gone.upper()} has no copy of shard 0 that is counted on: sites "):
            await asyncio.to_thread(impatient.cuts)
        impatient.close()
