"""A connection that another session actor has had: what its client has of QoS 2 goes on where it is, and nothing of it comes again."""

from __future__ import annotations

from collections.abc import Sequence

from mqtt.reason import ReasonCode
from sessions.frames import Attach, Attached, SendPubrel
from tests.sessions.scripted import CLIENT, Script, online


def moved(s: Script, conn: int, unreleased: Sequence[int] = (), had_pubrel: Sequence[int] = (), refused: Sequence[int] = ()) -> None:
    """A new process is asked to go on with this connection."""
    s.start()
    s.owned()
    session_id = s.home.sessions[CLIENT]
    s.gateway(
        Attach(CLIENT, conn, session_id, True, 5, 5, owner=0, moved=True, unreleased=unreleased, had_pubrel=had_pubrel, refused=refused)
    )
    s.rest()


def sent(count: int, receive_max: int = 5) -> tuple[Script, int]:
    """Messages of QoS 2 that the client has; they are 0x8001 and so on."""
    s, conn = online(qos=2, receive_max=receive_max)
    s.publish(count, qos=2)
    s.live()
    s.rest()
    s.delivered()
    return s, conn


def pubrels(s: Script) -> list[int]:
    return [packet_id for frame in s.take_sent() if isinstance(frame, SendPubrel) for packet_id in frame.packet_ids]


def test_what_the_client_has_does_not_come_again_and_what_it_has_not_comes() -> None:
    """What was lost with the link had been marked as sent, so it comes with DUP; the window counts what is open."""
    s, conn = sent(7)
    moved(s, conn, unreleased=[0x8001, 0x8002, 0x8003])
    assert s.delivered() == [(b"m3", 0x8004, 0x3C), (b"m4", 0x8005, 0x3C)]
    s.pubrec(conn, 0x8001, 0x8002)
    s.rest()
    assert pubrels(s) == [0x8001, 0x8002]
    s.pubcomp(conn, 0x8001, 0x8002)
    s.rest()
    assert [packet_id for _, packet_id, _ in s.delivered()] == [0x8006, 0x8007]


def test_pubrel_comes_once_also_when_the_pubrec_was_committed_and_nobody_was_told() -> None:
    """The gateway has a PUBREC and no PUBREL: it says PUBREC again, and only that brings the PUBREL."""
    s, conn = sent(3)
    s.pubrec(conn, 0x8001, 0x8002)
    s.rest()
    s.take_sent()
    moved(s, conn, unreleased=[0x8002, 0x8003], had_pubrel=[0x8001])
    assert pubrels(s) == [] and s.delivered() == []
    s.pubrec(conn, 0x8002)
    s.rest()
    assert pubrels(s) == [0x8002]
    s.pubcomp(conn, 0x8001)
    s.tick(60_000)
    s.rest()
    assert s.progress().committed2 == 1


def test_a_pubrel_that_never_reached_the_gateway_is_sent() -> None:
    """Of an earlier connection: nothing of it was seen on this one."""
    s, conn = sent(2)
    s.pubrec(conn, 0x8001)
    s.rest()
    s.take_sent()
    moved(s, conn)
    assert pubrels(s) == [0x8001]


def test_a_refused_message_stays_refused() -> None:
    """The last actor was told of it, and had not committed that."""
    s, conn = sent(3)
    moved(s, conn, unreleased=[0x8001, 0x8003], refused=[0x8002])
    assert s.delivered() == []
    s.pubrec(conn, 0x8001, 0x8003)
    s.rest()
    s.pubcomp(conn, 0x8001, 0x8003)
    s.tick(60_000)
    s.rest()
    assert s.progress().committed2 == 3


def test_who_has_what_the_rows_cannot_explain_is_refused() -> None:
    """A number that was passed and is open in the rows; one that is not assigned; one that is finished."""
    for unreleased in ([0x8001, 0x8003], [0x8001, 0x8002, 0x8003, 0x8004]):
        s, conn = sent(3)
        moved(s, conn, unreleased=unreleased)
        assert Attached(conn, ReasonCode.SERVER_UNAVAILABLE, []) in s.sent and s.delivered() == []
    s, conn = sent(1)
    s.pubrec(conn, 0x8001)
    s.rest()
    s.pubcomp(conn, 0x8001)
    s.rest()
    s.tick(60_000)
    s.rest()
    s.take_sent()
    moved(s, conn, unreleased=[0x8001])
    assert Attached(conn, ReasonCode.SERVER_UNAVAILABLE, []) in s.sent


def test_the_same_process_goes_on_as_well() -> None:
    """The link broke and nothing else: what the process has in memory is newer than the rows.  A PUBREC that it hears twice may bring two
    PUBRELs, as one that a client says twice does."""
    s, conn = sent(3)
    s.pubrec(conn, 0x8001)
    session_id = s.home.sessions[CLIENT]
    s.gateway(Attach(CLIENT, conn, session_id, True, 5, 5, moved=True, unreleased=[0x8001, 0x8002]))
    s.rest()
    s.pubrec(conn, 0x8001)
    s.rest()
    assert s.delivered() == [(b"m2", 0x8003, 0x3C)]
    assert dict.fromkeys(pubrels(s)) == {0x8001: None}
