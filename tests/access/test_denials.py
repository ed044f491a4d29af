"""What the log hears of refusals."""

from __future__ import annotations

from access.denials import AGAIN_MS, KEYS_MAX, Denial, Denials
from access.rights import Right


def test_each_is_told_at_once_and_again_a_minute_later_with_its_count() -> None:
    """Nothing is told of what has not happened again, and after that minute it is new."""
    denials = Denials()
    denials.note(b"c", Right.PUBLISH, b"t")
    assert denials.take(0) == [Denial(b"c", Right.PUBLISH, b"t", 1)]
    for _ in range(3):
        denials.note(b"c", Right.PUBLISH, b"t")
    assert denials.take(AGAIN_MS - 1) == []
    assert denials.take(AGAIN_MS) == [Denial(b"c", Right.PUBLISH, b"t", 3)]
    assert denials.take(2 * AGAIN_MS) == []
    denials.note(b"c", Right.PUBLISH, b"t")
    assert denials.take(2 * AGAIN_MS) == [Denial(b"c", Right.PUBLISH, b"t", 1)]


def test_what_there_is_no_room_for_is_counted_together() -> None:
    """Somebody who tries many topics fills no log."""
    denials = Denials()
    for number in range(KEYS_MAX + 5):
        denials.note(b"c", Right.SUBSCRIBE, b"t/%d" % number)
    told = denials.take(0)
    assert len(told) == KEYS_MAX + 1 and told[-1] == Denial(b"", Right(0), b"", 5)
    assert denials.take(1) == []


def test_names_from_outside_are_cut_and_escaped() -> None:
    """A topic may hold anything."""
    fields = Denial(b"c\xff", Right.PUBLISH | Right.RETAIN, "a\nb\u202e".encode() + b"x" * 300, 1).fields()
    assert fields["client_id"] == r"c\\xff" and fields["right"] == "publish retain"
    assert str(fields["topic"]).startswith(r"a\nb\u202e") and len(str(fields["topic"])) < 300
