"""Where a replay begins and ends in a shard: never too late, never too early, and told of what is gone."""

from __future__ import annotations

import pytest

from shards.clock import PositionClock
from shards.draft import Draft
from shards.engine import Op
from shards.engine_memory import MemoryEngine
from shards.frames import EARLIEST, LATEST, NO_END, PLACE, STEADY, WALL, Replay
from shards.messages import encode_message
from shards.options import StoreOptions
from shards.past import FIND_SLACK_MS, Past
from shards.steady import WALL_ROW, WallRow, WallStep
from shards.store import Store

T_MS = 1_700_000_000_000
STEP_MS, PER_GENERATION, GENERATIONS = 10_000, 60, 4


class Log:
    """A message every ten seconds, with a mark of time before it; generations of ten minutes. Positions count milliseconds here."""

    def __init__(self) -> None:
        self.engine = MemoryEngine()
        self.store = Store.open(self.engine, StoreOptions(), 0, T_MS)
        self.clock = PositionClock(self.store.generations()[-1].since)
        self.begun: list[int] = []
        self.past = Past(self.store, self.clock, self.begun.append)
        self.messages: list[tuple[int, int]] = []
        for number in range(PER_GENERATION * GENERATIONS):
            if number and number % PER_GENERATION == 0:
                self.roll(T_MS + number * STEP_MS)
            self.write(T_MS + number * STEP_MS)

    def write(self, at_ms: int) -> None:
        self.clock.at((at_ms - T_MS) * 1000)
        ops: list[Op] = []
        position = self.clock.take()
        self.store.note_time(ops, position, at_ms)
        key = self.store.key_of(b"a/b")
        self.store.append(ops, key, position, encode_message(1, at_ms, b"p", b"a/b", b"\0"))
        self.store.flush(ops)
        self.engine.write(self.store.take_growth() + ops)
        self.messages.append((position, at_ms))

    def roll(self, at_ms: int) -> None:
        self.clock.at((at_ms - T_MS) * 1000)
        self.engine.write(self.store.roll(self.clock.take(), 0, at_ms))

    def found(self, *replay: int) -> tuple[int, ...]:
        return tuple(self.past.found(Draft(self.engine), b"a/#", Replay(0, *replay), self.clock.take()))


@pytest.fixture(scope="module")
def log() -> Log:
    return Log()


@pytest.mark.parametrize("beside_ms", [-1, 0, 1, 4_999])
@pytest.mark.parametrize("number", [0, 1, 59, 60, 61, 150, 239])
def test_everything_since_a_time_and_little_before_it_is_behind_where_it_begins(log: Log, number: int, beside_ms: int) -> None:
    """Within the slack and a step of the marks; the same of everything before its end."""
    time_ms = log.messages[number][1] + beside_ms
    after, upto, since_ms, until_ms, kept_since_ms = log.found(STEADY, time_ms, NO_END, 0)
    assert (since_ms, until_ms, kept_since_ms, upto) == (time_ms, 0, 0, log.clock.last)
    wanted = [position for position, at_ms in log.messages if at_ms >= time_ms]
    assert all(position > after for position in wanted)
    assert sum(position > after for position, _ in log.messages) - len(wanted) <= FIND_SLACK_MS // STEP_MS + 2
    assert log.begun[-1] == after
    after, upto, since_ms, until_ms, _ = log.found(EARLIEST, 0, STEADY, time_ms)
    assert (since_ms, until_ms) == (0, time_ms) and after < log.messages[0][0]
    wanted = [position for position, at_ms in log.messages if at_ms < time_ms]
    assert all(position <= upto for position in wanted)
    assert sum(position <= upto for position, _ in log.messages) - len(wanted) <= FIND_SLACK_MS // STEP_MS + 2


def test_now_is_the_position_of_the_route_and_nobody_is_told_of_a_reading_behind_it(log: Log) -> None:
    """A time that is still to come is now, and a place beyond the shard too."""
    before = len(log.begun)
    after, upto, *_ = log.found(LATEST, 0, NO_END, 0)
    assert after == upto == log.clock.last and len(log.begun) == before
    after, upto, *_ = log.found(PLACE, 1 << 50, LATEST, 0)
    assert after == upto == log.clock.last
    after, upto, since_ms, *_ = log.found(WALL, T_MS + 10**10, NO_END, 0)
    assert upto == log.clock.last and since_ms == T_MS + 10**10 and after >= log.messages[-10][0]


def test_a_clock_that_was_set_widens_what_is_asked_for() -> None:
    """A time of the wall may have been twice: more comes than was meant, never less."""
    log = Log()
    steps = (WallStep(log.messages[100][0], 5_000), WallStep(log.messages[200][0], -7_000))
    log.engine.write([(0, WALL_ROW, WallRow(T_MS, steps).encode())])
    _, _, since_ms, until_ms, _ = log.found(WALL, T_MS + 10**6, WALL, T_MS + 10**6 + 1)
    assert (since_ms, until_ms) == (T_MS + 10**6 - 5_000, T_MS + 10**6 + 1 + 7_000)


def test_what_was_dropped_is_told_with_the_time_from_which_on_everything_is_there() -> None:
    """Of a time or a place before it; not of one behind it, nor of the earliest, which means what is left."""
    log = Log()
    first = log.store.generations()[0]
    ops = log.store.drop(first.id, T_MS + 10**8, "period")
    log.engine.write(ops)
    log.store.erase(first.id)
    second_ms = T_MS + PER_GENERATION * STEP_MS
    assert log.found(STEADY, T_MS, NO_END, 0)[4] == second_ms
    assert log.found(PLACE, log.messages[3][0], NO_END, 0)[4] == second_ms
    assert log.found(STEADY, second_ms + 1, NO_END, 0)[4] == 0
    assert log.found(PLACE, log.messages[70][0], NO_END, 0)[4] == 0
    after, *_, kept_since_ms = log.found(EARLIEST, 0, NO_END, 0)
    assert kept_since_ms == 0 and log.messages[59][0] <= after < log.messages[60][0]
