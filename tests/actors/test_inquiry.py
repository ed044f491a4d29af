"""Questions about a running broker, asked of the servers of one loop: what they find is what clients have done, to the message."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from actors.inquiry import clients, retained, sessions, subscriptions
from actors.inquiry.asking import Asking, Page
from actors.inquiry.homes import BadCursor
from actors.inquiry.lag import Lags, looking
from actors.inquiry.stored import Stored
from actors.inquiry.stretches import Counted
from shards.view import StoreView
from tests.actors.hand import Ended, Hand
from tests.actors.one_loop import OneLoop

pytestmark = [pytest.mark.slow]


@asynccontextmanager
async def asked(broker: OneLoop) -> AsyncIterator[tuple[Asking, Stored]]:
    async with Asking(broker.topology, within=60) as asking, Stored(asking) as stored:
        yield asking, stored


async def all_sessions(asking: Asking, count_max: int) -> list[sessions.Session]:
    found: list[sessions.Session] = []
    page: Page[sessions.Session] = await sessions.page(asking, "", count_max)
    while True:
        assert page.missing == () and len(page.rows) <= count_max
        found += page.rows
        if not page.cursor:
            return found
        page = await sessions.page(asking, page.cursor, count_max)


async def test_clients_that_are_connected_and_those_that_are_away(tmp_path: Path) -> None:
    """Each once, with where its session lives; an ephemeral one is there as long as its connection."""
    async with OneLoop(tmp_path, n_shards=2) as broker, asked(broker) as (asking, _):
        away = await Hand.connect(broker.port, "away", 5, expiry_s=60)
        await away.close()
        here = [await Hand.connect(broker.port, "here", 4), await Hand.connect(broker.port, "brief", 5, expiry_s=0)]
        gone = await Hand.connect(broker.port, "gone", 5, expiry_s=0)
        await gone.close()
        await broker.forgotten("away")
        page = await clients.page(asking)
        assert page.cursor == "" and page.missing == ()
        found = {one.client: one for one in page.rows}
        assert {name: (one.connected, one.session, one.protocol) for name, one in found.items()} == {
            "away": (False, "durable", 5), "here": (True, "durable", 4), "brief": (True, "ephemeral", 5),
        }  # fmt: skip
        assert found["away"].expiry_s == 60 and found["away"].disconnected_at_ms and found["away"].expires_at_ms
        assert abs(found["away"].expires_at_ms - found["away"].disconnected_at_ms - 60_000) <= 1
        assert found["here"].gateway == "gateway-0" and found["here"].keep_alive_s == 60 and found["here"].connected_at_ms
        assert [one.client for one in (await clients.page(asking, connected=False)).rows] == ["away"]
        one, _ = await clients.find(asking, "here")
        assert one is not None and (one.client, one.connected, one.peer) == ("here", True, found["here"].peer)
        assert await clients.find(asking, "gone") == (None, ())
        for hand in here:
            await hand.close()


async def test_pages_tell_every_session_once(tmp_path: Path) -> None:
    """Whatever the size of a page, over all shards; a cursor that nobody has given is refused."""
    async with OneLoop(tmp_path, n_shards=3) as broker, asked(broker) as (asking, _):
        names = [f"c{number}" for number in range(23)]
        for name in names:
            hand = await Hand.connect(broker.port, name, 5)
            await hand.close()
        for count_max in (1, 4, 100):
            assert sorted(one.client for one in await all_sessions(asking, count_max)) == sorted(names)
        with pytest.raises(BadCursor, match="is no cursor"):
            await sessions.page(asking, "somewhere")


async def test_lag_is_what_was_stored_and_not_acknowledged(tmp_path: Path) -> None:
    """Of a session that is away, of one that does not acknowledge, and of one that has everything; other topics count for nobody."""
    async with OneLoop(tmp_path, n_shards=2) as broker, asked(broker) as (asking, stored):
        away, stuck, done = [await Hand.connect(broker.port, name, 5, receive_max=3) for name in ("away", "stuck", "done")]
        for hand in (away, stuck, done):
            await hand.subscribe("a/+", 1)
        await away.close()
        for number in range(4):
            publisher = await Hand.connect(broker.port, f"p{number}", 5, expiry_s=0)
            await publisher.published("a/1", *"xyz")
            await publisher.published("b/1", "x")
            await publisher.close()
        for _ in range(12):
            await done.taken()
        await stuck.messages(3)
        await done.alive()
        lags = {name: (await sessions.lag(asking, stored, name))[0] for name in ("away", "stuck", "done")}
        found = {name: (lag.messages, lag.connected, lag.counted) for name, lag in lags.items() if lag is not None}
        assert found == {"away": (12, False, True), "stuck": (12, True, True), "done": (0, True, True)}
        assert lags["away"] is not None and lags["away"].unread == 12 and lags["away"].unfinished == 0
        assert lags["stuck"] is not None and lags["stuck"].unfinished >= 3
        # The generation is written to: a whole period is left at least.
        period_ms = 7 * 86_400_000
        assert lags["away"].loss_in_ms == lags["stuck"].loss_in_ms == period_ms and lags["done"] and lags["done"].loss_in_ms is None
        assert lags["away"].oldest_at_ms is not None
        with looking(asking, stored) as lags_of_all:
            page = await sessions.lags_page(asking, lags_of_all)
        assert {lag.client for lag in page.rows} <= {"away", "stuck", "done"} and page.missing == ()
        assert await sessions.lag(asking, stored, "p0") == (None, ())
        await stuck.close()
        await done.close()


async def test_one_look_tells_what_is_unread_as_of_one_moment(tmp_path: Path) -> None:
    """What comes while it lasts is for the next; who reads on meanwhile has nothing unread; who waits for the same is told the same."""
    async with OneLoop(tmp_path) as broker, asked(broker) as (asking, stored):
        publisher = await Hand.connect(broker.port, "p", 5, expiry_s=0)
        for number in range(6):
            hand = await Hand.connect(broker.port, f"c{number}", 5)
            await hand.subscribe("a/+", 1)
            await hand.close()
            await broker.forgotten(f"c{number}")
            await publisher.published("a/1" if number == 2 else "b", "x")

        async def unread(lags: Lags) -> dict[str, int]:
            return {lag.client: lag.unread for lag in (await sessions.lags_page(asking, lags)).rows}

        look = Lags(asking, stored, Counted())
        before = {"c0": 1, "c1": 1, "c2": 1, "c3": 0, "c4": 0, "c5": 0}
        assert await unread(look) == before
        await publisher.published("a/2", "y", "y")
        assert await unread(look) == before
        back = await Hand.connect(broker.port, "c0", 5)
        for _ in range(3):
            await back.taken()
        await back.alive()
        assert await unread(look) == before | {"c0": 0}
        with looking(asking, stored) as another:
            assert await unread(another) == {"c0": 0, "c1": 3, "c2": 3, "c3": 2, "c4": 2, "c5": 2}
        await back.close()
        await publisher.close()


async def test_what_one_look_has_counted_is_not_read_again_by_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two at the same time have one count each; one that was broken off keeps its own, since a thread may be at it."""
    reads: list[int] = []
    bulk = StoreView.bulk

    def counting(view: StoreView, generation: int, *rest: Any) -> Any:
        reads.append(generation)
        return bulk(view, generation, *rest)

    monkeypatch.setattr(StoreView, "bulk", counting)
    async with OneLoop(tmp_path) as broker, asked(broker) as (asking, stored):
        hand = await Hand.connect(broker.port, "c", 5)
        await hand.subscribe("a/+", 1)
        await hand.close()
        await broker.forgotten("c")
        publisher = await Hand.connect(broker.port, "p", 5, expiry_s=0)
        await publisher.published("a/1", "x", "y")

        async def unread() -> int:
            lag, _ = await sessions.lag(asking, stored, "c")
            return lag.unread if lag is not None else -1

        assert await unread() == 2 and reads
        reads.clear()
        assert await unread() == 2 and not reads
        await publisher.published("a/1", "z")
        assert await unread() == 3 and len(reads) == 1
        with stored.counting() as one, stored.counting() as other:
            assert one is not other
        with pytest.raises(Ended), stored.counting() as broken:
            raise Ended
        with stored.counting() as one, stored.counting() as other:
            assert broken not in (one, other)
        await publisher.close()


async def test_time_to_loss_counts_down_once_the_generation_is_sealed(tmp_path: Path) -> None:
    """What is unread in a sealed generation goes when its period is over."""
    sets = ("durable_sessions.message_retention_period=10h", "durable_storage.messages.generation_length=1h")
    async with OneLoop(tmp_path, sets=sets) as broker, asked(broker) as (asking, stored):
        hand = await Hand.connect(broker.port, "away", 5, expiry_s=1 << 20)
        await hand.subscribe("a", 1)
        await hand.close()
        publisher = await Hand.connect(broker.port, "p", 5, expiry_s=0)
        await publisher.published("a", "x")
        await broker.pass_time(2 * 3_600_000)
        sealed, _ = await sessions.lag(asking, stored, "away")
        assert sealed is not None and sealed.messages == 1 and sealed.loss_in_ms is not None
        assert 0 < sealed.loss_in_ms <= 10 * 3_600_000
        await broker.pass_time(3 * 3_600_000)
        later, _ = await sessions.lag(asking, stored, "away")
        assert later is not None and later.loss_in_ms is not None and later.loss_in_ms <= sealed.loss_in_ms - 3 * 3_600_000 + 5_000
        await publisher.close()


async def test_subscriptions_wherever_they_live(tmp_path: Path) -> None:
    """Of durable sessions, of ephemeral ones, and of those in memory; with their options."""
    sets = ('zones.web.client_id_prefixes=["web-"]', "zones.web.durable_sessions.enable=false")
    async with OneLoop(tmp_path, n_shards=2, sets=sets) as broker, asked(broker) as (asking, _):
        hands = []
        for name, expiry_s, filter, options in (("d", 60, "a/#", 1 | 4), ("e", 0, "b", 2), ("web-1", 60, "c/+", 1 | 8)):
            hands.append(await Hand.connect(broker.port, name, 5, expiry_s=expiry_s))
            await hands[-1].subscribe(filter, options, 7)
        page = await subscriptions.page(asking)
        first_shard = list(page.rows)
        rows = first_shard + (list((await subscriptions.page(asking, page.cursor)).rows) if page.cursor else [])
        assert {(one.client, one.filter, one.qos, one.no_local, one.retain_as_published, one.identifier, one.session) for one in rows} == {
            ("d", "a/#", 1, True, False, 7, "durable"), ("e", "b", 2, False, False, 7, "ephemeral"),
            ("web-1", "c/+", 1, False, True, 7, "memory"),
        }  # fmt: skip
        assert [one.filter for one in (await subscriptions.of_client(asking, "web-1"))[0]] == ["c/+"]
        for hand in hands:
            await hand.close()


async def test_retained_messages_are_told_with_their_size_and_not_their_payload(tmp_path: Path) -> None:
    """Those that match, page by page; one of a megabyte as well as a small one."""
    async with OneLoop(tmp_path, n_shards=2) as broker, asked(broker) as (asking, _):
        hand = await Hand.connect(broker.port, "p", 5)
        for number in range(12):
            await hand.published(f"r/{number}", "x" * (number + 1), retain=True)
        await hand.published("large", "y" * 900_000, retain=True)
        found: dict[str, int] = {}
        page = await retained.page(asking, b"r/+", "", 5)
        while True:
            assert len(page.rows) <= 5
            found.update({one.topic: one.bytes for one in page.rows})
            if not page.cursor:
                break
            page = await retained.page(asking, b"r/+", page.cursor, 5)
        assert found.keys() == {f"r/{number}" for number in range(12)}
        assert found["r/11"] - found["r/1"] == 10
        (large,) = (await retained.page(asking, b"large")).rows
        assert 900_000 <= large.bytes < 900_100 and large.publisher == "p"
        await hand.close()


async def test_a_kicked_client_is_told_so_and_keeps_its_session(tmp_path: Path) -> None:
    """0x98; who is not connected cannot be kicked."""
    async with OneLoop(tmp_path, n_gateways=2) as broker, asked(broker) as (asking, _):
        hand = await Hand.connect(broker.port, "c", 5)
        assert await clients.kick(asking, "c") == (True, ())
        assert await hand.ended() == "DISCONNECT 0x98"
        hand.drop()
        assert await clients.kick(asking, "c") == (False, ())
        again = await Hand.connect(broker.port, "c", 5)
        assert again.present
        await again.close()


@pytest.mark.parametrize("online", [True, False], ids=["online", "away"])
async def test_a_destroyed_session_is_gone_with_everything(tmp_path: Path, online: bool) -> None:
    """Connected or not; a second time there is nothing; the next CONNECT finds none; another session of the same client is not touched."""
    async with OneLoop(tmp_path) as broker, asked(broker) as (asking, _):
        hand = await Hand.connect(broker.port, "c", 5)
        await hand.subscribe("a", 1)
        if not online:
            await hand.close()
        session, _ = await sessions.find(asking, "c")
        assert session is not None and session.subscriptions == 1
        assert not await asking.destroy(b"c", session.session_id + 1)
        assert await asking.destroy(b"c", session.session_id)
        assert not await asking.destroy(b"c", session.session_id)
        if online:
            with pytest.raises((Ended, ConnectionResetError)):
                await hand.packet()
        assert await sessions.find(asking, "c") == (None, ())
        again = await Hand.connect(broker.port, "c", 5)
        assert not again.present
        await again.close()


async def test_an_answer_names_who_is_away(tmp_path: Path) -> None:
    """The others are told all the same, and nobody waits for it twice."""
    async with OneLoop(tmp_path, n_shards=2) as broker:
        hands = [await Hand.connect(broker.port, f"c{number}", 5) for number in range(8)]
        clock = 0.0
        async with Asking(broker.topology, within=60, clock=lambda: clock) as asking:
            whole = await clients.page(asking)
            assert len(whole.rows) == 8 and whole.missing == ()
            at_home = {one.client for one in whole.rows if one.home == 0}
            await broker.shards[1].stop()
            asking.shards._within = 2
            page = await clients.page(asking)
            assert {one.client for one in page.rows} == at_home and page.missing == ("shard-1",)
            broker.shards[1] = type(broker.shards[1])(broker.topology, 1)
            await broker.shards[1].start()
            assert (await clients.page(asking)).missing == ("shard-1",)
            clock = 10.0
            asking.shards._within = 60
            assert (await clients.page(asking)).missing == ()
        for hand in hands:
            await hand.close()
