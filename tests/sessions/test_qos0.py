"""Messages that leave at QoS 0 from the store (store_qos0): they have no number, so their place is committed before they leave."""

from __future__ import annotations

import pytest

from sessions.bodies import POSITIONS
from sessions.frames import ROUTED, Attach, Attached, Hold, Subacked, Subscribe
from sessions.idle import NEVER_MS
from sessions.options import ReadOverrides, SessionOptions
from shards.frames import Route
from shards.rows import PROGRESS, SUBSCRIPTION
from tests.sessions.scripted import CLIENT, Script

STORED = SessionOptions(lazy_commit_ms=0, idle_poll_ms=NEVER_MS, store_qos0=True, batch_size=4)


def online(qos: int = 0, receive_max: int = 100, options: SessionOptions = STORED) -> tuple[Script, int]:
    s = Script(options=options)
    s.owned()
    conn = s.attached(receive_max=receive_max)
    s.subscribed(conn, b"#", qos)
    s.rest()
    return s, conn


def payloads(s: Script) -> list[bytes]:
    return [payload for payload, _, _ in s.delivered()]


def test_a_subscription_of_qos_0_has_a_route_and_without_the_option_has_none() -> None:
    """That is what makes its messages stored; UNSUBSCRIBE takes it away again."""
    s, conn = online()
    assert list(s.home.routes.values()) == [b"#"]
    s.unsubscribe(conn, b"#")
    s.rest()
    assert s.home.routes == {}
    s, conn = online(options=SessionOptions(lazy_commit_ms=0, idle_poll_ms=NEVER_MS))
    assert s.home.routes == {}


def test_qos_0_leaves_when_the_place_behind_it_is_committed() -> None:
    """So no crash can make it come again."""
    s, _ = online()
    s.publish(2, qos=0)
    s.live()
    s.tick()
    assert payloads(s) == []
    assert s.commits()
    s.answer()
    s.tick()
    assert s.delivered() == [(b"m0", 0, 0x30), (b"m1", 0, 0x30)]
    assert s.range_rows() == []


@pytest.mark.parametrize("committed", [False, True])
def test_a_crash_after_the_commit_loses_it_and_one_before_does_not(committed: bool) -> None:
    """Once at most, whenever the process dies; what was not committed was not sent either."""
    s, _ = online()
    s.publish(1, qos=0)
    s.live()
    s.tick()
    if committed:
        s.home.request([entry for ask in s.asked for entry in ask.entries])
    assert payloads(s) == []
    s.start()
    s.owned()
    s.attach()
    s.rest()
    assert payloads(s) == ([] if committed else [b"m0"])


def test_qos_0_passes_a_full_window_and_the_rest_keeps_its_order() -> None:
    """What needs no acknowledgement does not wait for one; it would be lost with the connection."""
    s, conn = online(qos=1, receive_max=1)
    for n in range(6):
        s.publish(1, qos=n % 2)
    s.live()
    s.rest()
    assert sorted(payloads(s)) == [b"m0", b"m1", b"m2", b"m4"]
    for expected in (b"m3", b"m5"):
        s.puback(conn, 1 if expected == b"m3" else 2)
        s.rest()
        assert payloads(s) == [expected]


def test_qos_0_passes_nothing_where_messages_carry_their_positions() -> None:
    """A position says that everything up to there has come: a client goes on from it by itself."""
    s = Script(options=STORED)
    s.owned()
    conn = s.attached(receive_max=1)
    s.subscribed(conn, b"#", 1, options=POSITIONS)
    s.rest()
    for n in range(4):
        s.publish(1, qos=(0, 1, 1, 0)[n])
    s.live()
    s.rest()
    came = b"".join(payloads(s))
    assert b"m1" in came and b"m2" not in came and b"m3" not in came
    s.puback(conn, 1)
    s.rest()
    assert [payload[-2:] for payload in payloads(s)] == [b"m2", b"m3"]


def test_a_range_with_both_is_read_again_without_its_qos_0() -> None:
    """Its numbers come again with DUP, what had none does not."""
    s, conn = online(qos=1)
    s.publish(1, qos=0)
    s.publish(1, qos=1)
    s.publish(1, qos=0)
    s.live()
    s.rest()
    assert payloads(s) == [b"m0", b"m1", b"m2"]
    s.detach(conn)
    s.rest()
    s.attach()
    s.rest()
    assert s.delivered() == [(b"m1", 1, 0x3A)]


def test_a_client_that_does_not_read_is_given_nothing_more_until_it_does() -> None:
    """Without acknowledgements there is nothing else to stop what leaves at QoS 0."""
    s, conn = online()
    s.gateway(Hold(conn, True))
    s.publish(9, qos=0)
    s.live()
    s.rest()
    assert payloads(s) == []
    assert s.polls() == []
    s.gateway(Hold(conn, False))
    s.rest()
    assert payloads(s) == [b"m%d" % n for n in range(9)]


def test_what_waits_for_the_window_waits_for_the_client_too() -> None:
    """An acknowledgement that makes room brings nothing while the client does not read; what it brings then is in order."""
    s = Script()
    s.owned()
    conn = s.attached(receive_max=2)
    s.subscribed(conn, b"#", 1)
    s.rest()
    s.publish(5, qos=1)
    s.live()
    s.rest()
    assert payloads(s) == [b"m0", b"m1"]
    s.gateway(Hold(conn, True))
    s.puback(conn, 1, 2)
    s.rest()
    assert payloads(s) == []
    s.gateway(Hold(conn, False))
    s.rest()
    assert payloads(s) == [b"m2", b"m3"]
    s.puback(conn, 3, 4)
    s.rest()
    assert payloads(s) == [b"m4"]


def test_a_connection_that_is_held_ends_and_the_next_one_is_not() -> None:
    """It is said of a connection, not of a session."""
    s, conn = online()
    s.gateway(Hold(conn, True))
    s.detach(conn)
    s.rest()
    s.publish(1, qos=0)
    s.attach()
    s.rest()
    assert payloads(s) == [b"m0"]


def test_qos_up_and_down_keep_route_and_place() -> None:
    """Between 0 and 1 nothing is lost or repeated: it stays the same subscription."""
    s, conn = online(qos=0)
    routes = dict(s.home.routes)
    s.publish(1, qos=1)
    s.gateway(Subscribe(conn, 5, [(b"#", 1, 0, 2)], 0))
    s.rest()
    s.live()
    s.rest()
    s.publish(1, qos=1)
    s.live()
    s.rest()
    assert [payload for payload, _, _ in s.delivered()] == [b"m0", b"m1"]
    assert s.home.routes == routes
    assert not [entry for ask in s.asked for entry in ask.entries if isinstance(entry, Route)]


def test_a_subscription_from_before_the_option_stays_live_until_it_is_made_again() -> None:
    """Attached says which of QoS 0 have a route, so that the gateway sends the others everything live."""
    s = Script(options=SessionOptions(lazy_commit_ms=0, idle_poll_ms=NEVER_MS))
    s.owned()
    conn = s.attached()
    s.subscribed(conn, b"old", 0)
    s.options = STORED
    s.start()
    s.owned()
    conn = s.attached()
    s.subscribed(conn, b"new", 0)
    s.detach(conn)
    s.rest()
    s.sent.clear()
    conn = s.attach()
    s.rest()
    (told,) = [frame for frame in s.sent if isinstance(frame, Attached)]
    assert {row[0]: row[2] for row in told.subscriptions} == {b"old": 0, b"new": ROUTED}
    s.gateway(Subscribe(conn, 6, [(b"old", 0, 0, 2)], 0))
    s.rest()
    assert Subacked(conn, 6, [0]) in s.sent
    assert set(s.home.routes.values()) == {b"old", b"new"}


def test_a_subscription_made_under_the_option_is_live_only_at_the_first_connection_without_it() -> None:
    """Its route and its places go in the commit that says so; Attached does not call it routed."""
    s, _ = online()
    assert s.home.routes
    s.options = SessionOptions(lazy_commit_ms=0, idle_poll_ms=NEVER_MS)
    s.start()
    s.owned()
    s.sent.clear()
    conn = s.attach()
    s.rest()
    assert Attached(conn, 0, [(b"#", 0, 0, 0)]) in s.sent
    assert s.home.routes == {}
    assert sorted(family for family, _ in s.home.rows[CLIENT]) == [PROGRESS, SUBSCRIPTION]


@pytest.mark.parametrize("of_connection", [None, 3])
def test_the_batch_of_a_zone_bounds_the_polls_of_its_subscriptions(of_connection: int | None) -> None:
    """That of the topics, else the one that the gateway says of the connection, else everybody's; a new connection may change it."""
    s = Script(options=SessionOptions(lazy_commit_ms=0, idle_poll_ms=NEVER_MS, topic_zones=(((b"slow/",), ReadOverrides(batch_size=2)),)))
    s.owned()
    conn = s.attached()
    for filter in (b"slow/#", b"a/#"):
        s.subscribed(conn, filter)
    s.detach(conn)
    s.rest()
    conn, present, session_id, _ = s.home.connect(CLIENT)
    s.gateway(Attach(CLIENT, conn, session_id, present, 5, 100, batch_size=of_connection, renew_streams_ms=7))
    for _ in range(4):
        s.tick()
        for ask in list(s.asked):
            s.commit(ask)
        if not s.polls():
            s.answer()
    assert {poll.filter: (poll.count_max, poll.renew_ms) for poll in s.polls()} == {b"slow/#": (2, 7), b"a/#": (of_connection or 100, 7)}
