"""The two clocks of a shard that decide something: positions, which order, and age, which expires.

Nothing here reads a clock: readings are arguments, taken by the shell. The third clock, the wall, decides nothing; it is
written into messages for people.

*Position* counts microseconds of the shard's elapsed time and never stands still: two messages never share one, and no step
of the wall clock moves it.

*Age* is elapsed time in milliseconds since the store was made, including the time it was switched off. Within one boot of the
machine it follows CLOCK_BOOTTIME. Over a reboot only the wall clock can say how long the machine was off; it is believed
when what it says is plausible. Otherwise age goes on from where it was and is *suspended*: nothing may be dropped or expired
by it, with an alarm, until an operator accepts the clock. Nothing is lost by waiting; something might be by believing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import msgpack

AGE_ROW_VERSION = 1
BACKWARD_TOLERATED_MS = 60_000
"""A wall clock this much behind over a reboot is ordinary drift, and counts as no time passed."""
MARK_AFTER_MS = 9_000
"""A mark is wanted so long after the last; a little sooner than every 10 s, since a shard comes to it once in a turn."""
STEP_NOTED_MS = 1_000
"""A wall clock that was moved by more than this within a boot is marked at once."""
FORWARD_BELIEVED_MS = 90 * 24 * 3600 * 1000
"""A machine may be off for a quarter of a year. A clock that jumped further is asked about."""


class PositionClock:
    """Hands out positions. Goes on from the last committed one, so a restart or a new leader never repeats one.

    ``last`` is the newest position handed out. A position that was handed out and then not committed stays unused.
    """

    __slots__ = ("_base", "_elapsed_at_base", "_floor", "last")

    def __init__(self, last: int) -> None:
        self.last = last
        self._base = last
        self._floor = last
        self._elapsed_at_base: int | None = None

    def at(self, elapsed_us: int) -> None:
        """The shard's elapsed time is now ``elapsed_us``. Its origin is free: the first reading stands for ``last``."""
        if self._elapsed_at_base is None:
            self._elapsed_at_base = elapsed_us
        # A reading that goes back changes nothing: positions go on by ones until it has caught up.
        self._floor = max(self._floor, self._base + elapsed_us - self._elapsed_at_base)

    @property
    def now(self) -> int:
        """What ``take`` would hand out."""
        return max(self.last + 1, self._floor)

    def take(self) -> int:
        """The next position: the elapsed time, or one more than the last when more than one is taken in a microsecond."""
        following = self.last + 1
        self.last = following if following > self._floor else self._floor
        return self.last

    def take_all(self, count: int) -> range:
        """What so many calls of ``take`` would hand out, at least one."""
        first = self.take()
        self.last = first + count - 1
        return range(first, first + count)


class Reading(NamedTuple):
    """What the machine's clocks showed at one moment. boot_id: changes with every boot; boottime counts also while suspended."""

    wall_ms: int
    boot_id: str
    boottime_ms: int


@dataclass(frozen=True, slots=True)
class AgeMark:
    """A row of the shard, written every 10 s: this was the age at that reading. ``suspended`` outlives a restart."""

    age_ms: int
    reading: Reading
    suspended: bool

    def encode(self) -> bytes:
        """docs/formats.md, "Age mark"."""
        row = (self.age_ms, *self.reading, self.suspended)
        return bytes((AGE_ROW_VERSION,)) + bytes(msgpack.packb(row))

    @staticmethod
    def decode(value: bytes) -> AgeMark:
        if value[:1] != bytes((AGE_ROW_VERSION,)):
            raise ValueError(f"age mark of version {value[:1].hex()} found, {AGE_ROW_VERSION} is what this program reads")
        age_ms, wall_ms, boot_id, boottime_ms, suspended = msgpack.unpackb(value[1:])
        return AgeMark(age_ms, Reading(wall_ms, boot_id, boottime_ms), suspended)


@dataclass(frozen=True, slots=True)
class ClockJump:
    """What made the age suspend: over a restart the wall clock went from ``before_ms`` to ``after_ms``."""

    before_ms: int
    after_ms: int


class AgeClock:
    """Life cycle: opened from the last mark -> trusted, or suspended until accepted. The age never goes back."""

    __slots__ = ("_age_at_base", "_base", "_marked", "_newest_ms", "_suspended", "jump")

    def __init__(self, mark: AgeMark | None, now: Reading) -> None:
        """``mark`` is the newest one stored, None in a new store."""
        self._base = now
        self._marked: Reading | None = None
        self._suspended = False
        self.jump: ClockJump | None = None
        """For the alarm: set when this opening met an implausible jump; a suspension from before has only the flag."""
        if mark is None:
            self._age_at_base = 0
        elif mark.reading.boot_id == now.boot_id:
            self._age_at_base = mark.age_ms + max(0, now.boottime_ms - mark.reading.boottime_ms)
            self._suspended = mark.suspended
        else:
            passed_ms = now.wall_ms - mark.reading.wall_ms
            if -BACKWARD_TOLERATED_MS <= passed_ms <= FORWARD_BELIEVED_MS and not mark.suspended:
                self._age_at_base = mark.age_ms + max(0, passed_ms)
            else:
                self._age_at_base = mark.age_ms
                self._suspended = True
                if not mark.suspended:
                    self.jump = ClockJump(mark.reading.wall_ms, now.wall_ms)
        self._newest_ms = self._age_at_base

    @property
    def suspended(self) -> bool:
        """Nothing may be dropped or expired by age."""
        return self._suspended

    def age_ms(self, now: Reading) -> int:
        """The age at this reading, of the boot in which the clock was opened."""
        assert now.boot_id == self._base.boot_id, f"reading of boot {now.boot_id}, the clock was opened in {self._base.boot_id}"
        self._newest_ms = max(self._newest_ms, self._age_at_base + now.boottime_ms - self._base.boottime_ms)
        return self._newest_ms

    def wants_mark(self, now: Reading) -> bool:
        """Whether a row is to be written: some time after the last, and when the wall clock was set since then.  After a reboot the
        step would count as time that had passed."""
        if self._marked is None:
            return True
        passed_ms = now.boottime_ms - self._marked.boottime_ms
        return passed_ms >= MARK_AFTER_MS or abs(now.wall_ms - self._marked.wall_ms - passed_ms) > STEP_NOTED_MS

    def mark(self, now: Reading) -> AgeMark:
        """The row to write."""
        self._marked = now
        return AgeMark(self.age_ms(now), now, self._suspended)

    def accept(self) -> None:
        """The operator has set the wall clock right, or said that it is: age counts again.

        The time that the machine was off before is not counted, as nobody knows it: everything lives longer by as much.
        """
        self._suspended = False
        self._marked = None
        self.jump = None
