"""Durable shared groups: a session actor's core and real shards, with members at home in both (docs/groups.md)."""

from __future__ import annotations

import pytest

from sessions.bodies import DUP
from sessions.events import FromGateway, FromInquirer, OfGroup
from sessions.frames import PUBACK, PUBCOMP, PUBREC, Acked, Deliver, SendPubrel, Subacked, Subscribe, Unsubscribe
from sessions.inquiry_frames import PURGE, REWIND, Move
from sessions.options import BY_PUBLISHER, BY_STREAM, BY_TOPIC, ROUND_ROBIN, SessionOptions
from shards.engine import HOME_FAMILY
from shards.frames import LOST, NORMAL, Connect, Connected, Given, Publish, Published
from shards.rows import DELIVERY, GROUP, MEMBER, MEMBERSHIP, OUTCOME, read_u64, split_client_key, successor, unpack_row
from tests.sessions.real_shards import GATEWAY, NEVER_MS, Broker
from tests.shards.harness import G, S

GROUP_FILTER = b"$share/g/t/#"
AWAY_MS = 1_000
FAMILIES = (GROUP, MEMBER, MEMBERSHIP, DELIVERY, OUTCOME)


class Crowd:
    """A broker, members, and what each of them has got and not acknowledged: (payload, QoS, DUP, packet id)."""

    def __init__(self, *members: bytes, qos: int = 1, strategy: str = BY_STREAM) -> None:
        options = SessionOptions(gc_interval_ms=NEVER_MS, redelivery_after_ms=AWAY_MS, group_strategy=strategy)
        self.broker = Broker(options=options)
        self.broker.start_owner()
        self.broker.rest()
        self.members: dict[bytes, Connected] = {}
        self.got: dict[bytes, list[tuple[bytes, int, bool, int]]] = {}
        self.publisher = self.broker.connect(b"p", 0)
        self.sent = 0
        for member in members:
            self.join(member, qos)

    def join(self, member: bytes, qos: int = 1) -> None:
        self.connect(member)
        conn = self.members[member].conn
        self.broker._feed(FromGateway(GATEWAY, Subscribe(conn, 1, [(GROUP_FILTER, qos, 0, 0)], 0)))
        self.broker.rest()
        assert Subacked(conn, 1, [qos]) in self.broker.to_gateway

    def connect(self, member: bytes, expiry_s: int = 3600) -> None:
        self.members[member] = self.broker.connect(member, expiry_s)
        self.got[member] = []

    def publish(self, *topics: bytes, qos: int = 1) -> list[bytes]:
        home = self.broker.shards[self.broker.slots.shard_of(b"p")]
        payloads = [b"m%d" % number for number in range(self.sent + 1, self.sent + 1 + len(topics))]
        ids = list(range(self.sent + 1, self.sent + 1 + len(topics)))
        self.sent += len(topics)
        bodies = [b"\0" + payload for payload in payloads]
        flags = bytes([qos << 1]) * len(topics)
        (published,) = home.ask(G, Publish(b"p", self.publisher.conn, False, 77, flags, ids, list(topics), bodies))
        assert published == Published(False, b"")
        self.rest()
        return payloads

    def rest(self, ms: int = 0) -> None:
        self.broker.rest(ms)
        self.look()

    def later(self) -> None:
        """What is committed lazily is committed: at the member's home, and then at the group's."""
        for _ in range(3):
            self.rest(30)

    def look(self) -> None:
        conns = {connected.conn: member for member, connected in self.members.items()}
        for frame in self.broker.to_gateway:
            if isinstance(frame, Deliver):
                for conn, indexes, packet_ids, firsts, _ in frame.to:
                    if conn in conns:
                        for index, packet_id, first in zip(indexes, packet_ids, firsts, strict=True):
                            row = (frame.messages[index][1][1:], first >> 1 & 3, bool(first & DUP), packet_id)
                            self.got[conns[conn]].append(row)
        self.broker.to_gateway = [frame for frame in self.broker.to_gateway if not isinstance(frame, Deliver)]

    def payloads(self, member: bytes) -> list[bytes]:
        return [payload for payload, *_ in self.got[member]]

    def ack(self, member: bytes, kind: int = PUBACK, count: int | None = None) -> None:
        rows = self.got[member][:count]
        if kind in (PUBACK, PUBCOMP):
            self.got[member] = self.got[member][len(rows) :]
        acked = Acked(self.members[member].conn, kind, [packet_id for *_, packet_id in rows], False)
        self.broker._feed(FromGateway(GATEWAY, acked))
        self.later()

    def leave(self, member: bytes, how: int = LOST, expiry_s: int | None = None) -> None:
        self.broker.disconnect(member, self.members[member], how, expiry_s)
        self.look()

    def rows(self) -> dict[bytes, int]:
        found = {
            family: sum([len(h.engine.scan(HOME_FAMILY, family, successor(family), 10_000)) for h in self.broker.shards])
            for family in FAMILIES
        }
        return {family: count for family, count in found.items() if count}


def test_each_message_comes_to_one_member_and_nothing_is_left_when_it_is_acknowledged() -> None:
    """Evenly, from members at home in both shards."""
    crowd = Crowd(b"a", b"b", b"c")
    sent = crowd.publish(*[b"t/%d" % number for number in range(9)])
    assert sorted(payload for member in crowd.members for payload in crowd.payloads(member)) == sorted(sent)
    assert [len(crowd.got[member]) for member in crowd.members] == [3, 3, 3]
    assert crowd.rows()[DELIVERY] == 9
    for member in crowd.members:
        crowd.ack(member)
    assert crowd.rows() == {GROUP: 1, MEMBER: 3, MEMBERSHIP: 3}


def test_what_was_published_while_all_members_were_away_comes_when_one_is_back() -> None:
    """In its order, to whoever comes."""
    crowd = Crowd(b"a", b"b")
    for member in (b"a", b"b"):
        crowd.leave(member)
    sent = crowd.publish(b"t/1", b"t/2", b"t/1")
    crowd.connect(b"b")
    crowd.rest()
    assert crowd.payloads(b"b") == sent


def test_messages_of_one_topic_stay_with_a_member_that_has_one_unfinished() -> None:
    """So they are in order, by stream."""
    crowd = Crowd(b"a", b"b")
    crowd.publish(b"t/1", b"t/2")
    first = next(member for member in crowd.members if b"m1" in crowd.payloads(member))
    crowd.publish(b"t/1", b"t/1")
    assert crowd.payloads(first) == [b"m1", b"m3", b"m4"]


def test_in_turns_when_that_is_configured() -> None:
    """Also messages of one topic."""
    crowd = Crowd(b"a", b"b", strategy=ROUND_ROBIN)
    crowd.publish(*[b"t/1"] * 6)
    assert [len(crowd.got[member]) for member in (b"a", b"b")] == [3, 3]


@pytest.mark.parametrize("strategy", [BY_TOPIC, BY_PUBLISHER])
def test_by_a_hash_when_that_is_configured(strategy: str) -> None:
    """The same publisher, or topic, to the same member."""
    crowd = Crowd(b"a", b"b", b"c", strategy=strategy)
    for _ in range(3):
        crowd.publish(*[b"t/%d" % number for number in range(12)])
        for member in crowd.members:
            crowd.ack(member)
    crowd.publish(*[b"t/%d" % number for number in range(12)])
    busy = [member for member in crowd.members if crowd.got[member]]
    assert len(busy) == (1 if strategy == BY_PUBLISHER else 3)


def test_an_unacknowledged_message_of_a_lost_member_goes_to_another_after_a_while_and_not_before() -> None:
    """What it had acknowledged goes to nobody, and what was taken from it does not come to it any more."""
    crowd = Crowd(b"a", b"b")
    crowd.publish(*[b"t/%d" % number for number in range(6)])
    crowd.ack(b"a", count=1)
    had = crowd.payloads(b"a")
    assert len(had) == 2
    crowd.leave(b"a")
    crowd.rest(AWAY_MS // 2)
    assert len(crowd.got[b"b"]) == 3
    crowd.rest(AWAY_MS)
    assert crowd.payloads(b"b")[3:] == had
    assert not any(dup for _, _, dup, _ in crowd.got[b"b"])
    crowd.ack(b"b")
    crowd.connect(b"a")
    crowd.rest()
    assert crowd.got[b"a"] == [] and DELIVERY not in crowd.rows()


def test_who_comes_back_in_time_gets_its_own_again() -> None:
    """Under the same identifiers, marked DUP; nobody else gets it."""
    crowd = Crowd(b"a", b"b")
    crowd.publish(*[b"t/%d" % number for number in range(6)])
    had = crowd.got[b"a"]
    crowd.leave(b"a")
    crowd.connect(b"a")
    crowd.rest()
    assert crowd.got[b"a"] == [(payload, qos, True, packet_id) for payload, qos, _, packet_id in had]
    crowd.rest(3 * AWAY_MS)
    assert len(crowd.got[b"b"]) == 3


def test_at_the_end_of_a_session_its_messages_go_to_another_at_once() -> None:
    """And it is a member no more."""
    crowd = Crowd(b"a", b"b")
    crowd.publish(*[b"t/%d" % number for number in range(6)])
    had = crowd.payloads(b"a")
    crowd.leave(b"a", NORMAL, expiry_s=0)
    crowd.rest()
    assert crowd.payloads(b"b")[3:] == had
    assert crowd.rows()[MEMBER] == 1


def test_what_was_begun_at_qos_2_waits_for_its_client_and_is_completed_there() -> None:
    """However long it is away [MQTT-4.8.2-4]."""
    crowd = Crowd(b"a", b"b", qos=2)
    crowd.publish(*[b"t/%d" % number for number in range(6)], qos=2)
    had = crowd.got[b"a"]
    crowd.ack(b"a", PUBREC, count=1)
    crowd.leave(b"a")
    crowd.rest(3 * AWAY_MS)
    assert len(crowd.got[b"b"]) == 3
    crowd.connect(b"a")
    crowd.rest()
    assert crowd.got[b"a"] == [(payload, qos, True, packet_id) for payload, qos, _, packet_id in had[1:]]
    assert SendPubrel(crowd.members[b"a"].conn, [had[0][3]]) in crowd.broker.to_gateway
    crowd.got[b"a"] = [had[0], *crowd.got[b"a"]]
    crowd.ack(b"a", PUBREC)
    crowd.ack(b"a", PUBCOMP)
    crowd.ack(b"b", PUBREC)
    crowd.ack(b"b", PUBCOMP)
    assert DELIVERY not in crowd.rows() and OUTCOME not in crowd.rows()


def test_what_was_begun_at_qos_2_goes_to_nobody_else_when_the_session_ends() -> None:
    """The group forgets it [MQTT-4.8.2-5]."""
    crowd = Crowd(b"a", b"b", qos=2)
    crowd.publish(*[b"t/%d" % number for number in range(6)], qos=2)
    crowd.leave(b"a", NORMAL, expiry_s=0)
    crowd.rest(3 * AWAY_MS)
    assert len(crowd.got[b"b"]) == 3
    crowd.ack(b"b", PUBREC)
    crowd.ack(b"b", PUBCOMP)
    assert DELIVERY not in crowd.rows() and OUTCOME not in crowd.rows()


def test_at_qos_0_a_message_is_finished_when_it_leaves() -> None:
    """Nothing waits for a member that acknowledges nothing."""
    crowd = Crowd(b"a", qos=0)
    sent = crowd.publish(b"t/1", b"t/2")
    assert [(payload, qos) for payload, qos, *_ in crowd.got[b"a"]] == [(payload, 0) for payload in sent]
    crowd.later()
    assert DELIVERY not in crowd.rows() and OUTCOME not in crowd.rows()


def test_unsubscribing_completes_what_was_sent_and_ends_the_group_with_its_last_member() -> None:
    """Nothing of it is left in any shard [MQTT-3.10.4-3]."""
    crowd = Crowd(b"a", b"b")
    crowd.publish(*[b"t/%d" % number for number in range(4)])
    for member in (b"a", b"b"):
        crowd.broker._feed(FromGateway(GATEWAY, Unsubscribe(crowd.members[member].conn, 2, [GROUP_FILTER])))
        crowd.rest()
    assert crowd.rows() == {DELIVERY: 4, OUTCOME: 4}
    for member in (b"a", b"b"):
        assert len(crowd.got[member]) == 2
        crowd.ack(member)
    assert crowd.rows() == {}
    assert not len(crowd.broker.core._groups)


def test_a_group_begins_with_its_first_member_and_once_ended_anew() -> None:
    """What was stored before, for others, is not for it."""
    crowd = Crowd(b"a")
    crowd.broker._feed(FromGateway(GATEWAY, Unsubscribe(crowd.members[b"a"].conn, 2, [GROUP_FILTER])))
    crowd.rest()
    plain = crowd.broker.connect(b"q", 3600)
    crowd.broker.subscribe(plain, b"t/#")
    crowd.publish(b"t/1")
    crowd.join(b"b")
    crowd.rest()
    assert crowd.got[b"b"] == []
    crowd.publish(b"t/1")
    assert crowd.payloads(b"b") == [b"m2"]


def test_a_new_owner_gives_nobody_what_a_member_has() -> None:
    """It is killed with messages under way; all of them come again, each to its own."""
    crowd = Crowd(b"a", b"b")
    crowd.publish(*[b"t/%d" % number for number in range(6)])
    crowd.later()
    had = {member: crowd.got[member] for member in (b"a", b"b")}
    crowd.broker.kill_owner()
    crowd.broker.start_owner()
    crowd.rest()
    for member in (b"a", b"b"):
        crowd.connect(member)
        crowd.rest()
    for member in (b"a", b"b"):
        assert crowd.got[member] == [(payload, qos, True, packet_id) for payload, qos, _, packet_id in had[member]]
        crowd.ack(member)
    assert crowd.rows() == {GROUP: 1, MEMBER: 2, MEMBERSHIP: 2}


@pytest.mark.parametrize("shard", [0, 1])
def test_a_shard_that_is_away_for_a_while_keeps_what_its_members_do(shard: int) -> None:
    """When it is back the group hears of it, and nothing is given twice."""
    crowd = Crowd(b"a", b"b", b"c", b"d", b"e")
    assert {crowd.broker.slots.shard_of(member) for member in crowd.members} == {0, 1}
    crowd.publish(*[b"t/%d" % number for number in range(10)])
    crowd.broker.away(shard)
    for member in crowd.members:
        crowd.ack(member)
    crowd.rest(10)
    crowd.broker.back(shard)
    crowd.later()
    assert crowd.rows() == {GROUP: 1, MEMBER: 5, MEMBERSHIP: 5}
    sent = crowd.publish(*[b"t/%d" % number for number in range(10)])
    assert sorted(payload for member in crowd.members for payload in crowd.payloads(member)) == sorted(sent)


@pytest.mark.parametrize("turns", range(6))
def test_a_home_forgets_what_is_finished_only_when_its_group_has_committed_that(turns: int) -> None:
    """Also if it says so once more meanwhile, because its link was away; else the next owner would give it to another member."""
    crowd = Crowd(b"a")
    crowd.publish(b"t/1")
    crowd.later()
    home = crowd.broker.slots.shard_of(b"a")
    packet_id = crowd.got[b"a"][0][3]
    crowd.broker._feed(FromGateway(GATEWAY, Acked(crowd.members[b"a"].conn, PUBACK, [packet_id], False)))
    for _ in range(turns):
        crowd.broker.turn()
    crowd.broker.away(home)
    crowd.broker.back(home)
    for _ in range(6):
        crowd.broker.turn()
    acknowledged = OUTCOME in crowd.rows() or DELIVERY not in crowd.rows()
    crowd.broker.kill_owner()
    crowd.broker.start_owner()
    crowd.rest()
    crowd.join(b"b")
    crowd.leave(b"a")
    crowd.rest(3 * AWAY_MS)
    assert crowd.payloads(b"b") == ([] if acknowledged else [b"m1"])


@pytest.mark.parametrize("away", [False, True])
@pytest.mark.parametrize("turns", range(1, 7))
def test_a_session_that_ends_while_it_joins_leaves_no_member_behind(turns: int, away: bool) -> None:
    """Whatever was on its way then, and also when the home of the group is away meanwhile."""
    crowd = Crowd()
    crowd.connect(b"a")
    assert crowd.broker.slots.shard_of(b"a") == 0 and crowd.broker.slots.shard_of(GROUP_FILTER) == 1
    if away:
        crowd.broker.away(1)
    crowd.broker._feed(FromGateway(GATEWAY, Subscribe(crowd.members[b"a"].conn, 1, [(GROUP_FILTER, 1, 0, 0)], 0)))
    for _ in range(turns):
        crowd.broker.turn()
    home = crowd.broker.shards[crowd.broker.slots.shard_of(b"a")]
    home.ask(G, Connect(b"a", True, 0, 5, None))
    for _ in range(3):
        crowd.broker.turn()
    if away:
        crowd.broker.back(1)
    crowd.rest(100)
    assert crowd.rows() == {}


@pytest.mark.parametrize("online", [False, True])
def test_a_group_can_be_rewound_and_purged_as_a_session_can(online: bool) -> None:
    """Also while its members have something of it."""
    crowd = Crowd(b"a", b"b")
    sent = crowd.publish(b"t/1", b"t/2", b"t/3")
    if not online:
        for member in (b"a", b"b"):
            crowd.ack(member)
            crowd.leave(member)
    before = {member: crowd.payloads(member) for member in crowd.members}
    move(crowd, REWIND, [0, 0])
    if not online:
        crowd.connect(b"a")
        crowd.rest()
    after = [payload for member in crowd.members for payload in crowd.payloads(member)[len(before[member]) if online else 0 :]]
    assert sorted(after) == sorted(sent)
    for member in crowd.members:
        crowd.ack(member)
    for member in (b"a", b"b") if online else (b"a",):
        crowd.leave(member)
    crowd.publish(b"t/1", b"t/2")
    move(crowd, PURGE, [h.core.watermark for h in crowd.broker.shards])
    crowd.connect(b"a")
    crowd.rest()
    assert crowd.got[b"a"] == []
    sent = crowd.publish(b"t/1")
    assert crowd.payloads(b"a") == sent


def move(crowd: Crowd, verb: int, to: list[int]) -> None:
    (group,) = crowd.broker.core._groups._groups.values()
    crowd.broker._feed(FromInquirer(7, Move(1, GROUP_FILTER, group.session_id, verb, b"", to, "test")))
    crowd.rest(30)


@pytest.mark.parametrize("turns", range(1, 9))
def test_what_is_told_before_what_was_lost_is_known_waits_for_that(turns: int) -> None:
    """A shard comes back and goes on with what its link had; what it told before it went comes with its rows, and goes first."""
    crowd = Crowd(b"a")
    broker, home = crowd.broker, crowd.broker.shards[0]
    assert broker.slots.shard_of(b"a") == 0
    publisher = broker.shards[broker.slots.shard_of(b"p")]
    ids, topics, bodies = [1, 2], [b"t/1", b"t/1"], [b"\0m1", b"\0m2"]
    publisher.ask(G, Publish(b"p", crowd.publisher.conn, False, 77, b"\2\2", ids, topics, bodies))
    for _ in range(turns):
        broker.turn()
    # What it says now is lost.
    for request in broker._senders[0].ready(broker.now_ms):
        home.receive(S, request)
    home.tick(1)
    home.settle()
    broker.away(0)
    broker.back(0)
    rows = home.engine.scan(HOME_FAMILY, DELIVERY, successor(DELIVERY), 10)
    if len(rows) == 2:
        suffix = split_client_key(rows[1][0])[1]
        filter, value = unpack_row(rows[1][1])
        broker._feed(OfGroup(0, Given(b"a", read_u64(suffix), filter, [read_u64(suffix, 8)], [value])))
    crowd.rest()
    assert crowd.payloads(b"a") == [b"m1", b"m2"]
    crowd.ack(b"a")
    assert crowd.rows() == {GROUP: 1, MEMBER: 1, MEMBERSHIP: 1}
