"""Homes of clients: who may write, what ends with a connection, what a session leaves behind."""

from __future__ import annotations

from typing import Any

import pytest

from access.identity import Identity
from shards.engine import HOME_FAMILY
from shards.frames import (
    LOST,
    NO_SESSION,
    NORMAL,
    OLD_CONN,
    OLD_TOKEN,
    REPEATED,
    TAKEN,
    Check,
    Checked,
    Commit,
    CommitDone,
    Connect,
    Connected,
    Disconnect,
    Disconnected,
    Live,
    Load,
    Loaded,
    Own,
    Owned,
    Place,
    Published,
    Query,
    Release,
    Released,
    Result,
    Superseded,
    Will,
    Work,
    WorkDone,
)  # fmt: skip
from shards.ids import EXPIRY_NEVER
from shards.rows import (
    ACTIVE,
    CONNECTION,
    SESSION,
    SUBSCRIPTION,
    ConnectionRow,
    SessionRow,
    SubscriptionRow,
    client_key,
    pack_subscription,
    u64,
    unpack_row,
)
from tests.shards.harness import G, Harness, S, connect, linked, poll, publish, route, topics


def test_late_frames_of_an_older_connection_have_no_effect() -> None:
    """PUBLISH, PUBREL and DISCONNECT of a connection that was taken over are dropped whole; its gateway is told."""
    h = linked()
    h.link(3, "gateway", "g1:a")
    old = connect(h, b"c", expiry_s=60, will=Will(b"w", 1, False, 0, b"\0gone")).conn
    new = connect(h, b"c", expiry_s=60, link=3)
    assert new.present and new.conn > old
    assert h.take(G, Superseded) == [Superseded([(b"c", old)])]
    position = route(h, b"#")
    assert h.ask(G, publish(b"c", old, b"t"), Release(b"c", old, [1]), Disconnect(b"c", old, LOST, None)) == [
        Published(True, b""), Released(True, b""), Disconnected(True),
    ]  # fmt: skip
    assert topics(poll(h, b"#", Place(position))) == []
    assert h.ask(G, Check([(b"c", old), (b"c", new.conn)])) == [Checked([old])]
    assert h.ask(3, publish(b"c", new.conn, b"t")) == [Published(False, b"")]


def row_of(h: Harness, family: bytes) -> list[Any]:
    value = h.engine.get(HOME_FAMILY, client_key(family, b"c"))
    assert value is not None
    return unpack_row(value)


def test_the_rows_of_a_client_say_whose_they_are() -> None:
    """The session has the name of who made it; the identity is there while it is connected, and then with its will."""
    h = linked()
    will = Will(b"w", 1, False, 30, b"\0gone")
    packed, other = Identity("ann", "password").pack(), Identity("ann", "jwt").pack()
    (made,) = h.ask(G, Connect(b"c", False, 60, 5, will, False, b"ann", packed))
    assert isinstance(made, Connected)

    def rows() -> tuple[bytes | None, bytes, bool]:
        session = SessionRow(*row_of(h, SESSION))
        row = ConnectionRow(*row_of(h, CONNECTION))
        return session.user, row.identity, row.will is not None

    assert rows() == (b"ann", packed, True)
    h.reopen()
    h.link(G, "gateway", "g0:a")
    assert h.ask(G, Disconnect(b"c", made.conn, LOST, None)) == [Disconnected(False)]
    assert rows() == (b"ann", packed, True), "its will is still to come"
    h.pass_time(31_000)
    assert rows() == (b"ann", b"", False)
    (resumed,) = h.ask(G, Connect(b"c", False, 60, 5, None, False, b"ann", other))
    assert isinstance(resumed, Connected) and resumed.present and rows() == (b"ann", other, False)


def test_connection_numbers_grow_over_crashes() -> None:
    """A connection of a later life of the shard is never taken for an older one."""
    h = linked()
    first = connect(h, b"a").conn
    h.reopen()
    h.link(G, "gateway", "g0:b")
    second = connect(h, b"b").conn
    assert second > first


def test_a_qos2_id_is_known_until_released_whatever_crashes() -> None:
    """A repeat is answered and not stored; after PUBREL the id is new again."""
    h = linked()
    conn = connect(h, b"p", expiry_s=60).conn
    position = route(h, b"t")
    message = publish(b"p", conn, b"t", qos=2, ids=[5], keep=True)
    assert h.ask(G, message) == [Published(False, b"")]
    h.reopen()
    h.link(G, "gateway", "g0:a")
    h.link(S, "session", "s0:a")
    assert h.ask(G, message) == [Published(False, bytes([REPEATED]))]
    assert h.ask(G, Release(b"p", conn, [5, 6])) == [Released(False, b"\1\0")]
    assert h.ask(G, message) == [Published(False, b"")]
    assert topics(poll(h, b"t", Place(position))) == [b"t", b"t"]


def test_commits_are_fenced_by_token_session_and_connection() -> None:
    """Each wrong one is refused inside the record, and writes nothing."""
    h = linked()
    connected = connect(h, b"c", expiry_s=60)
    (owned,) = h.ask(S, Own())
    assert isinstance(owned, Owned)
    row = (SUBSCRIPTION, u64(1), b"x")
    sid, conn = connected.session_id, connected.conn
    assert h.ask(S, Commit(owned.token, b"c", sid, conn, [row], [])) == [CommitDone(TAKEN)]
    assert h.ask(S, Commit(owned.token, b"c", sid + 256, conn, [], [(SUBSCRIPTION, u64(1))])) == [CommitDone(NO_SESSION)]
    newer = connect(h, b"c", expiry_s=60).conn
    assert h.ask(S, Commit(owned.token, b"c", sid, conn, [row], [])) == [CommitDone(TAKEN)]
    assert h.ask(S, Commit(owned.token, b"c", sid, newer, [row], [])) == [CommitDone(TAKEN)]
    assert h.ask(S, Commit(owned.token, b"c", sid, conn, [], [(SUBSCRIPTION, u64(1))])) == [CommitDone(OLD_CONN)]
    assert h.ask(S, Commit(owned.token, b"c", sid, newer + 256, [], [(SUBSCRIPTION, u64(1))])) == [CommitDone(OLD_CONN)]
    h.link(4, "session", "s0:b")
    (next_owner,) = h.ask(4, Own())
    assert isinstance(next_owner, Owned) and next_owner.token > owned.token
    assert h.ask(S, Commit(owned.token, b"c", sid, conn, [], [(SUBSCRIPTION, u64(1))])) == [CommitDone(OLD_TOKEN)]
    h.receive(4, Query(1, Load(b"c")))
    h.tick()
    (result,) = h.take(4, Result)
    assert isinstance(result.told, Loaded)
    assert (result.told.session_id, [tuple(found) for found in result.told.rows]) == (sid, [row])


def subscribe_row(h: Harness, client: bytes, connected: Connected, token: int, sub: int, topic_filter: bytes) -> None:
    row = pack_subscription(SubscriptionRow(topic_filter, 1, 0, 0, ACTIVE, []))
    assert h.ask(S, Commit(token, client, connected.session_id, connected.conn, [(SUBSCRIPTION, u64(sub), row)], [])) == [CommitDone(TAKEN)]


@pytest.mark.parametrize("how", ["clean start", "expiry", "expiry over a crash"])
def test_an_ended_session_leaves_work_until_it_is_done(how: str) -> None:
    """Its rows go at once, its routes become work for the owner, told and kept until WorkDone."""
    h = linked()
    connected = connect(h, b"c", expiry_s=10)
    (owned,) = h.ask(S, Own())
    assert isinstance(owned, Owned)
    subscribe_row(h, b"c", connected, owned.token, 7, b"t")
    if how == "clean start":
        fresh = connect(h, b"c", expiry_s=10, clean=True)
        assert not fresh.present and fresh.session_id != connected.session_id
    else:
        h.ask(G, Disconnect(b"c", connected.conn, NORMAL, None))
        if how == "expiry":
            h.tick(9_999)
            assert h.take(S, Work) == []
            h.tick(2)
        else:
            h.reopen()
            h.link(S, "session", "s0:a")
            h.tick(10_001)
    assert h.take(S, Work) == [Work([(b"c", 7, b"t")], owned.token)]
    h.reopen()
    h.link(S, "session", "s1:a")
    (again,) = h.ask(S, Own())
    assert isinstance(again, Owned) and [tuple(item) for item in again.work] == [(b"c", 7, b"t")]
    h.ask(S, WorkDone(again.token, [(b"c", 7)]))
    (clean,) = h.ask(S, Own())
    assert isinstance(clean, Owned) and clean.work == []


def test_a_session_without_end_never_expires_and_a_resume_cancels_the_timer() -> None:
    """However long it waits; and a timer set at a former disconnect ends nothing later."""
    h = linked()
    forever = connect(h, b"a", expiry_s=EXPIRY_NEVER)
    short = connect(h, b"b", expiry_s=10)
    h.ask(G, Disconnect(b"a", forever.conn, NORMAL, None), Disconnect(b"b", short.conn, NORMAL, None))
    h.tick(9_000)
    assert connect(h, b"b", expiry_s=10).present
    h.pass_time(1_000_000)
    assert connect(h, b"a", expiry_s=EXPIRY_NEVER).present and connect(h, b"b", expiry_s=10).present


def test_a_disconnect_can_change_the_expiry_and_zero_ends_the_session() -> None:
    """DISCONNECT with expiry 0 leaves nothing to resume."""
    h = linked()
    first = connect(h, b"c", expiry_s=60)
    h.ask(G, Disconnect(b"c", first.conn, NORMAL, 0))
    assert not connect(h, b"c", expiry_s=60).present


@pytest.mark.parametrize(("how", "told"), [(NORMAL, 0), (LOST, 1)])
def test_a_will_is_stored_in_the_record_that_ends_its_connection(how: int, told: int) -> None:
    """Stored for durable subscribers, told to gateways for live ones, once; a normal end discards it."""
    h = linked()
    position = route(h, b"w")
    connected = connect(h, b"c", will=Will(b"w", 1, False, 0, b"\0gone"))
    h.ask(G, Disconnect(b"c", connected.conn, how, None))
    h.ask(G, Disconnect(b"c", connected.conn, how, None))
    assert len(topics(poll(h, b"w", Place(position)))) == told
    assert h.take(G, Live) == [Live(b"c", 2, b"w", b"\0gone")] * told


def test_a_delayed_will_waits_and_a_resume_cancels_it() -> None:
    """Of two wills with a delay only the one whose client stays away is published, and not before its time."""
    h = linked()
    position = route(h, b"w")
    will = Will(b"w", 1, False, 5, b"\0gone")
    one = connect(h, b"a", expiry_s=60, will=will)
    two = connect(h, b"b", expiry_s=60, will=will)
    h.ask(G, Disconnect(b"a", one.conn, LOST, None), Disconnect(b"b", two.conn, LOST, None))
    h.tick(4_000)
    assert connect(h, b"b", expiry_s=60).present
    assert topics(poll(h, b"w", Place(position))) == []
    h.tick(2_000)
    h.tick(1)
    assert topics(poll(h, b"w", Place(position))) == [b"w"]


@pytest.mark.parametrize("delay_s", [0, 50])
@pytest.mark.parametrize("connected", [True, False])
def test_a_clean_start_publishes_the_will_of_the_session_it_ends_once(delay_s: int, connected: bool) -> None:
    """A clean start over a live connection published its will twice: when the connection was fenced and when its session ended."""
    h = linked()
    position = route(h, b"#")
    first = connect(h, b"c", expiry_s=60, will=Will(b"w", 2, False, delay_s, b"\0gone"))
    if not connected:
        h.ask(G, Disconnect(b"c", first.conn, LOST, None))
    assert not connect(h, b"c", expiry_s=60, clean=True).present
    assert topics(poll(h, b"#", Place(position))) == [b"w"]


def test_a_session_that_was_resumed_to_end_with_its_connection_ends_when_that_is_taken_over() -> None:
    """It went on with the connection that took over, although its client had said expiry 0, and its delayed will was cancelled."""
    h = linked()
    position = route(h, b"#")
    first = connect(h, b"c", expiry_s=60)
    h.ask(G, Disconnect(b"c", first.conn, NORMAL, None))
    assert connect(h, b"c", expiry_s=0, will=Will(b"w", 1, False, 50, b"\0gone")).present
    assert not connect(h, b"c", expiry_s=60).present
    assert topics(poll(h, b"#", Place(position))) == [b"w"]


def test_a_gateway_that_is_silent_for_20_seconds_is_lost_and_cannot_come_back() -> None:
    """Its connections end under new numbers, so what it still sends is refused."""
    h = linked()
    position = route(h, b"w")
    connected = connect(h, b"c", expiry_s=600, will=Will(b"w", 1, False, 0, b"\0gone"))
    h.tick(19_000)
    assert topics(poll(h, b"w", Place(position))) == []
    h.tick(2_000)
    h.tick(1_001)
    assert topics(poll(h, b"w", Place(position))) == [b"w"]
    assert h.ask(G, publish(b"c", connected.conn, b"w")) == [Published(True, b"")]
    assert connect(h, b"c", expiry_s=600).present


def test_work_that_was_pushed_while_the_owner_was_away_is_told_when_it_links_again() -> None:
    """Otherwise the routes of an ended session stay until the next owner."""
    h = linked()
    connected = connect(h, b"c", expiry_s=10)
    (owned,) = h.ask(S, Own())
    assert isinstance(owned, Owned)
    subscribe_row(h, b"c", connected, owned.token, 7, b"t")
    h.unlink(S)
    connect(h, b"c", expiry_s=10, clean=True)
    h.link(9, "session", "s0:a")
    h.tick()
    assert h.take(9, Work) == [Work([(b"c", 7, b"t")], owned.token)]


def test_work_goes_to_the_successor_of_an_owner_that_is_gone() -> None:
    """A zombie took the sessions back from its successor, and died: nobody else would hear of the work before a client connects."""
    h = linked()
    connected = connect(h, b"c", expiry_s=10)
    h.link(8, "session", "s0:b")
    (successor,) = h.ask(8, Own())
    (owned,) = h.ask(S, Own())
    assert isinstance(owned, Owned) and isinstance(successor, Owned) and owned.token > successor.token
    subscribe_row(h, b"c", connected, owned.token, 7, b"t")
    h.link(7, "session", "s1:c")
    h.unlink(S)
    connect(h, b"c", expiry_s=10, clean=True)
    h.tick()
    assert [told for told in h.take(8, Work) if told.work] == [Work([(b"c", 7, b"t")], owned.token)]
    assert h.take(7, Work) == []


def test_work_waits_for_an_owner_that_is_away_and_does_not_go_to_the_one_before_it() -> None:
    """The older one would take the sessions from the newer one."""
    h = linked()
    connected = connect(h, b"c", expiry_s=10)
    h.link(8, "session", "s0:b")
    (owned,) = h.ask(8, Own())
    assert isinstance(owned, Owned)
    subscribe_row(h, b"c", connected, owned.token, 7, b"t")
    h.unlink(8)
    connect(h, b"c", expiry_s=10, clean=True)
    h.tick()
    assert h.take(S, Work) == []
    h.link(9, "session", "s0:b")
    h.tick()
    assert h.take(9, Work) == [Work([(b"c", 7, b"t")], owned.token)]


def test_who_is_replaced_is_told_and_the_one_who_is_left_is_the_next() -> None:
    """Two session actors of one home: the owner of before hears of it at once, and of the end of the newer one, to take its place."""
    h = linked()
    h.ask(S, Own())
    h.link(9, "session", "s0:b")
    h.tick()
    assert h.take(9, Work) == [Work([], 1)], "it learns that somebody is there"
    h.ask(9, Own())
    assert h.take(S, Work) == [Work([], 2)]
    h.ask(S, Own())
    assert h.take(9, Work) == [Work([], 3)] and not h.take(S, Work)
    h.unlink(S)
    h.tick()
    assert h.take(9, Work) == [Work([], 3, left=True)]
