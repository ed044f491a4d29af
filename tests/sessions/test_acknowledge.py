"""Acknowledgements: QoS 2 step by step, out of order, repeated, of the wrong kind."""

from __future__ import annotations

import pytest

from mqtt.reason import ReasonCode
from sessions.events import ToGateway
from sessions.frames import PUBACK, Acked, SendPubrel, SessionClosed
from shards.rows import ProgressRow
from tests.sessions.scripted import GATEWAY, families, online

AT = 1_700_000_000_000


def test_qos_2_leaves_after_the_commit_of_its_range() -> None:
    """And a QoS 1 message behind it does not overtake; PUBREL leaves after the commit of PUBREC; then it is finished."""
    s, conn = online(qos=2)
    s.publish(1, qos=2)
    s.publish(1, qos=1)
    s.live()
    s.tick()
    assert s.delivered() == []
    (commit,) = s.commits()
    assert families(commit) == "pqr"
    s.commit()
    assert s.delivered() == []
    s.tick()
    assert s.delivered() == [(b"m0", 0x8001, 0x34), (b"m1", 1, 0x32)]
    assert s.progress().sent2 == 1

    assert s.pubrec(conn, 0x8001) == []
    s.tick()
    (commit,) = s.commits()
    assert families(commit) == "q"
    assert s.sent == []
    s.commit()
    assert s.progress().received2 == [1]
    assert s.tick() == [ToGateway(GATEWAY, SendPubrel(conn, [0x8001]))]
    s.pubcomp(conn, 0x8001)
    s.puback(conn, 1)
    s.tick()
    assert [families(commit) for commit in s.commits()] == ["q-r"]
    s.rest()
    assert s.progress() == ProgressRow(2, 1, 2, 1, 1, 2, 1, [])


def test_a_range_that_comes_while_a_commit_is_under_way_waits_for_the_next() -> None:
    """The commit under way does not hold it."""
    s, _ = online(qos=2)
    s.publish(1, qos=2)
    s.live()
    s.tick()
    s.publish(1, qos=2)
    s.live()
    s.tick()
    assert len(s.asked) == 1
    s.commit()
    s.tick()
    assert s.delivered() == [(b"m0", 0x8001, 0x34)]
    s.commit()
    s.tick()
    assert s.delivered() == [(b"m1", 0x8002, 0x34)]


def test_pubrec_holds_the_window_until_pubcomp() -> None:
    """Only PUBACK and PUBCOMP, or a PUBREC that refuses, make room [MQTT-4.9.0-2]."""
    s, conn = online(qos=2, receive_max=2)
    s.publish(4, qos=2)
    s.live()
    s.rest()
    assert len(s.delivered()) == 2
    s.pubrec(conn, 0x8001)
    s.rest()
    assert s.delivered() == []
    s.pubrec(conn, 0x8002, failed=True)
    s.rest()
    assert s.delivered() == [(b"m2", 0x8003, 0x34)]
    s.pubcomp(conn, 0x8001)
    s.rest()
    assert s.delivered() == [(b"m3", 0x8004, 0x34)]
    assert s.take_sent() == [SendPubrel(conn, [0x8001])]


def test_a_repeated_pubrec_gets_pubrel_again() -> None:
    """At once when the first one's is out, else with it; for an identifier that is not under way it says so."""
    s, conn = online(qos=2)
    s.publish(1, qos=2)
    s.live()
    s.rest()
    s.delivered()
    s.pubrec(conn, 0x8001)
    s.pubrec(conn, 0x8001)
    s.tick()
    assert s.sent == []
    s.rest()
    assert s.take_sent() == [SendPubrel(conn, [0x8001])]
    s.pubrec(conn, 0x8001, 0x8099)
    s.tick()
    assert s.take_sent() == [SendPubrel(conn, [0x8001]), SendPubrel(conn, [0x8099], False)]
    s.pubcomp(conn, 0x8001)
    s.pubrec(conn, 0x8001, 1)
    s.tick()
    assert s.take_sent() == [SendPubrel(conn, [0x8001, 1], False)]


def test_qos_2_finished_out_of_order_is_remembered_until_the_gap_closes() -> None:
    """It is over, and must never be published again."""
    s, conn = online(qos=2)
    s.publish(2, qos=2)
    s.live()
    s.rest()
    s.pubrec(conn, 0x8002)
    s.rest()
    assert s.progress().received2 == [2]
    s.pubcomp(conn, 0x8002)
    s.tick(5_000)
    s.answer()
    assert (s.progress().committed2, s.progress().received2) == (0, [-2])
    s.pubrec(conn, 0x8001)
    s.rest()
    s.pubcomp(conn, 0x8001)
    s.tick(5_000)
    s.answer()
    assert (s.progress().committed2, s.progress().received2) == (2, [])


@pytest.mark.parametrize("wrong", ["puback for qos 2", "pubrec for qos 1", "pubcomp for qos 1", "pubcomp before pubrec", "early pubcomp"])
def test_an_acknowledgement_of_the_wrong_kind_closes_the_connection(wrong: str) -> None:
    """0x82; the session stays as it was, and what was under way comes again."""
    s, conn = online(qos=2)
    s.publish(1, qos=2)
    s.publish(1, qos=1)
    s.live()
    s.rest()
    s.take_sent()
    match wrong:
        case "puback for qos 2":
            s.puback(conn, 0x8001)
        case "pubrec for qos 1":
            s.pubrec(conn, 1)
        case "pubcomp for qos 1":
            s.pubcomp(conn, 1)
        case "pubcomp before pubrec":
            s.pubcomp(conn, 0x8001)
        case _:
            s.pubrec(conn, 0x8001)
            s.pubcomp(conn, 0x8001)
    assert s.sent == [SessionClosed(conn, ReasonCode.PROTOCOL_ERROR)]
    assert s.puback(conn, 1) == []
    s.rest()
    s.take_sent()
    conn = s.attach()
    s.rest()
    again = [(b"m1", 1, 0x3A)] if wrong == "early pubcomp" else [(b"m0", 0x8001, 0x3C), (b"m1", 1, 0x3A)]
    assert s.delivered() == again


def test_acknowledgements_of_what_is_not_under_way_are_ignored() -> None:
    """The identifier was never sent, or is finished."""
    s, conn = online(qos=2)
    for frame in (Acked(conn, PUBACK, [4, 0x8004], False), Acked(conn, PUBACK, [], False)):
        s.gateway(frame)
    s.pubcomp(conn, 4, 0x8004)
    s.pubrec(conn, 0x8004, failed=True)
    s.rest()
    assert s.sent == [] and conn in s.core._state.by_conn
    assert s.core.counters.acks_unknown == 5


def test_nobody_waits_for_an_acknowledgement_while_there_is_plenty_of_room() -> None:
    """It keeps company with the next turn; not where messages wait for its room, nor of QoS 2."""
    s, conn = online(receive_max=16)
    s.publish(2)
    s.live()
    s.tick()
    s.puback(conn, 1)
    assert s.core.patient
    s.puback(conn, 2)
    assert s.core.patient
    s.publish(3)
    s.live()
    s.tick()
    assert not s.core.patient
    s.puback(conn, 3)
    assert not s.core.patient
    s.pubrec(conn, 0x8001)
    assert not s.core.patient
