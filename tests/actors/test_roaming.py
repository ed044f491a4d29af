"""Shards that are led at one site and then at the other, with clients at gateways of both (actors/gateway_links.py, actors/session.py)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from actors.inquiry import clients, subscriptions
from actors.inquiry.asking import Asking
from tests.actors.hand import Hand
from tests.actors.steadfast import Steadfast, publish
from tests.actors.two_sites import A, B, TwoSites, at_home_in, until
from tests.broker import wire


@pytest.mark.slow
@pytest.mark.parametrize("late", [False, True], ids=["told-at-once", "told-late"])
async def test_clients_go_on_while_the_shard_of_all_of_them_moves(tmp_path: Path, late: bool) -> None:
    """Publishers and who reads at QoS 1 stay connected; what was acknowledged comes, at QoS 1 again only with DUP, at QoS 2 once, in order.

    late: one site hears of each move long after the other.
    """
    async with TwoSites(tmp_path) as world:
        ports = [world.sites[site].port for site in (A, B)]
        readers = [
            Steadfast(ports[0], at_home_in(0, "older"), 4), Steadfast(ports[1], at_home_in(0, "newer"), 5),
            Steadfast(ports[0], at_home_in(0, "stays"), 5, "t/1"), Steadfast(ports[1], at_home_in(0, "remains"), 4, "t/1"),
        ]  # fmt: skip
        reading = [asyncio.create_task(reader.run()) for reader in readers]
        for reader in readers:
            await reader.subscribed.wait()
        sent: dict[int, list[str]] = {1: [], 2: []}
        stop = asyncio.Event()
        names = at_home_in(0, "ephemeral"), at_home_in(0, "durable")
        publishers = [
            await Hand.connect(port, name, 5, clean=True, expiry_s=expiry_s)
            for port, name, expiry_s in zip(ports, names, (0, 3600), strict=True)
        ]
        publishing = [
            asyncio.create_task(publish(hand, qos, sent[qos], stop)) for hand, qos in zip(publishers, (1, 2), strict=True)
        ]  # fmt: skip
        for site in (B, A, B):
            before = {qos: len(each) for qos, each in sent.items()}
            await until(lambda: all(len(sent[qos]) > before[qos] + 5 for qos in sent))  # noqa: B023
            await world.lead(0, site)
            world.tell(B)
            if late:
                await asyncio.sleep(0.3)
            world.tell(A)
            await until(world.settled)
        before = {qos: len(each) for qos, each in sent.items()}
        await until(lambda: all(len(sent[qos]) > before[qos] + 5 for qos in sent))
        stop.set()
        await asyncio.gather(*publishing)
        await until(lambda: all(reader.has(sent) for reader in readers) or any(task.done() for task in reading))
        for task in reading:
            assert not task.done() or task.result() is None
            task.cancel()
        assert all(reader.has(sent) for reader in readers)
        assert [reader.connections for reader in readers[2:]] == [1, 1]


@pytest.mark.slow
async def test_a_session_actor_that_serves_no_more_says_nothing_more(tmp_path: Path) -> None:
    """Its core and its links are gone, and another time it begins anew, under another name."""
    async with TwoSites(tmp_path) as world:
        actor = world.sites[A].sessions[0]
        first = actor._serving
        assert first is not None
        reader = await Hand.connect(world.sites[A].port, at_home_in(0, "reader"), 5)
        await reader.subscribe("t", 1)
        await until(lambda: bool(first.core._state.sessions))
        for site in (B, A):
            await world.lead(0, site)
            world.tell(A, B)
            await until(world.settled)
        second = actor._serving
        assert second is not None
        await until(lambda: bool(second.core._state.by_conn))
        assert second is not first and second.name != first.name
        assert not first._links and not any(client.linked for client in first.shards)
        counted = actor.counters()
        assert counted["attached"] == first.core.counters.attached + second.core.counters.attached
        await reader.published("t", "x")
        assert (await reader.message()).payload == "x"
        # Led elsewhere and back, and it heard of neither: who was there may have changed every row.
        for site in (B, A):
            await world.lead(0, site)
        world.tell(A, B)
        await until(lambda: actor._serving not in (None, second))


@pytest.mark.slow
async def test_what_is_live_crosses_sites_and_ends_with_a_site(tmp_path: Path) -> None:
    """Gateways of two sites are linked once; when a site is gone from the list, so is the link."""
    async with TwoSites(tmp_path) as world:
        here, there = world.sites[A], world.sites[B]
        reader = await Hand.connect(here.port, "live", 5, clean=True, expiry_s=0)
        await reader.subscribe("l/#", 0)
        publisher = await Hand.connect(there.port, "other", 5, clean=True, expiry_s=0)
        publisher.publish("l/1", "x", 0)
        assert (await reader.message()).payload == "x"
        peers = [site.gateway._core._peers.links for site in (here, there)]
        assert [sum(link >= 0 for link in links) for links in peers] == [1, 1]
        del world.there[B]
        world.tell(A)
        await until(lambda: not any(link >= 0 for link in peers[0]))
        world.there = dict(world.sites)
        world.tell(A)
        await until(lambda: any(link >= 0 for link in peers[0]))


@pytest.mark.slow
async def test_questions_go_to_whoever_leads_and_to_the_gateways_of_all_sites(tmp_path: Path) -> None:
    """Asked at one site; who is away is named."""
    async with TwoSites(tmp_path) as world:
        here, there = world.sites[A], world.sites[B]
        names = at_home_in(0, "durable"), at_home_in(1, "ephemeral")
        durable = await Hand.connect(there.port, names[0], 5)
        await durable.subscribe("d", 1)
        ephemeral = await Hand.connect(there.port, names[1], 5, clean=True, expiry_s=0)
        await ephemeral.subscribe("e", 1)
        async with Asking(here.topology, within=20.0) as asking:
            assert asking.gateways == [f"gateway-0@{A}", f"gateway-0@{B}"]
            await world.lead(0, B)
            world.tell(A, B)
            await until(world.settled)
            page = await clients.page(asking)
            assert not page.missing
            assert {(one.client, one.gateway) for one in page.rows if one.connected} >= {(names[1], f"gateway-0@{B}")}
            rows = (await subscriptions.page(asking)).rows + (await subscriptions.page(asking, "1-")).rows
            assert {(row.client, row.filter) for row in rows} == {(names[0], "d"), (names[1], "e")}
            assert await clients.kick(asking, names[1]) == (True, ())
            assert await ephemeral.ended() == "DISCONNECT 0x98"
        await world.nobody_leads(0)
        world.tell(A, B)
        async with Asking(here.topology, within=0.3) as asking:
            assert "shard-0" in (await clients.page(asking)).missing
        await world.lead(0, A)
        world.tell(A, B)


@pytest.mark.slow
async def test_who_subscribes_while_nobody_serves_is_answered_by_the_next_one(tmp_path: Path) -> None:
    """On the same connection; and who is in the middle of QoS 2 exchanges goes on with them, and gets nothing again."""
    async with TwoSites(tmp_path) as world:
        here = world.sites[A]
        idle, busy = [await Hand.connect(here.port, at_home_in(0, name), 5) for name in ("idle", "busy")]
        await busy.subscribe("b", 2)
        busy.publish("b", "y", 2, 7)
        assert await busy.answer(wire.PUBREC, 7) == 0
        exchange = await busy.message()
        busy.acknowledge(wire.PUBREC, exchange.packet_id)
        assert await busy.answer(wire.PUBREL, exchange.packet_id) == 0
        busy.publish("b", "x", 2, 8)
        assert await busy.answer(wire.PUBREC, 8) == 0
        second = await busy.message()
        await idle.alive()
        await world.nobody_leads(0)
        world.tell(A, B)
        await until(lambda: not here.gateway._links.sessions[0].linked)
        asked = idle.ask("i", 1)
        await world.lead(0, B)
        world.tell(B, A)
        assert await idle.subscribed(asked) == b"\1"
        await idle.published("i", "z")
        assert (await idle.message()).payload == "z"
        busy.acknowledge(wire.PUBREC, second.packet_id)
        assert await busy.answer(wire.PUBREL, second.packet_id) == 0
        for packet_id in (exchange.packet_id, second.packet_id):
            busy.acknowledge(wire.PUBCOMP, packet_id)
        await idle.published("b", "w")
        assert (await busy.message()).payload == "w"
