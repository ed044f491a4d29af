"""Who of a shared group gets what is next: order by stream, room, and members whose connection changes meanwhile."""

from __future__ import annotations

from sessions.committing import Home
from sessions.group import Group
from sessions.options import SessionOptions
from shards.frames import AWAY, FULL

STREAM = (b"p", b"t")


def group(**options: int | str) -> Group:
    made = Group(Home(0), b"$share/g/#", 7, 8, SessionOptions(**options))  # type: ignore[arg-type]
    made.ready[0] = None
    return made


def arrive(made: Group, *numbers: int, topic: bytes = b"t") -> None:
    for number in numbers:
        made.arrived(number, b"p", topic, b"value")
    made.check()


def test_nothing_passes_what_may_come_back_from_a_connection_that_is_gone() -> None:
    """Its member is back with another one; until its home has said what became of all that was sent, it gets nothing."""
    made = group()
    made.member(b"a", 0, 256)
    arrive(made, 1)
    assert made.choose() == {b"a": [1]}
    made.member(b"a", 0, AWAY)
    made.member(b"a", 0, 512)
    arrive(made, 2)
    assert made.choose() == {}
    made.back(1, b"a")
    made.check()
    assert made.choose() == {b"a": [1, 2]}
    made.check()


def test_what_is_behind_a_message_goes_where_that_has_gone() -> None:
    """As long as it is not finished, and as far as there is room; then to anybody."""
    made = group(group_given_max=2)
    made.member(b"a", 0, 256)
    arrive(made, 1, 2, 3)
    assert made.choose() == {b"a": [1, 2]}
    made.member(b"b", 0, 512)
    arrive(made, 4, topic=b"u")
    assert made.choose() == {b"b": [4]}
    for number in (1, 2):
        made.given(number, b"a", 0)
    made.settled(1, b"a", 0)
    made.check()
    assert made.choose() == {b"a": [3]}
    for number in (2, 3):
        made.settled(number, b"a", 0)
    made.acknowledged([1, 2, 3])
    arrive(made, 5)
    assert list(made.choose()) == [b"a"], "who has least"
    made.check()


def test_what_comes_back_goes_before_what_is_behind_it() -> None:
    """To another member, in order."""
    made = group()
    made.member(b"a", 0, 256)
    arrive(made, 1, 2)
    made.choose()
    for number in (1, 2):
        made.given(number, b"a", 0)
    made.member(b"a", 0, AWAY)
    made.member(b"b", 0, 512)
    arrive(made, 3)
    assert made.choose() == {}
    assert made.absent(1) == [b"a"]
    made.back(2, b"a")
    assert made.choose() == {}
    made.back(1, b"a")
    assert made.choose() == {b"b": [1, 2, 3]}
    made.check()


def test_who_was_here_meanwhile_is_away_anew() -> None:
    """Its time begins again, and what was to happen after the first one does not."""
    made = group()
    made.member(b"a", 0, 256)
    arrive(made, 1)
    made.choose()
    made.given(1, b"a", 0)
    made.member(b"a", 0, AWAY)
    assert made.absent(1) == [b"a"] and made.absent(2) == []
    made.member(b"a", 0, 512)
    made.member(b"a", 0, AWAY)
    assert made.absent(3) == [b"a"]
    assert made.still_absent(b"a", 1) is None and made.still_absent(b"a", 3) == 0


def test_a_member_that_is_full_is_given_nothing_and_is_not_away() -> None:
    """Others get what there is."""
    made = group()
    made.member(b"a", 0, FULL)
    made.member(b"b", 0, 512)
    arrive(made, 1, 2)
    assert made.choose() == {b"b": [1, 2]}
    made.member(b"b", 0, FULL)
    assert not made.may_read(1 << 20) and made.absent(1) == []


def test_what_had_no_room_goes_before_what_came_behind_it() -> None:
    """Of one stream, when there is room again for one of them."""
    made = group(group_given_max=2)
    made.member(b"a", 0, 256)
    arrive(made, 1, topic=b"u")
    arrive(made, 2, 3)
    assert made.choose() == {b"a": [1, 2]}
    arrive(made, 4)
    made.settled(1, b"a", 0)
    assert made.choose() == {b"a": [3]}
    made.settled(2, b"a", 0)
    assert made.choose() == {b"a": [4]}
    made.check()


def test_what_is_settled_stays_so_when_its_client_is_back() -> None:
    """Begun at QoS 2 by a client that went: nobody waits for it, and its lease does not stay for ever."""
    made = group()
    made.member(b"a", 0, 256)
    arrive(made, 1)
    assert made.choose() == {b"a": [1]}
    made.given(1, b"a", 0)
    made.settled(1, b"a", 0)
    made.given(1, b"a", 0)
    assert not made.held
    made.acknowledged([1])
    made.check()
