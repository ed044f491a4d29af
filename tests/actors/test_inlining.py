"""Which syncs the loop waits for: those that are short, where it has little else to do."""

from __future__ import annotations

import pytest

from actors.inlining import ALONE, MESSAGES_MAX, QUICK_S, SEEN, STALL_S, SYNCS_PER_SLEEP_MAX, Inlining


class Loop:
    """How often it has slept."""

    def __init__(self, took_s: float = QUICK_S / 2) -> None:
        self.slept = 0
        self.publisher = b"p"
        self.inlining = Inlining(lambda: self.publisher, lambda: self.slept)
        for _ in range(SEEN):
            self.inlining.took(took_s)


def test_the_first_ones_are_the_thread_s() -> None:
    """Nobody knows the disk yet."""
    inlining = Inlining(lambda: b"p", lambda: 0)
    for _ in range(SEEN):
        assert not inlining.may(1)
        inlining.took(QUICK_S / 2)
    assert inlining.may(1)


@pytest.mark.parametrize(("messages", "may"), [(0, True), (1, True), (MESSAGES_MAX, True), (MESSAGES_MAX + 1, False), (1000, False)])
def test_many_messages_have_others_behind_them(messages: int, may: bool) -> None:
    """They go to the thread, and the loop takes the next ones meanwhile."""
    assert Loop().inlining.may(messages) is may


def test_a_loop_that_does_not_sleep_waits_only_so_often() -> None:
    """Whoever always has work gets it done beside the disk; what it slept for the disk does not count."""
    loop = Loop()
    for _ in range(3):
        for _ in range(SYNCS_PER_SLEEP_MAX):
            assert loop.inlining.may(1)
            loop.slept += 1
            loop.inlining.waited()
            loop.inlining.took(QUICK_S / 2)
        assert not loop.inlining.may(1) and not loop.inlining.may(1)
        loop.slept += 1


@pytest.mark.parametrize(("took_s", "may"), [(QUICK_S, True), (QUICK_S * 1.01, False), (STALL_S, False)])
def test_a_disk_that_takes_long_has_the_thread(took_s: float, may: bool) -> None:
    """By what half of the last ones took."""
    assert Loop(took_s).inlining.may(1) is may


def test_a_disk_that_becomes_slow_and_quick_again_is_noticed() -> None:
    """In the thread it is looked at as well."""
    loop = Loop()
    for _ in range(SEEN // 2 + 1):
        loop.inlining.took(STALL_S)
    assert not loop.inlining.may(1)
    for _ in range(SEEN):
        loop.inlining.took(QUICK_S / 2)
    assert loop.inlining.may(1)


def test_after_one_that_stalled_the_thread_has_them_for_a_while() -> None:
    """The loop is kept waiting once and not each time."""
    loop = Loop()
    loop.inlining.took(STALL_S * 2)
    for _ in range(SEEN):
        assert not loop.inlining.may(1)
        loop.inlining.took(QUICK_S / 2)
    assert loop.inlining.may(1)


def test_messages_that_come_one_by_one_need_no_sleep_between_them() -> None:
    """The next is sent when this one is acknowledged; as soon as two come together, or another one publishes, others wait."""
    loop = Loop()
    for _ in range(ALONE):
        loop.inlining.may(1)
    assert all(loop.inlining.may(1) for _ in range(50))
    assert not loop.inlining.may(0)
    assert loop.inlining.may(1)
    loop.inlining.may(2)
    assert not any(loop.inlining.may(1) for _ in range(ALONE))
    assert loop.inlining.may(1)
    loop.publisher = b"q"
    assert not loop.inlining.may(1)
    loop.publisher = b"p"
    assert not loop.inlining.may(1)
    loop.slept += 1
    assert loop.inlining.may(1)
