"""Connections whose session lives in the memory of a session actor, and the session actor as one that wants messages live."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gateway.events import CloseSocket, Congested, FromSession, SessionLinked, SessionLost, ToSession, Write
from gateway.options import Options
from mqtt.encode import encode
from mqtt.packets import Connack, Connect, Disconnect, Item, Properties, Subscribe, Subscription
from mqtt.reason import ReasonCode
from sessions.frames import Attach, Attached, Deliver, Detach, Subacked
from sessions.frames import Subscribe as SubscribeFrame
from sessions.live_frames import HANDED_ON, ForGroups, Forward, Interest, InterestSeen
from shards.frames import NORMAL, Connected, Entry, Live, Reply
from shards.frames import Connect as ConnectEntry
from tests.gateway.linked import Linked
from tests.gateway.scripted import Client, Homes, Shell, message

IN_MEMORY = Options(durable=False)
TOKEN = 4
SESSION = -1
"""Where the session actor stands among the links of gateways."""


class MemoryHomes(Homes):
    """Homes that make sessions in memory for those who wish it."""

    def __init__(self) -> None:
        super().__init__()
        self.in_memory: set[bytes] = set()

    def reply(self, shard: int, entry: Entry) -> Reply:
        reply = super().reply(shard, entry)
        if isinstance(entry, ConnectEntry) and isinstance(reply, Connected):
            if not reply.present:
                self.in_memory.discard(entry.client)
                if entry.memory:
                    self.in_memory.add(entry.client)
            return reply._replace(memory=TOKEN if entry.client in self.in_memory else 0)
        return reply


def made(options: Options = IN_MEMORY) -> Shell:
    shell = Shell(options)
    shell.homes = MemoryHomes()
    return shell


def interest(number: int, *filters: bytes, reset: bool = False, groups: tuple[tuple[bytes, int], ...] = ()) -> FromSession:
    return FromSession(0, Interest(number, reset, list(filters), [], [], [], list(groups)))


def forwards(shell: Shell) -> list[Forward]:
    """What the session actor was sent since the last call."""
    found = [frame for _, frame in shell.to_session if isinstance(frame, Forward)]
    shell.to_session = [(session, frame) for session, frame in shell.to_session if not isinstance(frame, Forward)]
    return found


def published(client: Client, topic: bytes, payload: bytes, qos: int) -> None:
    client.send(message(topic, payload, qos, 7 if qos else 0))


# ---------------------------------------------------------------- connections
@pytest.mark.parametrize(("options", "expiry_s", "wish"), [(Options(), 100, False), (IN_MEMORY, 100, True), (IN_MEMORY, 0, False)])
def test_the_wish_of_a_connect(options: Options, expiry_s: int, wish: bool) -> None:
    """Only a session that outlives its connection, and only where sessions are not durable."""
    shell = made(options)
    client = shell.client(5)
    client.send(Connect(5, "c1", properties=Properties(session_expiry_interval=expiry_s or None)))
    entry = shell.requests[-1].entries[0]
    assert isinstance(entry, ConnectEntry) and entry.memory is wish


def test_a_session_in_memory_is_attached_with_its_token() -> None:
    """The home's answer counts, not the wish: what is durable stays durable.  Each kind has shared subscriptions."""
    shell = made()
    shell.homes.sessions[b"durable"] = 70
    for name, memory in (("fresh", TOKEN), ("durable", 0)):
        client = shell.client(5)
        client.send(Connect(5, name, False, properties=Properties(session_expiry_interval=100)))
        shell.answer()
        _, attach = shell.to_session.pop()
        assert isinstance(attach, Attach) and (attach.memory, attach.expiry_s) == (memory, 100 if memory else 0)
        shell.turn(FromSession(0, Attached(attach.conn, 0, [])))
        (connack,) = client.take()
        assert isinstance(connack, Connack)
        assert connack.properties.shared_subscription_available is None
        client.send(Subscribe(1, (Subscription(b"$share/g/t", 1),)))
        asked = [frame for _, frame in shell.to_session if isinstance(frame, SubscribeFrame)]
        assert asked, name
        shell.to_session.clear()


def test_its_subscriptions_are_not_in_the_gateways_table() -> None:
    """It gets everything from its session actor: through the table as well it would come twice."""
    shell = made()
    sub = shell.online("sub", 5, expiry_s=100)
    sub.send(Subscribe(1, (Subscription(b"t", 0),)))
    shell.turn(FromSession(0, Subacked(sub.conn, 1, [0])))
    sub.take()
    pub = shell.online("pub", 4)
    shell.turn(interest(2, b"t"))
    published(pub, b"t", b"x", 0)
    assert sub.take() == []
    assert [frame.topics for frame in forwards(shell)] == [[b"t"]]


def test_a_session_that_is_not_there_any_more_ends_at_its_home() -> None:
    """Refused with 0x88; the next CONNECT finds no session, so none of its identifiers either."""
    shell = made()
    client = shell.client(5)
    client.send(Connect(5, "c1", False, properties=Properties(session_expiry_interval=100, request_problem_information=0)))
    shell.answer()
    effects = shell.turn(FromSession(0, Attached(256, ReasonCode.SERVER_UNAVAILABLE, [], False)))
    assert effects[:2] == [
        Write(client.socket, encode(5, Connack(False, ReasonCode.SERVER_UNAVAILABLE))),
        CloseSocket(client.socket, "the session actor refused the connection"),
    ]
    shell.answer()
    assert shell.homes.ended == [(b"c1", 256, NORMAL, 0)]


def test_detach_says_what_disconnect_said() -> None:
    """The session actor counts the expiry too."""
    shell = made()
    for number, expiry_s in enumerate((None, 0, 7)):
        client = shell.online(f"c{number}", 5, expiry_s=100)
        client.send(Disconnect(ReasonCode.NORMAL_DISCONNECTION, Properties(session_expiry_interval=expiry_s)))
        assert shell.to_session[-1] == (0, Detach(client.conn, expiry_s))


# ---------------------------------------------------------------- messages
def test_the_session_actor_gets_a_qos_1_message_when_its_shard_has_answered() -> None:
    """And confirmations of what it wants are sent to it (PROTOCOLS 9)."""
    shell = made()
    effects = shell.turn(interest(2, b"t/#"))
    assert effects == [ToSession(0, InterestSeen(2))]
    pub = shell.online("pub", 4)
    published(pub, b"t/1", b"x", 1)
    assert forwards(shell) == []
    shell.answer()
    assert forwards(shell) == [Forward(b"pub", pub.conn, b"\x02", [b"t/1"], [b"\0x"], [])]
    published(pub, b"u", b"x", 1)
    shell.answer()
    assert forwards(shell) == []


def test_clients_are_accepted_when_the_session_actors_have_said_what_they_want() -> None:
    """Otherwise a message that is acknowledged could miss them; a lost link leaves nothing behind."""
    shell = made()
    shell.turn(interest(2, b"t"))
    shell.turn(SessionLost(0))
    assert shell.core.ready()
    pub = shell.online("pub", 4)
    published(pub, b"t", b"x", 0)
    assert forwards(shell) == []
    shell.turn(SessionLinked(0))
    assert not shell.core.ready()
    shell.turn(interest(1, b"t", reset=True))
    assert shell.core.ready()


def test_a_client_that_does_not_read_gets_no_qos_0_messages() -> None:
    """As all live subscribers; what has an identifier is written all the same."""
    shell = made()
    sub = shell.online("sub", 5, expiry_s=100)
    shell.turn(Congested(sub.socket, True))
    messages = [(b"t", b"\0zero", 0, 0), (b"t", b"\0one", 0, 0)]
    shell.turn(FromSession(0, Deliver(messages, [(sub.conn, [0, 1], [0, 3], b"\x30\x32", [0, 0])])))
    got: list[Item] = sub.take()
    assert len(got) == 1 and "one" in repr(got)
    assert shell.core.counters.live_dropped_slow == 1


def test_a_session_actor_is_told_nothing_of_what_is_wanted_here() -> None:
    """It has no publishers; a SUBACK does not wait for it."""
    shell = made()
    sub = shell.online("sub", 5)
    shell.to_session.clear()
    sub.send(Subscribe(1, (Subscription(b"t", 1),)))
    assert len(sub.take()) == 1 and shell.to_session == []


# ---------------------------------------------------------------- groups
GROUP = b"$share/g/t"


def test_a_session_actor_takes_its_turns_in_a_group() -> None:
    """As often as it has members; the Forward says for which groups."""
    shell = made()
    shell.turn(interest(2, groups=((GROUP, 2),)))
    member = shell.online("member", 5)
    member.send(Subscribe(1, (Subscription(GROUP, 1),)))
    member.take()
    pub = shell.online("pub", 4)
    for number in range(6):
        published(pub, b"t", b"%d" % number, 0)
    got = forwards(shell)
    assert sum(len(frame.topics) for frame in got) == 4
    assert all(frame.shared and list(frame.shared[0]) == [0, False, [GROUP]] for frame in got)


def test_what_a_session_actor_hands_on_goes_to_a_member_here() -> None:
    """Its last member has left; here is another one."""
    shell = made()
    member = shell.online("member", 5)
    member.send(Subscribe(1, (Subscription(GROUP, 1),)))
    member.take()
    shell.turn(FromSession(0, Forward(b"p", HANDED_ON, b"\x02", [b"t"], [b"\0x"], [ForGroups(0, False, [GROUP])])))
    assert len(member.take()) == 1


def test_a_will_for_a_group_that_is_only_in_memory_is_served_once() -> None:
    """Every gateway gets it; the one with the smallest name passes it on."""
    crowd = Linked(3, replace(Options(), durable=False))
    for shell in crowd.shells:
        shell.turn(interest(2, groups=((GROUP, 1),)))
    crowd.settle()
    crowd.will(Live(b"dead", 2, b"t", b"\0gone"))
    got = [forwards(shell) for shell in crowd.shells]
    assert [len(frames) for frames in got] == [1, 0, 0]
    assert got[0][0].conn == HANDED_ON and list(got[0][0].shared[0]) == [0, False, [GROUP]]
    member = crowd[1].online("member", 5)
    member.send(Subscribe(1, (Subscription(GROUP, 1),)))
    crowd.settle()
    member.take()
    crowd.will(Live(b"dead", 2, b"t", b"\0gone"))
    assert [forwards(shell) for shell in crowd.shells] == [[], [], []]
    assert len(member.take()) == 1
