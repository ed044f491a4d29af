"""How much is at home in a shard, as `$SYS` tells it: right after every change, every restart, and in a store that nobody had counted."""

from __future__ import annotations

import pytest

from shards.frames import LOST, Disconnect, Holdings, HoldingsFound, Query, Result
from shards.rows import META
from tests.shards.harness import G, Harness, S, connect, linked, publish, route

OTHER = 9


def held(h: Harness, link: int = G) -> HoldingsFound:
    h.receive(link, Query(0, Holdings()))
    h.tick()
    (result,) = h.take(link, Result)
    assert isinstance(result.told, HoldingsFound)
    return result.told


def again(h: Harness, power: bool, number: int) -> None:
    h.reopen(power)
    h.link(G, "gateway", f"g0:{number}")
    h.link(S, "session", f"s0:{number}")


@pytest.mark.parametrize("power", [True, False])
def test_sessions_are_counted_while_nobody_is_connected_to_them(power: bool) -> None:
    """Made, left, resumed, ended by a clean start, expired; one that ends with its connection never counts."""
    h = linked()
    kept = connect(h, b"a", expiry_s=100).conn
    connect(h, b"b", expiry_s=10)
    connect(h, b"c")
    assert held(h).away == 0
    h.ask(G, Disconnect(b"a", kept, LOST, None))
    assert held(h).away == 1
    again(h, power, 1)
    assert held(h).away == 1, "the others are not known to have gone"
    connect(h, b"a", expiry_s=100)
    assert held(h).away == 0
    h.unlink(G)
    h.pass_time(60_000)
    h.link(OTHER, "gateway", "g1:1")
    assert (held(h, OTHER).away, held(h, OTHER).expired) == (1, 1), "both are lost with their gateway, and one has expired"
    connect(h, b"a", clean=True, link=OTHER)
    assert held(h, OTHER).away == 0


@pytest.mark.parametrize("power", [True, False])
def test_messages_of_the_log_and_retained_ones_are_counted(power: bool) -> None:
    """The same after a restart; a retained message that follows another, or deletes none, changes nothing."""
    h = linked()
    conn = connect(h, b"c").conn
    route(h, b"#")
    h.ask(G, publish(b"c", conn, b"a", b"b", b"a"))
    found = held(h)
    assert (found.messages, found.retained) == (3, 0) and found.bytes > 0
    h.ask(G, publish(b"c", conn, b"a", b"b", b"a", retain=1))
    assert (held(h).messages, held(h).retained) == (6, 2)
    again(h, power, 1)
    conn = connect(h, b"c").conn
    assert (held(h).messages, held(h).retained) == (6, 2)
    h.ask(G, publish(b"c", conn, b"a", b"x", retain=1)._replace(bodies=[b"\0", b"\0"]))
    assert held(h).retained == 1


def test_a_store_that_nobody_had_counted_is_counted() -> None:
    """One of an older version: its rows are there, and what they are counted in is not."""
    h = linked()
    conn = connect(h, b"c", expiry_s=100).conn
    h.ask(G, publish(b"c", conn, b"a", b"b", retain=1))
    h.ask(G, Disconnect(b"c", conn, LOST, None))
    for name in (b"sessions", b"retained"):
        assert h.core._draft.get(META + name) is not None
        h.core._draft.delete(META + name)
    h.tick()
    again(h, True, 1)
    found = held(h)
    assert (found.away, found.retained) == (1, 2)
