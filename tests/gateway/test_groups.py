"""Whose turn it is in a shared group: between gateways, and between members of one."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from gateway.connection import Connection
from gateway.events import Opened
from gateway.groups import Group, is_shared, matched_filter
from gateway.live import LiveSub

FILTER = b"$share/g/a/#"


def member(socket: int) -> LiveSub:
    return LiveSub(Connection(Opened(socket, "tcp", "peer")), FILTER, 1, True, 0, 0)


def test_a_shared_filter_is_taken_apart() -> None:
    """The topic filter may have levels of its own, empty ones too."""
    assert is_shared(FILTER) and not is_shared(b"$shared/g/a") and not is_shared(b"a/$share/g")
    assert [matched_filter(filter) for filter in (FILTER, b"$share/g//", b"$share/g/$SYS/x")] == [b"a/#", b"/", b"$SYS/x"]


def test_a_gateway_comes_round_as_often_as_it_has_members() -> None:
    """Two members here, one at each of two others: of four messages two stay."""
    group = Group(FILTER)
    group.join(member(1))
    group.join(member(2))
    group.members_at(1, "g2", 1)
    group.members_at(2, "g3", 1)
    assert [group.next_gateway() for _ in range(8)] == [None, None, 1, 2] * 2
    assert [group.next_other() for _ in range(4)] == [1, 2, 1, 2]


@pytest.mark.parametrize("seed", range(20))
def test_any_number_of_members_at_any_number_of_gateways_is_fair_from_the_start(seed: int) -> None:
    """After every message each gateway has had its share but for less than two messages, and after whole rounds exactly."""
    rng = Random(seed)
    group = Group(FILTER)
    weights: dict[int | None, int] = {None: rng.randrange(0, 6)} | {link: rng.randrange(1, 9) for link in range(rng.randrange(1, 5))}
    for socket in range(weights[None] or 0):
        group.join(member(socket))
    for link, members in weights.items():
        if link is not None:
            group.members_at(link, f"g{link}", members)
    total = sum(weights.values())
    served: Counter[int | None] = Counter()
    for count in range(1, 5 * total + 1):
        served[group.next_gateway()] += 1
        group.check()
        for link, members in weights.items():
            assert abs(served[link] - count * members / total) < 2
    for link, members in weights.items():
        assert abs(served[link] - 5 * members) <= 1


@pytest.mark.parametrize("seed", range(20))
def test_members_that_come_and_go_make_nobody_wait(seed: int) -> None:
    """However the numbers change, no gateway with members is left out for longer than two rounds of all members."""
    rng = Random(seed)
    group = Group(FILTER)
    subs = [member(socket) for socket in range(4)]
    group.join(subs[0])
    waits: Counter[int | None] = Counter()
    for _ in range(2_000):
        link = rng.randrange(1, 5)
        if rng.random() < 0.3:
            group.members_at(link, f"g{link}", rng.choice((0, 1, 2, 3)))
            waits[link] = 0
        if rng.random() < 0.3:
            sub = rng.choice(subs[1:])
            if sub.connection in group.members:
                group.leave(sub.connection)
            else:
                group.join(sub)
        group.check()
        chosen = group.next_gateway()
        places: list[int | None] = [None, *group._peers]
        for place in places:
            waits[place] = 0 if place == chosen else waits[place] + 1
            assert waits[place] <= 2 * (4 + 4 * 3)


def test_members_of_a_gateway_take_turns() -> None:
    """A newcomer is last; who subscribes again keeps its turn; who leaves is left out."""
    group = Group(FILTER)
    a, b, c = member(1), member(2), member(3)
    group.join(a)
    group.join(b)
    assert [group.next_member() for _ in range(3)] == [a, b, a]
    group.join(c)
    again = LiveSub(b.connection, FILTER, 2, True, 0, 7)
    group.join(again)
    assert [group.next_member() for _ in range(4)] == [again, a, c, again]
    group.leave(a.connection)
    assert [group.next_member() for _ in range(3)] == [c, again, c]


def test_the_first_gateway_is_the_same_for_all() -> None:
    """Of those with members the one with the smallest name; a gateway without members is not asked."""
    group = Group(FILTER)
    group.members_at(1, "g1", 2)
    assert not group.is_first("g0")
    group.join(member(1))
    assert group.is_first("g0") and not group.is_first("g2")
    group.members_at(1, "g1", 0)
    assert group.is_first("g2")


def test_session_actors_are_not_among_the_gateways_that_a_will_is_left_to() -> None:
    """They get it themselves and leave groups to gateways; only a group without other members is theirs alone."""
    group = Group(FILTER)
    group.members_at(-1, "a name before all others", 2)
    assert group.only_in_memory and not group.is_first("g0")
    group.join(member(1))
    assert group.is_first("g0") and not group.only_in_memory
