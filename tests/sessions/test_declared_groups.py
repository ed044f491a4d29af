"""Shared groups that were declared: there without members, over crashes of whoever makes them (docs/groups.md)."""

from __future__ import annotations

from typing import Any

import pytest

from sessions.events import FromGateway
from sessions.frames import Subacked, Subscribe, Unsubscribe
from sessions.inquiry_frames import REWIND
from sessions.options import BY_STREAM, ROUND_ROBIN
from shards import groups
from shards.engine import HOME_FAMILY
from shards.frames import (
    EARLIEST,
    GROUP_BEGUN,
    GROUP_FORBIDDEN,
    GROUP_HAS_MEMBERS,
    GROUP_OTHERWISE,
    GROUP_SENSELESS,
    GROUP_TAKEN,
    GROUP_UNKNOWN,
    GROUPS_FULL,
    LATEST,
    WALL,
    Declare,
    Declared,
    Drop,
    Dropped,
    GroupRows,
    GroupRowsFound,
    Query,
    Result,
    Route,
    Unread,
    UnreadFound,
)
from shards.rows import GROUP, MEMBER, MEMBERSHIP, ROUTE, SESSION, SUBSCRIPTION, WORK, GroupRow, successor, unpack_group
from tests.sessions.real_shards import GATEWAY
from tests.sessions.test_groups import GROUP_FILTER, Crowd, move
from tests.shards.harness import G, S

A = 3
"""The link of an operator."""
OWN = (SESSION, SUBSCRIPTION, GROUP, WORK, ROUTE, MEMBER)
"""What a group that has ended leaves nothing of."""


class Operated(Crowd):
    """A crowd, and somebody who declares."""

    def __init__(self, *members: bytes, qos: int = 1, strategy: str = BY_STREAM) -> None:
        super().__init__(*members, qos=qos, strategy=strategy)
        self.home = self.broker.shards[self.broker.slots.shard_of(GROUP_FILTER)]
        self.home.link(A, "admin", "a0:a")

    def declare(self, said: str = "latest", since: int = LATEST, value: int = 0, strategy: str = "") -> Declared:
        (declared,) = self.home.ask(A, Declare(GROUP_FILTER, since, value, said, strategy, "test"))
        assert isinstance(declared, Declared)
        return declared

    def declared(self, said: str = "latest", since: int = LATEST, value: int = 0, strategy: str = "") -> None:
        assert self.declare(said, since, value, strategy).code == GROUP_TAKEN
        self.rest()
        assert not self.row().lays and self.row().begun

    def drop(self, leave: bool = False, group: int = 0) -> Dropped:
        (dropped,) = self.home.ask(A, Drop(GROUP_FILTER, group or self.row().id, leave, "test"))
        assert isinstance(dropped, Dropped)
        return dropped

    def row(self) -> GroupRow:
        value = self.home.engine.get(HOME_FAMILY, GROUP + GROUP_FILTER)
        assert value is not None
        return unpack_group(value)

    def leave_group(self, member: bytes) -> None:
        self.broker._feed(FromGateway(GATEWAY, Unsubscribe(self.members[member].conn, 2, [GROUP_FILTER])))
        self.rest()

    def left(self) -> dict[bytes, int]:
        counts = {
            family: sum([len(h.engine.scan(HOME_FAMILY, family, successor(family), 1_000)) for h in self.broker.shards]) for family in OWN
        }
        return {family: count for family, count in counts.items() if count}


def test_it_keeps_from_its_declaration_on_what_nobody_has_joined_for_yet() -> None:
    """In every shard, and gives it to the first member; what was stored before, for others, is not for it."""
    crowd = Operated()
    crowd.broker.subscribe(crowd.broker.connect(b"q", 3600), b"t/#")
    crowd.publish(b"t/0")
    crowd.declared()
    assert sum(len(h.engine.scan(HOME_FAMILY, ROUTE, successor(ROUTE), 10)) for h in crowd.broker.shards) == 4
    sent = crowd.publish(*[b"t/%d" % number for number in range(4)])
    crowd.join(b"a")
    crowd.rest()
    assert crowd.payloads(b"a") == sent
    crowd.ack(b"a")
    assert crowd.rows() == {GROUP: 1, MEMBER: 1, MEMBERSHIP: 1}


def test_it_does_not_end_with_its_last_member() -> None:
    """Who comes later gets what was published in between, and nothing twice."""
    crowd = Operated()
    crowd.declared()
    crowd.join(b"a")
    crowd.publish(b"t/1")
    crowd.ack(b"a")
    crowd.leave_group(b"a")
    sent = crowd.publish(b"t/1", b"t/2")
    crowd.join(b"b")
    crowd.rest()
    assert crowd.payloads(b"b") == sent


@pytest.mark.parametrize(("since", "value", "count"), [(EARLIEST, 0, 3), (WALL, 78, 0), (WALL, 77, 3), (LATEST, 0, 0)])
def test_it_may_begin_in_the_past(since: int, value: int, count: int) -> None:
    """With what is still stored since then; all that is published here was published at 77. Its members need no right to replays for it."""
    crowd = Operated()
    crowd.broker.subscribe(crowd.broker.connect(b"q", 3600), b"t/#")
    old = crowd.publish(b"t/1", b"t/2", b"t/3")
    crowd.declared("then", since, value)
    sent = crowd.publish(b"t/1")
    crowd.join(b"a")
    crowd.rest()
    assert sorted(crowd.payloads(b"a")) == sorted(old[:count] + sent)
    crowd.ack(b"a")
    assert crowd.rows() == {GROUP: 1, MEMBER: 1, MEMBERSHIP: 1}


def test_twice_the_same_is_once_and_something_else_is_refused() -> None:
    """Also one that its members have made; that one can be declared as it is, and its place stays."""
    crowd = Operated(b"a")
    crowd.leave(b"a")
    sent = crowd.publish(b"t/1")
    assert crowd.declare("earliest", EARLIEST).code == GROUP_BEGUN
    crowd.declared()
    group = crowd.row().id
    assert crowd.declare() == Declared(GROUP_TAKEN, group, "latest", "")
    assert crowd.declare("earliest", EARLIEST) == Declared(GROUP_OTHERWISE, group, "latest", "")
    assert crowd.declare(strategy=ROUND_ROBIN).code == GROUP_OTHERWISE
    crowd.connect(b"a")
    crowd.rest()
    assert crowd.payloads(b"a") == sent
    crowd.ack(b"a")
    crowd.leave_group(b"a")
    sent = crowd.publish(b"t/1")
    crowd.join(b"b")
    crowd.rest()
    assert crowd.payloads(b"b") == sent


@pytest.mark.needs("interpreted")
def test_what_makes_no_sense_or_comes_from_elsewhere_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """And one more than there may be, until one is dropped."""
    crowd = Operated()
    good = Declare(GROUP_FILTER, LATEST, 0, "latest", "", "test")
    for bad in (
        good._replace(filter=b"t/#"), good._replace(filter=b"$share/g"), good._replace(since=77), good._replace(said=""),
        good._replace(strategy="somehow"), good._replace(since=WALL, since_value=-1),
    ):  # fmt: skip
        assert crowd.home.ask(A, bad) == [Declared(GROUP_SENSELESS)]
    assert crowd.home.ask(G, good, Drop(GROUP_FILTER, 1, True, "x")) == [Declared(GROUP_FORBIDDEN), Dropped(GROUP_FORBIDDEN)]
    monkeypatch.setattr(groups, "DECLARED_MAX", 1)
    other = good._replace(filter=b"$share/h/t/#")
    crowd.declared()
    assert crowd.home.ask(A, other) == [Declared(GROUPS_FULL)]
    assert crowd.drop().code == GROUP_TAKEN
    assert crowd.home.ask(A, other)[0] != Declared(GROUPS_FULL)


def test_a_strategy_of_its_own() -> None:
    """Others go on as it is configured."""
    crowd = Operated(strategy=BY_STREAM)
    crowd.declared(strategy=ROUND_ROBIN)
    for member in (b"a", b"b"):
        crowd.join(member)
    crowd.publish(*[b"t/1"] * 6)
    assert [len(crowd.got[member]) for member in (b"a", b"b")] == [3, 3]


def test_dropped_without_members_it_ends_with_all_it_has() -> None:
    """Nothing of it is left in any shard; declared anew it is another one."""
    crowd = Operated()
    crowd.declared()
    before = crowd.row().id
    crowd.publish(b"t/1")
    assert crowd.drop() == Dropped(GROUP_TAKEN, 0)
    crowd.rest()
    assert crowd.left() == {} and crowd.rows() == {} and not len(crowd.broker.core._groups)
    assert crowd.drop(group=before) == Dropped(GROUP_UNKNOWN, 0)
    crowd.declared()
    assert crowd.row().id != before and crowd.drop(group=before) == Dropped(GROUP_UNKNOWN, 0)
    sent = crowd.publish(b"t/1")
    crowd.join(b"a")
    crowd.rest()
    assert crowd.payloads(b"a") == sent


def test_dropped_with_members_it_is_left_to_them_and_ends_with_the_last() -> None:
    """Only when that was said; they lose nothing of what they were promised."""
    crowd = Operated()
    crowd.declared()
    sent = crowd.publish(b"t/1")
    crowd.join(b"a")
    crowd.rest()
    assert crowd.drop() == Dropped(GROUP_HAS_MEMBERS, 1)
    assert crowd.drop(leave=True) == Dropped(GROUP_TAKEN, 1)
    sent += crowd.publish(b"t/1")
    assert crowd.payloads(b"a") == sent
    crowd.ack(b"a")
    crowd.leave_group(b"a")
    assert GROUP not in crowd.left() and crowd.rows() == {}
    assert ROUTE not in crowd.left() and WORK not in crowd.left()


@pytest.mark.parametrize("since", [LATEST, EARLIEST])
@pytest.mark.parametrize("turns", range(8))
def test_whoever_owns_its_home_next_finishes_what_was_begun(turns: int, since: int) -> None:
    """The owner is killed in between; from the moment in which it holds, everything is kept."""
    crowd = Operated()
    assert crowd.declare("then", since).code == GROUP_TAKEN
    for _ in range(turns):
        crowd.broker.turn()
    crowd.broker.kill_owner()
    crowd.broker.start_owner()
    crowd.rest()
    assert crowd.row().begun and not crowd.row().lays
    sent = crowd.publish(b"t/1", b"t/2")
    crowd.join(b"a")
    crowd.rest()
    assert sorted(crowd.payloads(b"a")) == sorted(sent)


@pytest.mark.parametrize("shard", [0, 1])
@pytest.mark.parametrize("turns", range(6))
def test_dropped_while_it_is_made_it_leaves_nothing(turns: int, shard: int) -> None:
    """Whatever was on its way, also when a shard or the owner was away meanwhile."""
    crowd = Operated()
    crowd.broker.away(shard)
    group = crowd.declare("earliest", EARLIEST).group
    for _ in range(turns):
        crowd.broker.turn()
    assert crowd.drop(group=group).code == GROUP_TAKEN
    crowd.broker.turn()
    crowd.broker.back(shard)
    crowd.rest()
    if turns % 2:
        crowd.broker.kill_owner()
        crowd.broker.start_owner()
        crowd.rest()
    assert crowd.left() == {} and not crowd.broker.core._groups._declaring._laying


@pytest.mark.parametrize("since", [LATEST, EARLIEST])
@pytest.mark.parametrize("ahead", range(-5, 6))
def test_who_joins_while_it_is_made_gets_everything_from_its_suback_on(ahead: int, since: int) -> None:
    """Whichever of the two was asked for first, by so many turns."""
    crowd = Operated()
    crowd.connect(b"a")
    conn = crowd.members[b"a"].conn
    subscribe = Subscribe(conn, 1, [(GROUP_FILTER, 1, 0, 0)], 0)
    steps: list[Any] = [lambda: crowd.declare("then", since), lambda: crowd.broker._feed(FromGateway(GATEWAY, subscribe))]
    for number, step in enumerate(steps if ahead > 0 else reversed(steps)):
        for _ in range(abs(ahead) if number else 0):
            crowd.broker.turn()
        step()
    while Subacked(conn, 1, [1]) not in crowd.broker.to_gateway:
        crowd.broker.turn()
    sent = crowd.publish(b"t/1", b"t/2")
    assert sorted(crowd.payloads(b"a")) == sorted(sent)
    crowd.ack(b"a")
    assert crowd.rows() == {GROUP: 1, MEMBER: 1, MEMBERSHIP: 1}


def test_a_route_of_a_former_owner_comes_too_late() -> None:
    """Its group was dropped under a newer one; nothing is stored for it ever after."""
    crowd = Operated()
    crowd.declared()
    group = crowd.row().id
    token = crowd.home.core._owners.token
    crowd.broker.kill_owner()
    crowd.broker.start_owner()
    crowd.rest()
    crowd.drop()
    crowd.rest()
    for h in crowd.broker.shards:
        h.ask(S, Route([(group, b"t/#")], [], (GROUP_FILTER,), (), (), ((0, token),)))
    assert crowd.left() == {}


def test_generations_wait_as_long_as_nobody_knows_where_it_begins() -> None:
    """A shard that is asked what is unread says that something is."""
    crowd = Operated()
    crowd.broker.kill_owner()
    crowd.declare("earliest", EARLIEST)
    crowd.home.receive(A, Query(5, Unread(0, 1, 1 << 50, b"", 100)))
    crowd.home.tick()
    told = [frame for frame in crowd.home.sent[A] if isinstance(frame, Result)][-1].told
    assert isinstance(told, UnreadFound) and told.holding == [GROUP_FILTER]


def test_it_is_rewound_as_a_session_is_and_listed_with_its_members() -> None:
    """While nobody is there to get anything, too."""
    crowd = Operated()
    crowd.declared()
    sent = crowd.publish(b"t/1", b"t/2")
    crowd.join(b"a")
    crowd.rest()
    crowd.ack(b"a")
    crowd.leave(b"a")
    move(crowd, REWIND, [0, 0])
    crowd.home.receive(A, Query(6, GroupRows(b"", 10)))
    crowd.home.tick()
    told = [frame for frame in crowd.home.sent[A] if isinstance(frame, Result)][-1].told
    assert isinstance(told, GroupRowsFound) and told.whole
    assert [(filter, unpack_group(value), count) for filter, value, count in told.rows] == [(GROUP_FILTER, crowd.row(), 1)]
    crowd.connect(b"a")
    crowd.rest()
    assert sorted(crowd.payloads(b"a")) == sorted(sent)
