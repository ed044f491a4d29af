"""The small parts that bound what logins cost: turns of sources, waiting after wrong ones, what is remembered."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.auth.remembered import Remembered
from actors.auth.slowing import LONGEST_WAIT_S, Slowing, source
from actors.auth.turns import SHARE, Turns
from actors.auth.written import BYTES_MAX, shown

KEY = b"k" * 32


def test_sources_take_turns() -> None:
    """Who has put fifty waits behind himself; who has put one is next but one."""
    turns: Turns[str] = Turns(1_000)
    for number in range(50):
        assert turns.put("10.0.0.1", f"a{number}")
    turns.put("10.0.0.2", "b")
    assert [turns.take() for _ in range(3)] == ["a0", "b", "a1"]


def test_a_source_has_a_tenth_of_the_places() -> None:
    """And another one gets a place then."""
    turns: Turns[int] = Turns(100)
    assert [turns.put("10.0.0.1", number) for number in range(11)] == [True] * 10 + [False]
    assert turns.put("10.0.0.2", 1) and len(turns) == 11


def test_a_full_queue_takes_nobody() -> None:
    """Whoever it is."""
    turns: Turns[int] = Turns(2)
    assert turns.put("a", 1) and turns.put("b", 2) and not turns.put("c", 3)


@settings(max_examples=50)
@given(st.lists(st.tuples(st.sampled_from(["put", "take", "drop"]), st.sampled_from("abc"), st.integers(0, 9))))
def test_turns_lose_and_invent_nothing(steps: list[tuple[str, str, int]]) -> None:
    """Counted, bounded for each source, and in order within one."""
    turns: Turns[int] = Turns(30)
    model: dict[str, list[int]] = {each: [] for each in "abc"}
    for what, whose, number in steps:
        item = number * 3 + "abc".index(whose)
        if what == "put" and item not in model[whose]:
            taken = turns.put(whose, item)
            assert taken == (len(model[whose]) < 30 // SHARE)
            model[whose] += [item] if taken else []
        elif what == "drop":
            turns.drop(whose, item)
            model[whose] = [each for each in model[whose] if each != item]
        elif what == "take":
            found = turns.take()
            if found is None:
                assert not any(model.values())
            else:
                assert model["abc"[found % 3]].pop(0) == found
        assert len(turns) == sum(map(len, model.values()))


def test_the_fifth_wrong_one_makes_the_next_wait() -> None:
    """A second, then twice as long each time, thirty at most."""
    slowing = Slowing(KEY)
    pair = slowing.pair("ann", "192.0.2.1")
    waits = []
    for _ in range(12):
        slowing.wrong(pair, 0.0)
        waits.append(slowing.wait_s(pair, 0.0))
    assert waits == [0, 0, 0, 0, 1, 2, 4, 8, 16, 30, 30, 30]
    assert slowing.wait_s(pair, 10.0) == LONGEST_WAIT_S - 10 and slowing.wait_s(pair, 30.0) == 0


def test_others_do_not_wait() -> None:
    """Of another user at that address, or of that user at another."""
    slowing = Slowing(KEY)
    for _ in range(9):
        slowing.wrong(slowing.pair("ann", "192.0.2.1"), 0.0)
    assert not slowing.wait_s(slowing.pair("ann", "192.0.2.2"), 0.0) and not slowing.wait_s(slowing.pair("bob", "192.0.2.1"), 0.0)


def test_a_minute_of_peace_forgets() -> None:
    """Counted from the end of the last wait."""
    slowing = Slowing(KEY)
    pair = slowing.pair("ann", "192.0.2.1")
    for _ in range(5):
        slowing.wrong(pair, 0.0)
    slowing.wrong(pair, 60.0)
    assert slowing.wait_s(pair, 60.0) == 2
    slowing.wrong(pair, 123.0)
    assert slowing.wait_s(pair, 123.0) == 0


def test_pairs_are_bounded() -> None:
    """The one that was wrong longest ago is forgotten, whatever names are made up; a name of 64 kB costs no more than a short one."""
    slowing = Slowing(KEY, pairs_max=10)
    first = slowing.pair("ann", "192.0.2.1")
    for _ in range(6):
        slowing.wrong(first, 0.0)
    for number in range(9):
        slowing.wrong(slowing.pair("x" * 65_535 + str(number), "192.0.2.1"), 0.0)
    assert slowing.wait_s(first, 0.0)
    slowing.wrong(slowing.pair("y", "192.0.2.1"), 0.0)
    assert not slowing.wait_s(first, 0.0) and len(first) == 16


@pytest.mark.parametrize(
    ("address", "wanted"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
        ("2001:db8:1:2:ffff::1", "2001:db8:1:2::"),
        ("", ""),
        ("unix", "unix"),
    ],
)
def test_a_host_of_ipv6_is_one_source(address: str, wanted: str) -> None:
    """It has 2^64 addresses to come from."""
    assert source(address) == wanted


def test_what_was_right_is_remembered_for_a_while() -> None:
    """With that password, by that entry, of that user; zero seconds is never."""
    remembered = Remembered(KEY)
    remembered.right("ann", b"secret", "$7$x", 100.0)
    assert remembered.knows("ann", b"secret", "$7$x", 159.0, 60)
    assert not remembered.knows("ann", b"secret", "$7$x", 160.0, 60) and not remembered.knows("ann", b"secret", "$7$x", 100.0, 0)
    assert not remembered.knows("ann", b"secret", "$7$y", 100.0, 60) and not remembered.knows("ann", b"other", "$7$x", 100.0, 60)
    assert not remembered.knows("bob", b"secret", "$7$x", 100.0, 60)


def test_what_is_remembered_is_bounded() -> None:
    """The one that was right longest ago goes."""
    remembered = Remembered(KEY, count_max=2)
    for user in ("a", "b", "a", "c"):
        remembered.right(user, b"", "e", 0.0)
    assert [remembered.knows(user, b"", "e", 0.0, 60) for user in "abc"] == [True, False, True]


def test_names_are_shown_short_and_on_one_line() -> None:
    """Whatever they are."""
    assert shown("Zoë") == "Zoë" and shown(None) is None and shown("a\nb\x1b[2J") == "a\\nb\\x1b[2J"
    assert shown("x" * 70_000) == "x" * BYTES_MAX and len((shown("é" * 200) or "").encode()) <= BYTES_MAX
