"""Wills at their home: which end of a connection brings one, when a delayed one comes, and that each comes once, whatever crashes.

What clients see of them is in tests/conformance/test_will.py, and in the simulator (tests/sim/wills.py)."""

from __future__ import annotations

from random import Random

import pytest

from mqtt.body import make_body, message_expiry, properties_of
from mqtt.packets import Properties
from shards.frames import DESTROYED, LOST, NORMAL, WITH_WILL, Disconnect, Disconnected, Live, Place, Superseded, Will
from shards.messages import header, published_at_of
from tests.shards.harness import G, Harness, S, connect, linked, poll, route

SECOND = 1_000
BODY = make_body(Properties(message_expiry_interval=60, content_type="c", user_properties=(("z", "1"), ("a", "2"), ("z", "3"))), b"gone")


def will(delay_s: int = 0, topic: bytes = b"w", body: bytes = BODY) -> Will:
    return Will(topic, 1, False, delay_s, body)


def come(h: Harness) -> list[bytes]:
    """Topics of the wills that are stored."""
    found = poll(h, b"#", Place(0))
    return sorted(header(value)[3] for segment in found.segments for value in segment.values)


def again(h: Harness, incarnation: int, power: bool = True) -> None:
    h.reopen(power)
    h.link(G, "gateway", f"g0:{incarnation:03}")
    h.link(S, "session", f"s0:{incarnation:03}")


@pytest.mark.parametrize(("how", "comes"), [(NORMAL, False), (WITH_WILL, True), (LOST, True)])
@pytest.mark.parametrize("expiry_s", [0, 600])
@pytest.mark.parametrize("delay_s", [0, 5])
def test_which_end_brings_it_and_when(how: int, comes: bool, expiry_s: int, delay_s: int) -> None:
    """A DISCONNECT without a word of it takes it away; else it comes when its delay is over, or its session, if there is none at once."""
    h = linked()
    route(h, b"#")
    conn = connect(h, b"c", expiry_s, will=will(delay_s)).conn
    h.ask(G, Disconnect(b"c", conn, how, None))
    waits = comes and delay_s > 0 and expiry_s > 0
    assert come(h) == ([b"w"] if comes and not waits else [])
    h.pass_time(6 * SECOND)
    assert come(h) == ([b"w"] if comes else [])
    h.pass_time(700 * SECOND)
    assert come(h) == ([b"w"] if comes else []), "and once"


@pytest.mark.parametrize(("delay_s", "expiry_s", "after_s"), [(5, 100, 5), (100, 5, 5), (5, 5, 5)])
def test_a_delayed_one_comes_with_the_first_of_two_to_the_second(delay_s: int, expiry_s: int, after_s: int) -> None:
    """The end of its delay or of its session [MQTT-3.1.3-9]."""
    h = linked()
    route(h, b"#")
    conn = connect(h, b"c", expiry_s, will=will(delay_s)).conn
    h.ask(G, Disconnect(b"c", conn, LOST, None))
    h.tick(after_s * SECOND - 20)
    assert come(h) == []
    h.tick(20)
    assert come(h) == [b"w"]


@pytest.mark.parametrize(("delay_s", "clean", "comes"), [(0, False, True), (0, True, True), (5, False, False), (5, True, True)])
def test_a_takeover_brings_it_unless_the_session_goes_on_within_the_delay(delay_s: int, clean: bool, comes: bool) -> None:
    """The older connection is closed by the broker, so its will comes; one that waits is not needed when the client is there again."""
    h = linked()
    route(h, b"#")
    connect(h, b"c", 600, will=will(delay_s))
    connect(h, b"c", 600, clean=clean)
    h.pass_time(10 * SECOND)
    assert come(h) == ([b"w"] if comes else [])


def test_the_newest_connection_decides_which_one_there_is() -> None:
    """A connection without a will has none, whatever the one before had."""
    h = linked()
    route(h, b"#")
    connect(h, b"c", 600, will=will(5, b"old"))
    conn = connect(h, b"c", 600, will=will(5, b"new")).conn
    h.ask(G, Disconnect(b"c", conn, LOST, None))
    h.pass_time(6 * SECOND)
    assert come(h) == [b"new"]
    connect(h, b"c", 600)
    h.ask(G, Disconnect(b"c", connect(h, b"c", 600).conn, LOST, None))
    h.pass_time(20 * SECOND)
    assert come(h) == [b"new"]


@pytest.mark.parametrize("power", [True, False])
@pytest.mark.parametrize("online", [True, False])
def test_a_restart_keeps_it(power: bool, online: bool) -> None:
    """Of a connection that was there when the power went: its gateway is gone with it, so it comes, with its delay counted from then."""
    h = linked()
    route(h, b"#")
    conn = connect(h, b"c", 600, will=will(30)).conn
    if not online:
        h.ask(G, Disconnect(b"c", conn, LOST, None))
    again(h, 1, power)
    assert come(h) == []
    h.pass_time(120 * SECOND)
    assert come(h) == [b"w"]
    again(h, 2, power)
    h.pass_time(1_000 * SECOND)
    assert come(h) == [b"w"]


def test_its_properties_come_as_they_were_said() -> None:
    """User properties in their order; its expiry counts from when it is published, not from when it was left."""
    h = linked()
    route(h, b"#")
    conn = connect(h, b"c", 600, will=will(100)).conn
    h.ask(G, Disconnect(b"c", conn, LOST, None))
    h.pass_time(101 * SECOND)
    (live,) = h.take(G, Live)
    (value,) = [value for segment in poll(h, b"#", Place(0)).segments for value in segment.values]
    assert live.body == header(value)[4] == BODY and message_expiry(BODY) == 60
    assert properties_of(live.body).user_properties == (("z", "1"), ("a", "2"), ("z", "3"))
    assert h.now_ms - published_at_of(value) <= 2 * SECOND


@pytest.mark.parametrize("seed", range(30))
def test_each_comes_once_wherever_the_power_goes(seed: int) -> None:
    """Every connection has a will of its own; what has come stays, nothing comes twice, and of lost connections nothing is missing."""
    rng = Random(seed)
    h = linked()
    route(h, b"#")
    due: set[bytes] = set()
    never: set[bytes] = set()
    for step in range(40):
        topic = b"w/%d" % step
        conn = connect(h, b"c", rng.choice([0, 3, 50]), clean=True, will=will(rng.choice([0, 2, 20]), topic)).conn
        kind = rng.randrange(4)
        if kind == 0:
            h.ask(G, Disconnect(b"c", conn, NORMAL, None))
            never.add(topic)
        else:
            due.add(topic)
            if kind == 1:
                h.ask(G, Disconnect(b"c", conn, LOST, None))
        h.tick(rng.randrange(4 * SECOND), sync=rng.random() < 0.7)
        if rng.random() < 0.3:
            h.commit()
            again(h, step, power=rng.random() < 0.5)
        found = come(h)
        assert len(set(found)) == len(found) and not never & set(found)
    h.ask(G, Disconnect(b"c", connect(h, b"c", 0, clean=True).conn, NORMAL, None))
    h.pass_time(120 * SECOND)
    assert come(h) == sorted(due)


@pytest.mark.parametrize("connected", [True, False], ids=["connected", "away"])
def test_a_session_that_is_destroyed_brings_it_at_once(connected: bool) -> None:
    """Its delay ends with its session; a connection that has it is superseded; the second time, and of another session, nothing happens."""
    h = linked()
    route(h, b"#")
    made = connect(h, b"c", 600, will=will(30))
    if not connected:
        h.ask(G, Disconnect(b"c", made.conn, LOST, None))
    assert h.ask(S, Disconnect(b"c", made.session_id + 1, DESTROYED, None)) == [Disconnected(True)] and come(h) == []
    assert h.ask(S, Disconnect(b"c", made.session_id, DESTROYED, None)) == [Disconnected(False)]
    assert h.take(G, Superseded) == ([Superseded([(b"c", made.conn)])] if connected else [])
    assert h.ask(S, Disconnect(b"c", made.session_id, DESTROYED, None)) == [Disconnected(True)]
    h.pass_time(700 * SECOND)
    assert come(h) == [b"w"]
    assert not connect(h, b"c", 600).present
