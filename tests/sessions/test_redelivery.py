"""A message that its client ends with each time is put out of its way after so many times, in the record that closes its number."""

from __future__ import annotations

import pytest

from mqtt.body import make_body, properties_of, strip_properties
from mqtt.packets import Properties
from sessions.events import GatewayLinked, GatewayLost, TellDeadLetter
from sessions.frames import SendPubrel, Subscribe
from sessions.idle import NEVER_MS
from sessions.options import SessionOptions
from sessions.redelivery import dead_letter
from tests.sessions.scripted import CLIENT, GATEWAY, Script, online

LIMIT = SessionOptions(lazy_commit_ms=0, idle_poll_ms=NEVER_MS, redelivery_limit=2, dead_letter_topic=b"dead")


def again(s: Script, conn: int = 0) -> tuple[int, list[bytes]]:
    """The client ends its connection, if it has one, and comes back: what it gets."""
    if conn:
        s.detach(conn)
        s.rest()
    s.delivered()
    conn = s.attach()
    s.rest()
    return conn, [payload for payload, _, _ in s.delivered()]


@pytest.mark.parametrize("qos", [1, 2])
def test_after_the_limit_a_message_is_a_dead_letter_and_those_behind_it_come(qos: int) -> None:
    """Sent once and twice again; the letter is in the commit that closes its number, and the next one counts from anew."""
    s, conn = online(qos, options=LIMIT)
    s.publish(3, qos=qos)
    s.live()
    s.rest()
    for _ in range(2):
        conn, got = again(s, conn)
        assert got == [b"m0", b"m1", b"m2"] and s.home.letters == []
    told = s.core.counters.dead_letters
    conn, got = again(s, conn)
    assert got == [b"m1", b"m2"]
    (letter,) = s.home.letters
    assert (letter.topic, letter.qos, strip_properties(letter.body)) == (b"dead", qos, b"m0")
    assert properties_of(letter.body).user_properties == (
        ("dead-letter-topic", "a/1"), ("dead-letter-client", CLIENT.decode()), ("dead-letter-count", "3"),
    )  # fmt: skip
    assert s.core.counters.dead_letters == told + 1
    released = [packet_id for frame in s.take_sent() if isinstance(frame, SendPubrel) for packet_id in frame.packet_ids]
    if qos == 2:
        assert released == [s.core._state.by_conn[conn].two.packet_id(1)], "a client that has it waits for that"
        s.pubcomp(conn, *released)
        s.rest()
    conn, got = again(s, conn)
    assert got == [b"m1", b"m2"] and s.core.counters.dead_letters == told + 1
    progress = s.progress()
    assert (progress.committed1, progress.committed2) == ((1, 0) if qos == 1 else (0, 1)) and list(progress.again) == [qos, 2, 1]
    conn, got = again(s, conn)
    assert got == [b"m1", b"m2"]
    conn, got = again(s, conn)
    assert got == [b"m2"] and [strip_properties(one.body) for one in s.home.letters] == [b"m0", b"m1"]


def test_the_count_survives_the_session_actor_and_its_end_counts_for_nothing() -> None:
    """It is in the row of progress; a connection that a process of ours has ended is no fault of the message."""
    s, conn = online(options=LIMIT)
    s.publish(1)
    s.live()
    s.rest()
    for _ in range(5):
        s.start()
        s.owned()
        conn, got = again(s)
        assert got == [b"m0"], "the actor has ended, not the client"
    got = [b""]
    for _ in range(3):
        s.detach(conn)
        s.rest()
        s.start()
        s.owned()
        conn, got = again(s)
    assert got == [] and len(s.home.letters) == 1
    assert conn


def test_the_end_of_a_gateway_counts_for_nothing() -> None:
    """However often."""
    s, conn = online(options=LIMIT)
    s.publish(1)
    s.live()
    s.rest()
    for _ in range(5):
        s.feed(GatewayLost(GATEWAY))
        s.rest()
        s.feed(GatewayLinked(GATEWAY, "gateway-a"))
        conn, got = again(s)
        assert got == [b"m0"]
    assert s.home.letters == [] and conn


def test_a_client_that_leaves_its_connection_for_another_counts() -> None:
    """Half open ones are not noticed earlier."""
    s, conn = online(options=LIMIT)
    s.publish(1)
    s.live()
    s.rest()
    for _ in range(3):
        s.attach()
        s.rest()
    assert len(s.home.letters) == 1 and conn


def test_what_was_acknowledged_or_received_is_not_counted() -> None:
    """After PUBREC an exchange goes on for as long as it takes."""
    s, conn = online(2, options=LIMIT)
    s.publish(1, qos=2)
    s.live()
    s.rest()
    ((_, packet_id, _),) = s.delivered()
    s.pubrec(conn, packet_id)
    s.rest()
    for _ in range(6):
        conn, got = again(s, conn)
        assert got == []
    s.pubcomp(conn, packet_id)
    s.rest()
    assert s.home.letters == [] and s.progress().committed2 == 1


def test_without_the_limit_it_is_sent_for_ever() -> None:
    """And nothing is written down."""
    s, conn = online()
    s.publish(1)
    s.live()
    s.rest()
    for _ in range(6):
        conn, got = again(s, conn)
        assert got == [b"m0"] and list(s.progress().again) == []


def test_a_dead_letter_is_not_made_of_one() -> None:
    """Whoever reads the topic of dead letters and ends with one would make another each time."""
    s, conn = online(options=LIMIT)
    s.publish(1, topic=b"dead")
    s.live()
    s.rest()
    for _ in range(6):
        conn, got = again(s, conn)
        assert got == [b"m0"]
    assert s.home.letters == []


def test_a_crash_before_the_commit_does_it_once() -> None:
    """The count is in the rows, and the letter only in the commit."""
    s, conn = online(options=LIMIT)
    s.publish(1)
    s.live()
    s.rest()
    for _ in range(2):
        conn, _ = again(s, conn)
    s.detach(conn)
    s.rest()
    s.attach()
    for _ in range(6):
        s.tick()
        for query in list(s.queries):
            s.tell(query)
    assert [len(entry.letters) for entry in s.commits()] == [1] and s.home.letters == []
    s.start()
    s.owned()
    conn, got = again(s)
    assert got == [] and len(s.home.letters) == 1
    assert again(s, conn)[1] == [] and len(s.home.letters) == 1


def test_a_retained_copy_may_be_one_and_the_log_says_of_whom() -> None:
    """It comes from no stream; and it is said when it is committed."""
    s, conn = online(options=LIMIT)
    s.publish(1, topic=b"t", flags=4)
    s.unsubscribe(conn, b"#")
    s.rest()
    s.gateway(Subscribe(conn, 1, [(b"t", 1, 0, 0)], 0))
    s.rest()
    said: list[TellDeadLetter] = []
    for _ in range(3):
        s.detach(conn)
        s.rest()
        conn = s.attach()
        for _ in range(8):
            s.tick()
            for query in list(s.queries):
                s.tell(query)
            while s.asked:
                said += [effect for effect in s.commit() if isinstance(effect, TellDeadLetter)]
    assert said == [TellDeadLetter(CLIENT, b"t", 3)] and len(s.home.letters) == 1


def test_a_dead_letter_keeps_what_it_was_published_with_but_its_expiry() -> None:
    """Its own user properties come first."""
    body = make_body(Properties(message_expiry_interval=5, content_type="x", user_properties=(("a", "b"),)), b"payload")
    made = dead_letter(body, b"t", b"c", 7)
    found = properties_of(made)
    assert strip_properties(made) == b"payload" and found.message_expiry_interval is None and found.content_type == "x"
    assert found.user_properties[0] == ("a", "b") and found.user_properties[-1] == ("dead-letter-count", "7")
