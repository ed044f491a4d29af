"""A plugin that has the word where rules say nothing: who waits for it, for how long it counts, and that nobody else waits."""

from __future__ import annotations

import pytest

from access.asked import Asked
from access.identity import ANONYMOUS
from access.rules import OPEN, Access, compile_access
from access.rules_file import parse_rules
from gateway.asking import AHEAD_MAX
from gateway.events import AccessChanged, AskRight, FromSession, RetainedTold, RightsForgotten, RightTold, SettingsChanged, SocketLost
from gateway.options import Options
from mqtt.packets import (
    Ack,
    AckKind,
    AckRun,
    Connack,
    Connect,
    Disconnect,
    Pingreq,
    Pingresp,
    Properties,
    Publish,
    PublishRun,
    Suback,
    Subscribe,
    Subscription,
    Unsubscribe,
    Will,
)
from mqtt.reason import ReasonCode
from sessions.frames import PUBACK, Acked, Deliver
from shards.frames import LOST
from shards.messages import encode_message
from tests.gateway.scripted import Client, Shell, message

R = ReasonCode
RULES = """
[[rule]]
deny = ['all']
topics = ['denied']
[[rule]]
deny = ['retain']
topics = ['unkept']
[[rule]]
allow = ['all']
topics = ['free/#']
"""


def decided(rules: str = RULES) -> Access:
    return compile_access(1, parse_rules("version = 1\n" + rules), claims=False, decides=True)


class Plugged(Shell):
    """A shell with such rules, and a plugin whose word the test says."""

    def __init__(self, cache_ms: int = 1_000) -> None:
        super().__init__()
        self.turn(AccessChanged(decided()), SettingsChanged(Options(rights_cache_ms=cache_ms)))

    def questions(self) -> list[tuple[str, str]]:
        return [(each.asked.action, each.asked.topic) for each in self.rights]

    def say(self, allow: bool = True, *, only: str | None = None, action: str | None = None, answered: bool = True) -> None:
        """To all that is asked, or to one topic or action of it, in one turn."""
        told: list[AskRight] = [each for each in self.rights if only in (None, each.asked.topic) and action in (None, each.asked.action)]
        self.rights = [each for each in self.rights if each not in told]
        self.turn(*[RightTold(each.asker, each.key, allow, answered) for each in told])

    def stored(self) -> list[bytes]:
        self.answer()
        return [topic for _, topic, _ in self.homes.stored]


@pytest.fixture
def shell() -> Plugged:
    made = Plugged()
    made.homes.durable_filters.append(b"#")
    return made


def topics(client: Client) -> list[bytes]:
    return [packet.topics[0] for packet in client.take() if isinstance(packet, PublishRun)]


def subscribed(shell: Plugged, topic_filter: bytes, qos: int = 0, receive_maximum: int = 100) -> Client:
    """A subscriber by the plugin's word."""
    client = shell.online("s", 5, receive_maximum=receive_maximum)
    client.send(Subscribe(1, (Subscription(topic_filter, qos),)))
    shell.say()
    assert client.take() == [Suback(1, (ReasonCode(qos),))]
    while shell.queries:
        query = shell.queries.pop(0)
        shell.turn(RetainedTold(query.shard, query.id, [], b""))
    return client


# ---------------------------------------------------------------- PUBLISH


def test_what_rules_decide_is_asked_of_nobody(shell: Plugged) -> None:
    """Neither what they allow, nor what they deny; what a plugin has said of a topic without RETAIN says nothing of it with RETAIN."""
    client = shell.online("c", 5)
    client.send(message(b"free/a", b"", 1, 1), message(b"denied", b"", 1, 2))
    assert shell.stored() == [b"free/a"] and shell.rights == []
    client.send(message(b"unkept", b"", 1, 3))
    assert shell.questions() == [("publish", "unkept")]
    shell.say()
    client.send(message(b"unkept", b"", 1, 4, retain=True))
    assert shell.stored() == [b"free/a", b"unkept"] and shell.rights == []


def test_a_question_says_who_asks(shell: Plugged) -> None:
    """Identity, client id, what for and which topic."""
    client = shell.online("c", 4)
    client.send(message(b"a/b", b"", 0))
    (question,) = shell.rights
    assert question.asked == Asked(ANONYMOUS, "c", "publish", "a/b")


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("allow", [True, False])
def test_a_message_waits_alone_and_what_is_behind_it_comes_behind_it(shell: Plugged, version: int, allow: bool) -> None:
    """Its connection is not read meanwhile, others are served; all is taken and answered in its order."""
    client, other = shell.online("c", version), shell.online("o", version)
    client.send(message(b"free/1", b"", 1, 1), message(b"a", b"", 1, 2), message(b"free/3", b"", 1, 3), Pingreq())
    assert shell.stored() == [b"free/1"] and client.paused and client.take() == [AckRun(AckKind.PUBACK, [1])]
    other.send(message(b"free/o", b"", 1, 1))
    assert shell.stored() == [b"free/1", b"free/o"] and not other.paused
    shell.say(allow)
    middle = [b"a"] if allow else []
    assert shell.stored() == [b"free/1", b"free/o", *middle, b"free/3"] and not client.paused
    no = Ack(AckKind.PUBACK, 2, R.NOT_AUTHORIZED) if version == 5 and not allow else AckRun(AckKind.PUBACK, [2])
    found = client.take()
    assert [packet for packet in found if packet != Pingresp()] == [no, AckRun(AckKind.PUBACK, [3])] and Pingresp() in found
    assert shell.core.counters.publishes_denied == (not allow)


def test_an_answer_counts_for_a_while_and_for_its_client_only(shell: Plugged) -> None:
    """A second here; then it is asked again, and the new answer counts."""
    client, other = shell.online("c", 5), shell.online("o", 5)
    client.send(message(b"a", b"", 1, 1))
    shell.say()
    client.send(message(b"a", b"", 1, 2))
    assert shell.rights == [] and shell.stored() == [b"a", b"a"]
    other.send(message(b"a", b"", 1, 1))
    assert shell.questions() == [("publish", "a")]
    shell.say(False)
    shell.pass_time(1_000)
    client.send(message(b"a", b"", 1, 3))
    assert shell.questions() == [("publish", "a")]
    shell.say(False)
    assert shell.stored() == [b"a", b"a"]


def test_what_a_plugin_has_said_before_it_changed_its_mind_counts_no_more(shell: Plugged) -> None:
    """Told so, the gateway asks again."""
    client = shell.online("c", 5)
    client.send(message(b"a", b"", 1, 1))
    shell.say()
    shell.turn(RightsForgotten())
    client.send(message(b"a", b"", 1, 2))
    assert shell.questions() == [("publish", "a")]


def test_an_answer_that_never_came_is_a_no_where_there_is_a_word_for_it(shell: Plugged) -> None:
    """A 3.1.1 client would be acknowledged what nobody has judged: it is closed, and sends it again.  Nothing of it is remembered."""
    client, old = shell.online("c", 5), shell.online("o", 4)
    for each in (client, old):
        each.send(message(b"a", b"", 1, 1), message(b"b", b"", 1, 2), message(b"free/x", b"", 1, 3))
    shell.say(False, only="a", answered=False)
    assert client.take() == [Ack(AckKind.PUBACK, 1, R.NOT_AUTHORIZED)]
    assert old.take() == [] and old.closed and shell.stored() == []
    assert (shell.core.counters.rights_asked, shell.core.counters.rights_unanswered) == (4, 2)
    shell.say()
    client.send(message(b"a", b"", 1, 4))
    assert shell.stored() == [b"b", b"free/x"] and shell.questions() == [("publish", "a")]


@pytest.mark.parametrize("cache_ms", [0, 1_000])
def test_a_run_of_many_topics_is_asked_for_piece_by_piece(cache_ms: int) -> None:
    """No client has more than so many questions under way, and all of it goes on in its order, even if nothing is remembered."""
    shell = Plugged(cache_ms)
    shell.homes.durable_filters.append(b"#")
    client = shell.online("c", 5)
    wanted = [b"t/%d" % number for number in range(3 * AHEAD_MAX)]
    client.send(*[message(topic, b"", 1, number) for number, topic in enumerate(wanted, start=1)])
    rounds = 0
    while shell.rights:
        assert len(shell.rights) <= AHEAD_MAX + 1
        shell.say()
        rounds += 1
    assert shell.stored() == wanted and rounds <= len(wanted)


def test_answers_that_come_out_of_order_change_no_order(shell: Plugged) -> None:
    """The first message waits for its own."""
    client = shell.online("c", 5)
    client.send(message(b"a", b"", 1, 1), message(b"b", b"", 1, 2))
    shell.say(only="b")
    assert shell.stored() == []
    shell.say(only="a")
    assert shell.stored() == [b"a", b"b"]


def test_an_alias_that_is_given_behind_a_message_that_waits_is_read_there(shell: Plugged) -> None:
    """What it stands for is asked about, as it will be when its turn comes."""
    client = shell.online("c", 5)
    given = Publish(2, 2, b"b", properties=Properties(topic_alias=1))
    used = Publish(2, 3, b"", properties=Properties(topic_alias=1))
    client.send(message(b"a", b"", 1, 1), given, used)
    assert shell.questions() == [("publish", "a"), ("publish", "b")]
    shell.say()
    assert shell.stored() == [b"a", b"b", b"b"]


def test_a_delayed_message_is_asked_about_by_the_topic_behind_its_delay(shell: Plugged) -> None:
    """As a rule is."""
    client = shell.online("c", 5)
    client.send(message(b"$delayed/5/a", b"", 1, 1))
    assert shell.questions() == [("publish", "a")]


@pytest.mark.parametrize("allow", [True, False])
def test_who_says_goodbye_behind_a_message_that_waits_has_said_both(shell: Plugged, allow: bool) -> None:
    """The socket may be gone already: the message is taken, then DISCONNECT, and no will is left."""
    client = shell.client()
    client.send(Connect(5, "c", True, will=Will(b"free/will", b"")))
    shell.answer()
    client.take()
    client.send(message(b"a", b"", 1, 1), Disconnect())
    shell.turn(SocketLost(client.socket, "closed by the client"))
    assert shell.homes.ended == []
    shell.say(allow)
    assert shell.stored() == [b"a"] * allow
    assert [how != LOST for _, _, how, _ in shell.homes.ended] == [True] and shell.core.connections == 0


def test_who_is_lost_behind_a_message_that_waits_is_lost_when_it_was_taken(shell: Plugged) -> None:
    """Without a goodbye its will counts."""
    client = shell.online("c", 5)
    client.send(message(b"a", b"", 1, 1))
    shell.turn(SocketLost(client.socket, "reset"))
    shell.say()
    assert shell.stored() == [b"a"] and [how for _, _, how, _ in shell.homes.ended] == [LOST] and shell.core.connections == 0


def test_other_rules_let_go_on_who_waits(shell: Plugged) -> None:
    """By what they say; an answer under the former ones means nothing."""
    client, other = shell.online("c", 5), shell.online("o", 5)
    client.send(message(b"a", b"", 1, 1))
    other.send(message(b"b", b"", 1, 1))
    former, shell.rights = shell.rights, []
    shell.turn(AccessChanged(decided("[[rule]]\nallow = ['all']\ntopics = ['a']\n")))
    assert shell.stored() == [b"a"] and shell.questions() == [("publish", "b")]
    shell.turn(*[RightTold(each.asker, each.key, True) for each in former])
    assert shell.stored() == [b"a"]
    shell.turn(AccessChanged(OPEN))
    assert shell.stored() == [b"a", b"b"] and not other.paused


# ---------------------------------------------------------------- SUBSCRIBE


def test_a_subscribe_waits_for_all_of_its_filters(shell: Plugged) -> None:
    """Each has its own answer."""
    client = shell.online("c", 5)
    filters = [b"a/#", b"free/#", b"denied", b"b"]
    client.send(Subscribe(7, tuple([Subscription(each, 1) for each in filters])), message(b"free/x", b"", 0))
    assert shell.questions() == [("subscribe", "a/#"), ("subscribe", "b")] and client.take() == []
    shell.say(only="a/#")
    shell.say(False, only="b")
    assert Suback(7, (R.GRANTED_QOS_1, R.GRANTED_QOS_1, R.NOT_AUTHORIZED, R.NOT_AUTHORIZED)) in client.take()
    client.send(Subscribe(8, (Subscription(b"a/#", 1),)))
    assert shell.questions() == [("subscribe", "a/#")], "the former answer was for that packet"


def test_a_subscribe_of_many_filters_comes_to_its_end_if_nothing_is_remembered() -> None:
    """It needs all of the answers at once."""
    shell = Plugged(cache_ms=0)
    client = shell.online("c", 5)
    client.send(Subscribe(7, tuple([Subscription(b"f/%d" % number) for number in range(3 * AHEAD_MAX)])))
    while shell.rights:
        shell.say(only=shell.rights[0].asked.topic)
    assert client.take() == [Suback(7, (R.SUCCESS,) * (3 * AHEAD_MAX))]


# ---------------------------------------------------------------- what leaves


@pytest.mark.parametrize("qos", [0, 1])
def test_a_message_to_a_subscriber_waits_and_so_does_what_follows_it(shell: Plugged, qos: int) -> None:
    """Publisher and other subscribers do not; what may not be read is not sent."""
    subscriber, publisher = subscribed(shell, b"#", qos), shell.online("p", 5)
    rows = [message(topic, b"", qos, number * bool(qos)) for number, topic in enumerate((b"free/1", b"free/2"), start=1)]
    publisher.send(*rows)
    shell.answer()
    assert topics(subscriber) == [b"free/1", b"free/2"]
    for number, topic in enumerate((b"x", b"y", b"free/3"), start=3):
        publisher.send(message(topic, b"", qos, number * bool(qos)))
        shell.say(action="publish")
        shell.answer()
    assert topics(subscriber) == [] and shell.questions() == [("receive", "x"), ("receive", "y")]
    shell.say(only="y")
    assert topics(subscriber) == []
    shell.say(False, only="x")
    assert topics(subscriber) == [b"y", b"free/3"] and shell.core.counters.deliveries_suppressed == 1


def test_what_waits_for_the_window_is_asked_for_when_it_leaves(shell: Plugged) -> None:
    """However long ago it was asked for when it came; order stays."""
    subscriber, publisher = subscribed(shell, b"#", 1, receive_maximum=1), shell.online("p", 5)
    for number, topic in enumerate((b"free/1", b"x", b"free/2"), start=1):
        publisher.send(message(topic, b"", 1, number))
        shell.say()
        shell.answer()
        shell.say()
    assert topics(subscriber) == [b"free/1"]
    shell.pass_time(2_000)
    subscriber.send(AckRun(AckKind.PUBACK, [1]))
    assert topics(subscriber) == [] and shell.questions() == [("receive", "x")]
    publisher.send(message(b"free/3", b"", 1, 4))
    shell.answer()
    assert topics(subscriber) == []
    shell.say(False)
    assert topics(subscriber) == [b"free/2"]
    subscriber.send(AckRun(AckKind.PUBACK, [2]))
    assert topics(subscriber) == [b"free/3"]


def deliver(client: Client, *found: bytes) -> Deliver:
    rows = [(topic, b"\0", 0, 0) for topic in found]
    count = len(rows)
    return Deliver(rows, [(client.conn, list(range(count)), list(range(1, count + 1)), b"\x32" * count, [0] * count)])


def test_a_delivery_to_a_durable_session_waits_and_a_no_is_acknowledged_in_its_place(shell: Plugged) -> None:
    """As with rules: the session goes on as if it had been delivered."""
    client = shell.online("c", 5, expiry_s=9)
    shell.to_session.clear()
    shell.turn(FromSession(0, deliver(client, b"free/1", b"x", b"y")))
    assert topics(client) == [b"free/1"] and shell.questions() == [("receive", "x"), ("receive", "y")]
    shell.say(False, only="x")
    assert topics(client) == [] and shell.to_session == [(0, Acked(client.conn, PUBACK, [2], False))]
    shell.say(only="y")
    assert topics(client) == [b"y"]


def test_a_right_that_a_plugin_takes_away_stops_a_durable_subscription_within_a_second(shell: Plugged) -> None:
    """The answer from before counts no longer than that."""
    client = shell.online("c", 5, expiry_s=9)
    shell.turn(FromSession(0, deliver(client, b"x")))
    shell.say()
    assert topics(client) == [b"x"]
    shell.pass_time(999)
    shell.turn(FromSession(0, deliver(client, b"x")))
    shell.say(False)
    shell.turn(FromSession(0, deliver(client, b"x")))
    assert topics(client) == []


def test_what_nobody_has_judged_stays_and_is_asked_for_again(shell: Plugged) -> None:
    """A plugin that is away takes nothing from a session: nothing is acknowledged in the place of its client."""
    client = shell.online("c", 5, expiry_s=9)
    shell.to_session.clear()
    shell.turn(FromSession(0, deliver(client, b"x", b"y")))
    for _ in range(3):
        shell.say(False, answered=False)
        assert topics(client) == [] and shell.to_session == [] and shell.rights == []
        shell.pass_time(1_000)
        assert shell.questions() == [("receive", "x")]
    shell.say()
    shell.say()
    assert topics(client) == [b"x", b"y"]


def test_what_waits_for_the_window_stays_if_nobody_judges_it(shell: Plugged) -> None:
    """As above, of a session that is no longer than its connection."""
    subscriber, publisher = subscribed(shell, b"#", 1, receive_maximum=1), shell.online("p", 5)
    for number, topic in enumerate((b"free/1", b"x"), start=1):
        publisher.send(message(topic, b"", 1, number))
        shell.say()
        shell.answer()
        shell.say()
    shell.pass_time(2_000)
    subscriber.send(AckRun(AckKind.PUBACK, [1]))
    shell.say(False, answered=False)
    shell.pass_time(1_000)
    assert shell.questions() == [("receive", "x")]
    shell.say()
    assert topics(subscriber)[-1:] == [b"x"]


def test_what_waits_for_a_subscriber_is_bounded() -> None:
    """By the bounds of its queue; what is beyond them is dropped and counted, of a durable subscription nothing."""
    shell = Plugged()
    shell.turn(SettingsChanged(Options(queue_count_max=3)))
    subscriber, publisher = subscribed(shell, b"x", 0), shell.online("p", 5)
    publisher.send(message(b"x", b"", 0))
    shell.say(only="x")
    for _ in range(9):
        publisher.send(message(b"x", b"", 0))
    shell.say()
    durable = shell.online("d", 5, expiry_s=9)
    shell.turn(FromSession(0, deliver(durable, *[b"y"] * 9)))
    shell.say()
    assert len(topics(durable)) == 9
    assert len(topics(subscriber)) + shell.core.counters.live_dropped_queue_full == 10


def test_retained_messages_come_as_the_plugin_says(shell: Plugged) -> None:
    """However many there are, some at a time wait."""
    client = shell.online("c", 5)
    client.send(Subscribe(1, (Subscription(b"#", 0),)))
    shell.say()
    client.take()
    query = shell.queries.pop(0)
    found = [b"t/%d" % number for number in range(4 * AHEAD_MAX)]
    shell.turn(RetainedTold(query.shard, query.id, [encode_message(0, shell.wall_ms, b"p", topic, b"\0") for topic in found], b""))
    while shell.rights:
        assert len(shell.rights) <= AHEAD_MAX + 1
        shell.say()
    assert topics(client) == found


def test_nothing_goes_to_who_is_gone(shell: Plugged) -> None:
    """An answer for a connection that has ended means nothing, and what waited for it is forgotten."""
    client = shell.online("c", 5, expiry_s=9)
    shell.turn(FromSession(0, deliver(client, b"x")))
    shell.turn(SocketLost(client.socket, "reset"))
    shell.say()
    assert client.take() == [] and shell.core._state.askers == {}


def test_unsubscribe_needs_no_word(shell: Plugged) -> None:
    """Nor does what is no PUBLISH and no SUBSCRIBE."""
    client = shell.online("c", 5)
    client.send(Unsubscribe(3, (b"x",)), Pingreq())
    assert shell.rights == [] and len(client.take()) == 2


# ---------------------------------------------------------------- wills


@pytest.mark.parametrize("allow", [True, False])
def test_a_connect_with_a_will_waits_for_the_word_about_it(shell: Plugged, allow: bool) -> None:
    """Its home is not asked before; what came along with it waits."""
    client = shell.client(5)
    client.send(Connect(5, "c", True, will=Will(b"w", b"", retain=True)), Pingreq())
    assert shell.questions() == [("publish", "w")] and not shell.requests and client.take() == []
    shell.say(allow)
    shell.answer()
    assert client.take()[0] == Connack(False, R.SUCCESS if allow else R.NOT_AUTHORIZED, client_properties(allow))


def client_properties(allow: bool) -> Properties:
    return Properties(receive_maximum=1_024, topic_alias_maximum=32, maximum_packet_size=1 << 20) if allow else Properties()


def test_a_subscribe_that_nobody_judges_is_refused_filter_by_filter() -> None:
    """However many it has; then it is over."""
    shell = Plugged()
    client = shell.online("c", 5)
    client.send(Subscribe(7, tuple([Subscription(b"f/%d" % number) for number in range(AHEAD_MAX + 3)])))
    rounds = 0
    while shell.rights:
        shell.say(False, answered=False)
        rounds += 1
    assert client.take() == [Suback(7, (R.NOT_AUTHORIZED,) * (AHEAD_MAX + 3))] and rounds <= AHEAD_MAX + 3


def test_an_alias_that_was_given_just_before_is_known(shell: Plugged) -> None:
    """In front of the message that waits, in the same read."""
    client = shell.online("c", 5)
    given = Publish(2, 1, b"free/b", properties=Properties(topic_alias=1))
    used = Publish(2, 3, b"", properties=Properties(topic_alias=1))
    client.send(given, message(b"a", b"", 1, 2), used)
    assert shell.questions() == [("publish", "a")]
    shell.say()
    assert shell.stored() == [b"free/b", b"a", b"free/b"]
