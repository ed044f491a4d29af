"""Steady time: the wall clock as it would be if nobody had ever set it. What the expiry of messages is counted on.

It is a constant of the store, its epoch, plus its age (shards.clock), in milliseconds since 1970; so it never goes back, follows
no step of the wall clock, and counts what the age counts over a restart. Every ``wall_ms`` that a core is given is steady time,
and so is ``published_at`` of a stored message. The real wall clock decides nothing; people are shown it, and for that the shard
notes by how much it differed, and since which position.

Holds: without a step of more than a second, steady time and the wall clock differ by no more than that, and nothing is noted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import msgpack

from shards.clock import STEP_NOTED_MS, AgeMark, ClockJump
from shards.rows import META

WALL_ROW = META + b"wall"
WALL_ROW_VERSION = 1
STEPS_KEPT = 100
"""Of more, the oldest are forgotten: what was published before is shown with the oldest that is known."""


class WallStep(NamedTuple):
    """From this position on, the wall clock showed so much more than steady time."""

    position: int
    offset_ms: int


@dataclass(frozen=True, slots=True)
class WallRow:
    """A row of the shard, written when its store is made and at each step of the wall clock."""

    epoch_ms: int
    steps: tuple[WallStep, ...] = ()

    def encode(self) -> bytes:
        """docs/formats.md, "Wall row"."""
        return bytes((WALL_ROW_VERSION,)) + bytes(msgpack.packb((self.epoch_ms, self.steps)))

    @staticmethod
    def decode(value: bytes) -> WallRow:
        if value[:1] != bytes((WALL_ROW_VERSION,)):
            raise ValueError(f"wall row of version {value[:1].hex()} found, {WALL_ROW_VERSION} is what this program reads")
        epoch_ms, steps = msgpack.unpackb(value[1:])
        return WallRow(epoch_ms, tuple(WallStep(*step) for step in steps))

    @property
    def offset_ms(self) -> int:
        """The newest."""
        return self.steps[-1].offset_ms if self.steps else 0

    def wall_ms(self, position: int, steady_ms: int) -> int:
        """What the wall clock showed at a steady time, when the record of this position was written; exact to one turn of the shard."""
        offset_ms = self.steps[0].offset_ms if len(self.steps) == STEPS_KEPT else 0
        for step in self.steps:
            if step.position > position:
                break
            offset_ms = step.offset_ms
        return steady_ms + offset_ms

    def earliest_steady_ms(self, wall_ms: int) -> int:
        """No moment at which the wall clock showed this or more was before this steady time."""
        return wall_ms - max(0, *(step.offset_ms for step in self.steps)) if self.steps else wall_ms

    def latest_steady_ms(self, wall_ms: int) -> int:
        """No moment at which the wall clock showed less than this was at this steady time, or later."""
        return wall_ms - min(0, *(step.offset_ms for step in self.steps)) if self.steps else wall_ms


class SteadyClock:
    """Opened from the row, or in a new store from the wall clock; then told of each reading."""

    __slots__ = ("row",)

    def __init__(self, row: WallRow | None, mark: AgeMark | None, age_ms: int, wall_ms: int) -> None:
        if row is None:
            # A store without the row but with a mark was made before there was one: its messages have the wall clock of then.
            row = WallRow(mark.reading.wall_ms - mark.age_ms if mark else wall_ms - age_ms)
        self.row = row

    def steady_ms(self, age_ms: int) -> int:
        return self.row.epoch_ms + age_ms

    def look(self, position: int, age_ms: int, wall_ms: int) -> ClockJump | None:
        """Whether the wall clock was set since the last look. Then the row has changed and is to be written;
        messages from ``position`` on are shown with the clock as it is now."""
        steady_ms = self.row.epoch_ms + age_ms
        before_ms = steady_ms + self.row.offset_ms
        if abs(wall_ms - before_ms) <= STEP_NOTED_MS:
            return None
        steps = (*self.row.steps, WallStep(position, wall_ms - steady_ms))
        self.row = WallRow(self.row.epoch_ms, steps[-STEPS_KEPT:])
        return ClockJump(before_ms, wall_ms)
