"""Connections of sessions in memory: who is taken, who is refused, and when a session is forgotten."""

from __future__ import annotations

from mqtt.reason import ReasonCode
from sessions.frames import Attach, Attached, Detach, SessionClosed
from sessions.options import SessionOptions
from shards.frames import Own
from shards.ids import EXPIRY_NEVER
from tests.sessions.memory.scripted import LINK, OTHER_LINK, TOKEN, Script, owned

AWAY = ReasonCode.SERVER_UNAVAILABLE


def test_a_connection_waits_for_the_token() -> None:
    """Before it the actor does not know whether the session is its own."""
    s = Script()
    conn = s.attach(present=False)
    assert s.take() == []
    s.own()
    assert s.take() == [(LINK, Attached(conn, 0, []))]


def test_who_waits_for_the_token_may_be_followed_by_a_newer_connection_or_leave() -> None:
    """One waits for each client, and nobody who has left is attached."""
    s = Script()
    older = s.attach(present=False)
    newer = s.attach(session_id=51, present=False, link=OTHER_LINK)
    assert s.take() == [(LINK, Attached(older, AWAY, []))]
    gone = s.attach(b"gone", 52, present=False)
    s.frame(Detach(gone))
    s.frame(Attach(b"c", older, 50, False, 5, 10, TOKEN, 10))
    assert s.take() == [(LINK, Attached(older, AWAY, []))]
    s.own()
    assert s.take() == [(OTHER_LINK, Attached(newer, 0, []))]


def test_a_session_of_another_owner_is_refused_and_its_home_is_to_end_it() -> None:
    """Made under an older token, or while nobody had one: it is in nobody's memory."""
    s = owned()
    for token in (TOKEN - 1, -1):
        for present in (True, False):
            conn = s.attach(present=present, token=token)
            assert s.take() == [(LINK, Attached(conn, AWAY, [], False))]


def test_a_session_that_should_be_here_and_is_not_is_refused() -> None:
    """The next try of the client begins anew; a session without messages and subscriptions would only look like its own."""
    s = owned()
    conn = s.attach(present=True)
    assert s.take() == [(LINK, Attached(conn, AWAY, [], False))]


def test_a_newer_token_says_that_all_sessions_are_gone() -> None:
    """Another process owns the home: connections are closed, and nothing is announced any more."""
    s = owned()
    conn = s.attached(present=False)
    s.subscribe(conn, b"t")
    late = s.attach(b"d", 60, present=False, token=TOKEN + 1)
    # Its session may be there, so its home is not to end it.
    assert s.take() == [(LINK, SessionClosed(conn, ReasonCode.SERVER_SHUTTING_DOWN)), (LINK, Attached(late, AWAY, []))]
    s.tick()
    assert s.interest[LINK][-1].remove_all == [b"t"]
    s.forward(b"x")
    assert s.payloads() == []
    # There is a client here that wants it, so it asks to be the owner again.
    s.token = TOKEN + 2
    conn = s.attach(b"d", 61, present=False)
    assert [type(ask.entries[0]) for ask in s.asked] == [Own]
    s.answer_own()
    assert s.take() == [(LINK, Attached(conn, 0, []))]


def test_a_newer_connection_takes_over() -> None:
    """At whichever gateway; the older one gets 0x8E and is not heard any more."""
    s = owned()
    old = s.attached(present=False)
    s.subscribe(old, b"t")
    new = s.attach(link=OTHER_LINK)
    assert s.take() == [(LINK, SessionClosed(old, ReasonCode.SESSION_TAKEN_OVER)), (OTHER_LINK, Attached(new, 0, []))]
    s.frame(Detach(old))
    s.forward(b"x")
    assert [got.conn for got in s.delivered()] == [new]
    late = old - 1
    s.frame(Attach(b"c", late, 50, True, 5, 10, TOKEN, 10))
    assert s.take() == [(LINK, Attached(late, AWAY, []))]


def test_the_same_connection_over_a_new_link_is_not_closed() -> None:
    """The gateway's link broke and is back before the break was heard here."""
    s = owned()
    conn = s.attached(present=False)
    s.frame(Attach(b"c", conn, 50, False, 5, 10, TOKEN, 10), OTHER_LINK)
    assert s.take() == [(OTHER_LINK, Attached(conn, 0, []))]
    s.unlink(LINK)
    s.subscribe(conn, b"t", link=OTHER_LINK)
    s.forward(b"x", link=OTHER_LINK)
    assert s.payloads() == [b"x"]


def test_a_session_with_another_id_is_another_session() -> None:
    """Clean start: what the older one had is gone, and its subscriptions are told to be."""
    s = owned()
    conn = s.attached(present=False)
    s.subscribe(conn, b"t")
    s.detach(conn)
    s.forward(b"old")
    s.attached(session_id=51, present=False)
    assert s.payloads() == []
    assert s.interest[LINK][-1].remove_all == [b"t"]
    assert s.counters.memory_ended == 1 and s.core._memory.held_bytes == 0


def test_a_durable_session_of_the_client_ends_the_one_in_memory() -> None:
    """It was made by a newer connection, and the home has one session for each client."""
    s = owned()
    conn = s.attached(present=False)
    s.frame(Attach(b"c", conn + 1, 51, False, 5, 10), OTHER_LINK)
    assert s.take() == [(LINK, SessionClosed(conn, ReasonCode.SESSION_TAKEN_OVER))]
    assert s.core._memory.sessions == 0


def test_a_session_is_forgotten_when_its_expiry_is_over_and_never_before() -> None:
    """Counted from the turn in which its end was heard, and somewhat longer than its home does."""
    s = owned(SessionOptions(forget_after_ms=10_000))
    conn = s.attached(present=False, expiry_s=60)
    s.subscribe(conn, b"t")
    s.now_ms += 500_000  # nothing happened for long: the clock of the core is old
    s.detach(conn)
    s.tick(69_999)
    assert s.core._memory.sessions == 1
    s.tick(1)
    assert s.core._memory.sessions == 0
    assert s.interest[LINK][-1].remove_all == [b"t"]


def test_who_comes_back_in_time_is_not_forgotten() -> None:
    """The deadline of an earlier absence means nothing."""
    s = owned(SessionOptions(forget_after_ms=0))
    conn = s.attached(present=False, expiry_s=60)
    s.detach(conn)
    s.tick(59_000)
    conn = s.attached(expiry_s=60)
    s.tick(59_000)
    s.detach(conn)
    s.tick(59_000)
    assert s.core._memory.sessions == 1
    s.tick(1_000)
    assert s.core._memory.sessions == 0


def test_deadlines_of_earlier_absences_do_not_pile_up() -> None:
    """A client that comes and goes a thousand times has one deadline in the end, and it is the right one."""
    s = owned(SessionOptions(forget_after_ms=0))
    conn = s.attached(present=False, expiry_s=1_000_000)
    for _ in range(1000):
        s.detach(conn)
        conn = s.attached(expiry_s=1_000_000)
    s.detach(conn)
    assert len(s.core._memory._attaching._deadlines) < 100
    s.tick(1_000_000_000)
    assert s.core._memory.sessions == 0


def test_disconnect_may_give_another_expiry_and_some_sessions_never_end() -> None:
    """What DISCONNECT says counts instead of what CONNECT said."""
    s = owned(SessionOptions(forget_after_ms=0))
    s.detach(s.attached(b"a", 51, present=False, expiry_s=10), expiry_s=100)
    s.detach(s.attached(b"b", 52, present=False, expiry_s=100), expiry_s=0)
    s.detach(s.attached(b"c", 53, present=False, expiry_s=EXPIRY_NEVER))
    s.tick()
    assert s.core._memory.sessions == 2
    s.tick(99_000)
    assert s.core._memory.sessions == 2
    s.tick(1_000_000_000)
    assert s.core._memory.sessions == 1


def test_a_lost_gateway_detaches_its_connections() -> None:
    """The sessions stay and take messages from other gateways."""
    s = owned()
    conn = s.attached(present=False)
    s.subscribe(conn, b"t")
    s.unlink(LINK)
    s.forward(b"x", link=OTHER_LINK)
    s.attached(link=OTHER_LINK)
    assert s.payloads() == [b"x"]
