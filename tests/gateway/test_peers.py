"""Other gateways: what they are told, what a SUBACK waits for, what is forwarded and what is not taken any more."""

from __future__ import annotations

from gateway.events import (
    FromPeer,
    PeerLinked,
    PeerLost,
    Replied,
    ToPeer,
)
from gateway.frames import Forward, Interest, InterestSeen
from gateway.options import Options
from mqtt.packets import Connect, Disconnect, Suback, Subscribe, Subscription, Unsubscribe
from mqtt.reason import ReasonCode
from tests.gateway.scripted import Shell, message, subscribe


def test_interest_is_told_and_confirmed() -> None:
    """The whole table first, then changes with numbers; a filter that is wanted twice is told once."""
    shell = Shell()
    client, durable = shell.online("s", 5), shell.online("d", 5, expiry_s=9, subscriptions=[(b"q", 1, 0, 0)])
    subscribe(client, b"a")
    assert shell.turn(PeerLinked(1, "g2")) == [ToPeer(1, Interest(1, True, [b"a"], [b"q"], [], [], []))]
    shell.turn(FromPeer(1, InterestSeen(1)))
    client.send(Subscribe(2, (Subscription(b"b"),)))
    assert shell.to_peer[-1] == (1, Interest(2, False, [b"b"], [], [], [], []))
    assert client.take() == [], "SUBACK waits for the other gateway"
    shell.turn(FromPeer(1, InterestSeen(2)))
    assert client.take() == [Suback(2, (ReasonCode.SUCCESS,))]
    durable.send(Disconnect())
    assert shell.to_peer[-1] == (1, Interest(3, False, [], [], [], [b"q"], []))
    client.send(Unsubscribe(3, (b"a",)))
    assert shell.to_peer[-1] == (1, Interest(4, False, [], [], [b"a"], [], []))
    count = len(shell.to_peer)
    other = shell.online("o", 4)
    other.send(Subscribe(1, (Subscription(b"b"),)))
    assert len(shell.to_peer) == count


def test_suback_waits_for_other_gateways_so_long() -> None:
    """A gateway that does not confirm holds it for suback_wait_ms; one that is gone holds nothing."""
    shell = Shell()
    shell.turn(PeerLinked(1, "g2"))
    client = shell.online("s", 5)
    client.send(Subscribe(1, (Subscription(b"a"),)))
    shell.pass_time(900)
    assert client.take() == []
    shell.pass_time(500)
    assert client.take() == [Suback(1, (ReasonCode.SUCCESS,))] and shell.core.counters.subacks_unconfirmed == 1
    client.send(Subscribe(3, (Subscription(b"a/#/b"),)))
    assert client.take() == [Suback(3, (ReasonCode.TOPIC_FILTER_INVALID,))], "a refusal waits for nobody"
    client.send(Subscribe(2, (Subscription(b"b"),)))
    assert client.take() == []
    shell.turn(PeerLost(1))
    assert client.take() == [Suback(2, (ReasonCode.SUCCESS,))]


def test_a_gateway_is_ready_when_it_holds_all_tables() -> None:
    """Before that it could leave out a subscriber at another gateway."""
    shell = Shell()
    assert shell.core.ready()
    shell.turn(PeerLinked(1, "g2"))
    assert not shell.core.ready()
    assert shell.turn(FromPeer(1, Interest(1, True, [], [], [], [], []))) == [ToPeer(1, InterestSeen(1))]
    assert shell.core.ready()
    shell.turn(FromPeer(1, Interest(2, False, [b"a"], [b"b"], [], [], [])))
    shell.turn(FromPeer(1, Interest(3, True, [b"c"], [], [], [], [])))
    assert len(shell.core._table) == 1, "a whole table takes the place of what was said before"


def test_messages_are_forwarded_to_gateways_that_want_them() -> None:
    """One frame per turn, connection and gateway; QoS 1 after its answer; who wants QoS 0 only gets only that."""
    shell = Shell()
    shell.turn(PeerLinked(1, "g2"), FromPeer(1, Interest(1, True, [b"a"], [b"q/#"], [], [], [])))
    client = shell.online("p", 4)
    client.send(message(b"a", b"0"), message(b"q/1", b"0"), message(b"x", b"0"))
    assert shell.to_peer[-1] == (1, Forward(b"p", client.conn, b"\0\0", [b"a", b"q/1"], [b"\x000", b"\x000"], []))
    count = len(shell.to_peer)
    client.send(message(b"a", b"1", 1, 1), message(b"q/1", b"1", 1, 2))
    assert len(shell.to_peer) == count
    shell.answer()
    assert shell.to_peer[-1] == (1, Forward(b"p", client.conn, b"\x02", [b"a"], [b"\x001"], []))
    shell.turn(FromPeer(1, Interest(2, False, [], [b"a"], [b"a"], [], [])))
    client.send(message(b"a", b"2", 1, 3))
    count = len(shell.to_peer)
    shell.answer()
    assert len(shell.to_peer) == count
    shell.turn(PeerLost(1))
    assert len(shell.core._table) == 0


def test_forwards_name_the_connection_that_published() -> None:
    """Also when a client's older and newer connection publish in one turn."""
    shell = Shell()
    shell.turn(PeerLinked(1, "g2"), FromPeer(1, Interest(1, True, [b"a"], [], [], [], [])))
    older = shell.online("p", 4)
    newer = shell.client(4)
    newer.send(Connect(4, "p"), message(b"a", b"new"))
    older_event = older.event(message(b"a", b"old"))
    request = shell.requests.popleft()
    shell.turn(older_event, Replied(0, request.id, [shell.homes.reply(0, entry) for entry in request.entries]))
    frames = [frame for _, frame in shell.to_peer if isinstance(frame, Forward)]
    assert [(frame.conn, frame.bodies) for frame in frames] == [(older.conn, [b"\0old"]), (shell.homes.newest[b"p"], [b"\0new"])]


def test_forwards_are_cut() -> None:
    """A shard that was away may answer a lot at once."""
    shell = Shell(Options(frame_bytes_max=100))
    shell.turn(PeerLinked(1, "g2"), FromPeer(1, Interest(1, True, [b"a"], [], [], [], [])))
    client = shell.online("p", 4)
    client.send(*[message(b"a", b"x" * 60) for _ in range(5)])
    assert [len(frame.topics) for _, frame in shell.to_peer if isinstance(frame, Forward)] == [2, 2, 1]


def test_a_forward_of_an_older_connection_is_dropped() -> None:
    """Older than the newest forwarded, or than the connection that the publisher has here (PROTOCOLS 9)."""
    shell = Shell()
    client = shell.online("s", 4)
    subscribe(client, b"a")
    shell.turn(PeerLinked(1, "g2"))

    def forward(publisher: bytes, conn: int, payload: bytes) -> None:
        shell.turn(FromPeer(1, Forward(publisher, conn, b"\0", [b"a"], [b"\0" + payload], [])))

    forward(b"x", 9, b"1")
    forward(b"x", 8, b"late")
    forward(b"x", 9, b"2")
    forward(b"x", 10, b"3")
    here = shell.online("p", 4)
    forward(b"p", here.conn - 256, b"late")
    forward(b"q", 1 << 30, b"4")
    shell.online("q", 4)
    forward(b"q", 1 << 20, b"late")
    assert client.take() == [message(b"a", payload) for payload in (b"1", b"2", b"3", b"4")]
    assert shell.core.counters.forwards_stale == 3
    assert shell.to_peer == [(1, Interest(1, True, [b"a"], [], [], [], []))], "what came from a gateway goes to no other"
