"""What an ended session leaves in all shards and in the owner, whoever is away or down when it ends; and the sweep over routes."""

from __future__ import annotations

import pytest

from shards.engine import HOME_FAMILY
from shards.frames import LOST, NORMAL, Route
from shards.ids import sub_id
from shards.rows import ROUTE
from tests.sessions.real_shards import Broker
from tests.shards.ended import KEPT_MS, rows

CLIENTS = [b"client-%d" % n for n in range(4)]


def everything(broker: Broker) -> list[dict[str, int]]:
    return [rows(h.engine) for h in broker.shards]


def routes(broker: Broker) -> list[int]:
    return [len(h.engine.scan(HOME_FAMILY, ROUTE, ROUTE + b"\xff", 1_000)) for h in broker.shards]


def filled(broker: Broker, expiry_s: int = 60) -> None:
    """Sessions at home in both shards, each with routes in both, all away."""
    broker.start_owner()
    broker.rest()
    for client in CLIENTS:
        connected = broker.connect(client, expiry_s)
        broker.subscribe(connected, b"a/#", b"b/" + client)
        broker.disconnect(client, connected, NORMAL)
    assert routes(broker) == [8, 8]
    assert {broker.slots.shard_of(client) for client in CLIENTS} == {0, 1}


def assert_nothing_left(broker: Broker) -> None:
    assert routes(broker) == [0, 0]
    broker.rest(KEPT_MS)
    assert everything(broker) == [{}, {}]
    assert all(h.core.counters["routes"] == 0 and not any(h.core.gc_found.values()) for h in broker.shards)
    state = broker.core._state
    assert not state.sessions and not state.by_conn and not state.stirred and not state._asked


def test_nothing_is_left_in_any_shard_nor_in_the_owner() -> None:
    """With everybody there: rows and routes are gone within the second turn after the end."""
    broker = Broker()
    filled(broker)
    broker.rest(59_000)
    assert routes(broker) == [8, 8]
    broker.rest(2_000)
    assert_nothing_left(broker)


@pytest.mark.parametrize("shard", [0, 1])
def test_a_shard_that_is_away_when_sessions_end_loses_their_routes_when_it_is_back(shard: int) -> None:
    """Also when the owner is killed in between, which has forgotten what it had asked for."""
    for killed in (False, True):
        broker = Broker()
        filled(broker)
        broker.away(shard)
        broker.rest(61_000)
        assert routes(broker)[shard] == 8
        if killed:
            broker.kill_owner()
            broker.rest(1_000)
            broker.start_owner()
        else:
            broker.back(shard)
        broker.rest()
        assert_nothing_left(broker)


def test_sessions_that_end_while_the_owner_is_down_are_worked_off_by_the_next_one() -> None:
    """The work rows wait for it; it is told of them with its token."""
    broker = Broker()
    filled(broker)
    broker.kill_owner()
    broker.rest(61_000)
    assert routes(broker) == [8, 8]
    assert sum(found["w"] for found in everything(broker)) == 8
    broker.start_owner()
    broker.rest()
    assert_nothing_left(broker)


@pytest.mark.parametrize("turns", range(0, 12, 2))
def test_an_owner_that_is_killed_at_any_step_leaves_nothing(turns: int) -> None:
    """Killed so many turns after the end, and the next one as well."""
    broker = Broker()
    filled(broker)
    broker.turn(61_000)
    for _ in range(2):
        for _ in range(turns):
            broker.turn()
        broker.kill_owner()
        broker.turn()
        broker.start_owner()
    broker.rest()
    assert_nothing_left(broker)


def test_a_clean_start_ends_the_session_everywhere_and_begins_another() -> None:
    """The routes of the new one stay."""
    broker = Broker()
    filled(broker)
    connected = broker.connect(CLIENTS[0], 60, clean=True)
    broker.subscribe(connected, b"c")
    broker.rest()
    assert routes(broker) == [7, 7]
    broker.disconnect(CLIENTS[0], connected, LOST, 0)
    broker.rest(61_000)
    assert_nothing_left(broker)


# ---------------------------------------------------------------------------------------------- the sweep over routes

EVERY_MS = 60_000


def test_the_sweep_finds_no_route_of_a_session_that_is_there() -> None:
    """Online, away, and while routes are being added and removed."""
    broker = Broker(gc_interval_ms=EVERY_MS)
    filled(broker, 10_000)
    connected = broker.connect(CLIENTS[0], 10_000)
    for n in range(20):
        broker.subscribe(connected, b"more/%d" % n)
        broker.rest(EVERY_MS // 5)
    assert routes(broker) == [28, 28] and broker.core.counters.routes_collected == 0
    assert not any(count for h in broker.shards for count in h.core.gc_found.values())


@pytest.mark.parametrize("shard", [0, 1])
@pytest.mark.parametrize("home", [0, 1])
def test_a_route_that_no_subscription_stands_behind_is_removed(shard: int, home: int) -> None:
    """Whichever shard it is in and wherever its subscription was at home; one at a time and more than a page of them."""
    broker = Broker(gc_interval_ms=EVERY_MS)
    filled(broker, 10_000)
    plant(broker, shard, [(sub_id(home, 1, 5_000 + n), b"nobody/%d" % n) for n in range(250)])
    assert routes(broker)[shard] == 8 + 250
    for _ in range(2):
        broker.rest(EVERY_MS + 1_000)
    assert routes(broker) == [8, 8] and broker.core.counters.routes_collected == 250
    assert broker.shards[shard].core.counters["routes"] == 8


def test_the_sweep_goes_on_after_a_shard_was_away() -> None:
    """A question that was lost with its link is asked again."""
    broker = Broker(gc_interval_ms=EVERY_MS)
    filled(broker, 10_000)
    plant(broker, 1, [(sub_id(0, 1, 77), b"x")])
    broker.away(1)
    broker.rest(EVERY_MS + 1_000)
    assert routes(broker)[1] == 9
    broker.back(1)
    broker.rest()
    assert routes(broker)[1] == 8


def plant(broker: Broker, shard: int, orphans: list[tuple[int, bytes]]) -> None:
    """Routes in one shard that nobody asked for."""
    broker.shards[shard].link(11, "session", "s9:x")
    broker.shards[shard].ask(11, Route(orphans, [], [CLIENTS[0]] * len(orphans)))
