"""actors.main_thread: the thread that Ray asks a hundred times a second rests, and is there when it is needed."""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
from collections.abc import Iterator

import pytest

from actors import main_thread
from actors.main_thread import ASK_S, EVERY_S, NUMBER, REST_S, Resting

TIMEOUT_S = 60.0


class Clock:
    """Stands for module time: sleeping is counted, and takes no time."""

    def __init__(self) -> None:
        self.slept: list[float] = []
        self.often = threading.Event()
        """Three times."""

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        if len(self.slept) >= 3:
            self.often.set()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    """What is prepared is as it was afterwards."""
    clock, before, interval_s = Clock(), signal.getsignal(NUMBER), sys.getswitchinterval()
    monkeypatch.setattr(main_thread, "time", clock)
    yield clock
    signal.signal(NUMBER, before)
    sys.setswitchinterval(interval_s)


def main_loop(enough: list[float]) -> None:
    """Called as Ray's: the main thread stands in it, and looks for signals, until there is something here."""
    while not enough:
        pass


def test_it_rests_where_ray_waits_and_nowhere_else(clock: Clock) -> None:
    """A main thread that is in the midst of anything else, perhaps with a lock, is not kept from it."""
    main_thread.prepare()
    signal.raise_signal(NUMBER)
    assert clock.slept == []

    def call() -> None:
        # One that comes before the main thread is there is for nothing.
        while not clock.slept:
            signal.pthread_kill(threading.main_thread().ident or 0, NUMBER)

    ring = threading.Thread(target=call)
    ring.start()
    main_loop(clock.slept)
    ring.join(TIMEOUT_S)
    assert set(clock.slept) == {REST_S}


def test_it_rests_again_and_again_from_after_the_start_until_the_end(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop, in another thread, has it done; after `end` no more."""
    monkeypatch.setattr(main_thread, "FIRST_S", 0.001)
    monkeypatch.setattr(main_thread, "EVERY_S", 0.001)
    main_thread.prepare()
    ended: list[float] = []
    after: list[int] = []

    async def work() -> None:
        resting = Resting()
        resting.begin()
        assert await asyncio.to_thread(clock.often.wait, TIMEOUT_S)
        resting.end()
        # One that was asked for before the end may still come.
        after.append(len(clock.slept))
        loop = asyncio.get_running_loop()
        later = loop.create_future()
        loop.call_later(20 * main_thread.EVERY_S, later.set_result, None)
        await later
        after.append(len(clock.slept))

    def run() -> None:
        try:
            asyncio.run(work())
        finally:
            ended.append(0)

    loop = threading.Thread(target=run)
    loop.start()
    main_loop(ended)
    loop.join(TIMEOUT_S)
    assert set(clock.slept) == {REST_S}
    assert after[1] <= after[0] + 1


async def test_in_a_process_that_is_not_rays_nothing_is_done(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who has not prepared for the signal gets none: by itself it would end the process."""
    monkeypatch.setattr(main_thread, "FIRST_S", 0.0)
    asked: list[int] = []
    monkeypatch.setattr(main_thread, "interrupt_main", asked.append)
    resting = Resting()
    resting.begin()
    for _ in range(3):
        await asyncio.sleep(0)
    resting.end()
    assert asked == []


def test_a_thread_that_waits_for_the_lock_soon_asks_for_it(clock: Clock) -> None:
    """A loop that gives the lock back and takes it again every millisecond keeps nobody from it for long."""
    main_thread.prepare()
    assert sys.getswitchinterval() == pytest.approx(ASK_S) and ASK_S < 0.001


def test_calls_are_heard_between_two_rests() -> None:
    """A call takes a few milliseconds of the main thread."""
    assert EVERY_S - REST_S >= 0.03
