"""Shared subscriptions that a plugin decides about: who becomes a member, and who of them gets a message."""

from __future__ import annotations

import pytest

from gateway.events import AccessChanged, FromPeer, FromSession, PeerLinked, RightTold, SettingsChanged, SocketLost
from gateway.frames import ForGroups, Forward, Interest
from gateway.options import Options
from gateway.sharing import REFUSALS_MAX
from mqtt.packets import AckKind, AckRun, PublishRun, Suback, Subscribe, Subscription
from mqtt.reason import ReasonCode
from sessions.frames import Subacked, Unsubscribe
from tests.gateway.scripted import Client, message
from tests.gateway.test_asking import Plugged as PluggedShell
from tests.gateway.test_asking import decided
from tests.gateway.test_memory import MemoryHomes

GROUP = b"$share/g/a/#"
NO = ReasonCode.NOT_AUTHORIZED


class Plugged(PluggedShell):
    def say_of(self, client: str, allow: bool) -> None:
        """To all that is asked of this client."""
        told = [each for each in self.rights if each.asked.client == client]
        self.rights = [each for each in self.rights if each not in told]
        self.turn(*[RightTold(each.asker, each.key, allow) for each in told])


@pytest.fixture
def shell() -> Plugged:
    return Plugged()


def ask(client: Client, *filters: bytes, qos: int = 1) -> None:
    client.send(Subscribe(1, tuple([Subscription(each, qos) for each in filters])))


def member(shell: Plugged, name: str, qos: int = 1, receive_maximum: int = 100) -> Client:
    """Of GROUP, by the plugin's word."""
    client = shell.online(name, 5, receive_maximum=receive_maximum)
    ask(client, GROUP, qos=qos)
    shell.say()
    assert client.take() == [Suback(1, (ReasonCode(qos),))]
    return client


def publish(shell: Plugged, publisher: Client, *topics: bytes, qos: int = 1) -> None:
    publisher.send(*[message(topic, topic, qos, qos and number) for number, topic in enumerate(topics, start=1)])
    shell.say(action="publish")
    shell.answer()


def got(client: Client) -> list[bytes]:
    return [packet.topics[0] for packet in client.take() if isinstance(packet, PublishRun)]


# ---------------------------------------------------------------- who becomes a member


def test_a_plugin_is_asked_about_the_whole_filter(shell: Plugged) -> None:
    """With the name of its group; each has its answer."""
    client = shell.online("c", 5)
    ask(client, GROUP, b"$share/h/b")
    assert shell.questions() == [("subscribe", "$share/g/a/#"), ("subscribe", "$share/h/b")]
    shell.say(only="$share/g/a/#")
    shell.say(False)
    assert client.take() == [Suback(1, (ReasonCode.GRANTED_QOS_1, NO))]
    assert list(client.shell.core._state.by_client[b"c"].subs) == [GROUP]


def test_what_rules_say_of_a_group_no_plugin_is_asked(shell: Plugged) -> None:
    """They allow all of it, or deny a part of it, which would be lost to the group; and what is no filter is refused at once."""
    client = shell.online("c", 5)
    ask(client, b"$share/g/free/#", b"$share/g/denied", b"$share/g/#", b"$share/g", b"$share/")
    assert shell.rights == []
    (suback,) = client.take()
    assert isinstance(suback, Suback) and suback.reasons[:3] == (ReasonCode.GRANTED_QOS_1, NO, NO) and min(suback.reasons[3:]) >= 0x80


# ---------------------------------------------------------------- who gets a message


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_message_waits_for_the_word_about_its_member(shell: Plugged, qos: int) -> None:
    """And what follows it to that member; one that the others get waits for nobody."""
    one, two, publisher = member(shell, "1", qos), member(shell, "2", qos), shell.online("p", 5)
    publish(shell, publisher, b"a/1", b"a/2", b"a/3", qos=qos)
    assert shell.questions() == [("receive", "a/1"), ("receive", "a/2"), ("receive", "a/3")]
    shell.say(only="a/2")
    assert got(one) == [] and got(two) == [b"a/2"]
    shell.say(only="a/3")
    assert got(one) == []
    shell.say(only="a/1")
    assert got(one) == [b"a/1", b"a/3"]


def test_what_a_plugin_keeps_from_a_member_goes_to_another(shell: Plugged) -> None:
    """Once; and it is asked of nobody a second time as long as the answer counts."""
    one, two, publisher = member(shell, "1"), member(shell, "2"), shell.online("p", 5)
    publish(shell, publisher, b"a/x")
    shell.say(False)
    assert got(one) == [] and shell.questions() == [("receive", "a/x")]
    shell.say()
    assert got(one) == [] and got(two) == [b"a/x"] and shell.core.counters.shared_handed_on == 1
    publish(shell, publisher, b"a/x", b"a/x")
    assert got(one) == [] and got(two) == [b"a/x", b"a/x"] and shell.rights == []


@pytest.mark.parametrize("cache_ms", [0, 1_000])
@pytest.mark.parametrize("count", [1, 3, REFUSALS_MAX + 3])
def test_what_nobody_may_read_is_lost_after_a_bounded_number_of_questions(count: int, cache_ms: int) -> None:
    """However short answers count; and it is counted."""
    shell = Plugged(cache_ms)
    members = [member(shell, f"m{number}") for number in range(count)]
    publisher = shell.online("p", 5)
    publish(shell, publisher, b"a/x")
    asked = 0
    while shell.rights:
        asked += len(shell.rights)
        shell.say(False)
        shell.turn()
    assert 1 <= asked <= REFUSALS_MAX + 1 and shell.core.counters.shared_lost == 1
    assert not any(got(each) for each in members)


def test_a_right_that_a_plugin_takes_away_stops_a_member_within_a_second(shell: Plugged) -> None:
    """The former answer counts no longer; the message goes to who may read it."""
    one, two, publisher = member(shell, "1"), member(shell, "2"), shell.online("p", 5)
    publish(shell, publisher, b"a/x", b"a/x")
    shell.say()
    assert got(one) == got(two) == [b"a/x"]
    shell.pass_time(1_000)
    publish(shell, publisher, b"a/x", b"a/x")
    shell.say_of("1", False)
    shell.say()
    assert got(one) == [] and got(two) == [b"a/x", b"a/x"]


def test_what_waits_for_the_window_of_a_member_is_asked_for_when_it_leaves(shell: Plugged) -> None:
    """And goes to another if it may not."""
    one, publisher = member(shell, "1", receive_maximum=1), shell.online("p", 5)
    publish(shell, publisher, b"a/1", b"a/2")
    shell.say()
    assert got(one) == [b"a/1"]
    two = member(shell, "2")
    shell.pass_time(1_000)
    one.send(AckRun(AckKind.PUBACK, [1]))
    assert shell.questions() == [("receive", "a/2")] and got(one) == []
    shell.say(False)
    shell.say()
    assert got(one) == [] and got(two) == [b"a/2"]


def test_what_waited_for_the_word_about_a_member_that_ends_goes_to_another(shell: Plugged) -> None:
    """In the order of its publisher; nothing was sent, so QoS 2 too."""
    one, publisher = member(shell, "1", qos=2), shell.online("p", 5)
    publish(shell, publisher, b"a/1", b"a/2", qos=2)
    waiting, shell.rights = shell.rights, []
    two = member(shell, "2", qos=2)
    shell.rights += waiting
    shell.turn(SocketLost(one.socket, "gone"))
    shell.say()
    assert got(two) == [b"a/1", b"a/2"]


def test_a_message_of_another_gateway_stays_here(shell: Plugged) -> None:
    """It is not sent back when its member may not read it: two gateways would send it to and fro."""
    one = member(shell, "1")
    shell.turn(PeerLinked(7, "g7"), FromPeer(7, Interest(1, True, [], [], [], [], [(GROUP, 1)])))
    shell.to_peer.clear()
    body = message(b"a/x", b"x").bodies[0]
    shell.turn(FromPeer(7, Forward(b"p", 3, b"\2", [b"a/x"], [body], [ForGroups(0, False, [GROUP])])))
    assert shell.questions() == [("receive", "a/x")]
    shell.say(False)
    assert got(one) == [] and shell.core.counters.shared_lost == 1
    assert not [frame for _, frame in shell.to_peer if isinstance(frame, Forward)]


# ---------------------------------------------------------------- other rules


def test_a_member_by_a_plugin_s_word_stays_while_it_is_left_to_it(shell: Plugged) -> None:
    """It is asked for each message anew; it leaves when rules deny a part of what the group is given."""
    one, publisher = member(shell, "1"), shell.online("p", 5)
    publish(shell, publisher, b"a/x")
    shell.say()
    assert got(one) == [b"a/x"]
    shell.turn(AccessChanged(decided("[[rule]]\ndeny = ['subscribe']\ntopics = ['b']\n")))
    publish(shell, publisher, b"a/x")
    assert shell.questions() == [("receive", "a/x")]
    shell.say()
    assert got(one) == [b"a/x"]
    shell.turn(AccessChanged(decided("[[rule]]\ndeny = ['subscribe']\ntopics = ['a/secret']\n")))
    publish(shell, publisher, b"a/x")
    assert got(one) == [] and shell.rights == [] and not shell.core._state.by_client[b"1"].subs


def test_a_session_in_memory_is_a_member_by_a_plugin_s_word(shell: Plugged) -> None:
    """And leaves its group at its session actor when rules deny."""
    shell.homes = MemoryHomes()
    shell.turn(SettingsChanged(Options(durable=False)))
    client = shell.online("m", 5, expiry_s=100)
    shell.to_session.clear()
    ask(client, GROUP)
    shell.say()
    shell.turn(FromSession(0, Subacked(client.conn, 1, [1])))
    assert client.take() == [Suback(1, (ReasonCode.GRANTED_QOS_1,))]
    shell.turn(AccessChanged(decided("[[rule]]\ndeny = ['share']\ntopics = ['b']\n")))
    assert not any(isinstance(frame, Unsubscribe) for _, frame in shell.to_session)
    shell.turn(AccessChanged(decided("[[rule]]\ndeny = ['share']\ntopics = ['a/#']\n")))
    assert [frame.filters for _, frame in shell.to_session if isinstance(frame, Unsubscribe)] == [[GROUP]]
