"""What a soak calls a stall."""

from __future__ import annotations

import pytest

from tests.gates.gate import GateFailed
from tests.gates.soak_stalls import LAG_S, STALL_S, Stalls, Waiting


def seconds(stalls: Stalls, count: int, of: object, *, online: object = float) -> None:
    """Look once a second for so long; ``of`` gives the count of each second."""
    for second in range(count):
        assert callable(of) and callable(online)
        stalls.look(100.0 + second, [Waiting("reader s", of(second), float(second), online(second))])


def test_nothing_for_too_long_is_a_stall() -> None:
    """Connected, something due, and not one delivery."""
    with pytest.raises(GateFailed, match="connected and gets nothing"):
        seconds(Stalls(), int(STALL_S) + 3, lambda second: 7)


def test_whoever_gets_something_now_and_then_does_not_stall() -> None:
    """However much is due."""
    stalls = Stalls()
    seconds(stalls, 300, lambda second: second // 10)
    assert stalls.longest_s == 9.0 and stalls.longest_story == "reader s"


def test_whoever_is_hardly_connected_stalls_later() -> None:
    """A client that changes its connection every other second shows a stall too, only not so soon."""
    stalls = Stalls()
    seconds(stalls, int(LAG_S), lambda second: 7, online=lambda second: float(second % 2))
    assert stalls.longest_s <= 1.0
    with pytest.raises(GateFailed, match="gets nothing for"):
        seconds(Stalls(), int(LAG_S) + 3, lambda second: 7, online=lambda second: float(second % 2))


def test_whoever_waits_for_nothing_begins_anew() -> None:
    """What was due has come; the next thing that is due may take its time again."""
    stalls = Stalls()
    for turn in range(5):
        seconds(stalls, int(STALL_S) - 1, lambda second: 7)
        stalls.look(200.0 + turn, [])
    assert stalls.longest_s < STALL_S


def test_a_thing_that_has_just_become_due_is_no_stall() -> None:
    """However long nothing has come because nothing was due."""
    stalls = Stalls()
    for second in range(100):
        stalls.look(float(second), [Waiting("reader s", 7, 0.5, 1000.0)])
    assert stalls.longest_s == 0.5
