"""Two connections of one client: the newer one takes the place of the older, here, at another gateway, and over a broken link."""

from __future__ import annotations

import pytest

from gateway.events import (
    CloseSocket,
    FromPeer,
    FromShard,
    PeerLinked,
    ShardLinked,
    ToSession,
    ToShard,
    Write,
)
from gateway.frames import Forward
from gateway.options import Options
from mqtt.encode import encode
from mqtt.packets import Connack, Connect, Disconnect, Properties
from mqtt.reason import ReasonCode
from sessions.frames import Attach, Detach
from sessions.live_frames import HANDED_ON
from shards.frames import Check, Superseded
from shards.frames import Connect as ConnectEntry
from tests.gateway.scripted import Shell


def test_the_same_client_id_again_closes_the_older_connection() -> None:
    """The newer one's answer is enough, without Superseded; the home is not told of the older one's end."""
    shell = Shell()
    first = shell.online("c1")
    second = shell.client(5)
    second.send(Connect(5, "c1"))
    shell.homes.told.clear()
    request = shell.requests[0]
    effects = shell.answer()
    assert request.entries[0] == ConnectEntry(b"c1", True, 0, 5, None)
    assert first.take() == [Disconnect(ReasonCode.SESSION_TAKEN_OVER)]
    assert first.closed == "session taken over"
    assert [type(effect) for effect in effects] == [Write, Write, CloseSocket]
    assert second.closed is None


def test_superseded_by_another_gateway() -> None:
    """0x8E for MQTT 5, a plain close before; the session actor hears it, the home does not."""
    shell = Shell()
    client = shell.online("c1", 5, expiry_s=100, request_problem_information=0)
    effects = shell.turn(FromShard(0, Superseded([(b"c1", client.conn)])))
    assert effects == [
        Write(client.socket, encode(5, Disconnect(ReasonCode.SESSION_TAKEN_OVER))),
        CloseSocket(client.socket, "session taken over"),
        ToSession(0, Detach(client.conn)),
    ]


def test_what_a_newer_connection_published_elsewhere_ends_the_older_one() -> None:
    """A gateway that stood still hears of it by what is forwarded, and takes nothing that the older one had sent behind that."""
    shell = Shell()
    older = shell.online("p", 5)
    shell.turn(PeerLinked(1, "g2"))
    shell.turn(FromPeer(1, Forward(b"p", HANDED_ON, b"\0", [b"t"], [b"\0from a group"], [])))
    assert older.closed is None
    shell.turn(FromPeer(1, Forward(b"p", older.conn + 1, b"\0", [b"t"], [b"\0newer"], [])))
    assert older.take() == [Disconnect(ReasonCode.SESSION_TAKEN_OVER)] and older.closed == "session taken over"


@pytest.mark.parametrize(("version", "code"), [(5, ReasonCode.SERVER_BUSY), (4, ReasonCode.SERVER_UNAVAILABLE)])
def test_a_connection_that_is_taken_over_before_its_connack_is_told_so(version: int, code: ReasonCode) -> None:
    """By a refusal: a DISCONNECT may not come before CONNACK, and a close without a word tells the client nothing."""
    shell = Shell()
    client = shell.client(version)
    client.send(Connect(version, "c1", False, properties=Properties(session_expiry_interval=100 if version == 5 else None)))
    shell.answer()
    (attach,) = [frame for _, frame in shell.to_session if isinstance(frame, Attach)]
    shell.turn(FromShard(0, Superseded([(b"c1", attach.conn)])))
    assert client.take() == [Connack(False, code)]
    assert client.closed == "session taken over" and shell.to_session[-1] == (0, Detach(attach.conn))


def test_superseded_may_come_before_the_number_itself() -> None:
    """A connection whose end was announced before its beginning never comes online."""
    shell = Shell()
    client = shell.client(5)
    client.send(Connect(5, "c1"))
    shell.turn(FromShard(0, Superseded([(b"c1", 256)])))
    shell.answer()
    assert client.closed and [type(packet) for packet in client.take()] == [Connack]


def test_a_connect_that_was_on_its_way_over_a_broken_link_is_checked_when_it_is_answered() -> None:
    """Its answer may be from before the break, and the word that a newer connection took its place lost with the old link."""
    shell = Shell()
    client = shell.client(5)
    client.send(Connect(5, "c1"))
    shell.turn(ShardLinked(0))
    shell.answer()
    assert [type(packet) for packet in client.take()] == [Connack]
    shell.homes.newest[b"c1"] = 1 << 40
    shell.answer()
    assert client.take() == [Disconnect(ReasonCode.SESSION_TAKEN_OVER)] and client.closed == "session taken over"


def test_stale_connections_are_found_when_the_link_is_up_again() -> None:
    """Check asks in batches; those that are not the newest are closed."""
    shell = Shell(Options(check_batch=2))
    clients = [shell.online(f"c{number}", 4) for number in range(3)]
    shell.homes.newest[b"c1"] = 1 << 40
    (effect,) = shell.turn(ShardLinked(0))
    assert isinstance(effect, ToShard)
    assert effect.entries == [Check([(b"c0", 256), (b"c1", 512)]), Check([(b"c2", 768)])]
    shell.answer()
    assert [client.closed for client in clients] == [None, "session taken over", None]
