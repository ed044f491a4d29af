"""Faults of delayed messages, planted as those of tests.sim.planted are."""

from __future__ import annotations

from typing import Any

from shards.core import ShardCore
from shards.frames import Published
from shards.rows import DELAYED
from shards.timers import DELAYED_DUE
from tests.sim.planting import Planted


class DueEarly(Planted):
    name = "due a second early"

    def shard(self, core: ShardCore) -> None:
        def make(take: Any) -> Any:
            def early(draft: Any, entry: Any, age_ms: int) -> Any:
                return take(draft, entry._replace(seconds=[max(0, seconds - 1) for seconds in entry.seconds]), age_ms)

            return early

        self.replace(core._delayed, "take", make)


class RowOutlivesItsMessage(Planted):
    name = "row and timer outlive the message"

    def shard(self, core: ShardCore) -> None:
        """The row says the time of its timer, so no sweep finds anything."""
        delayed: Any = core._delayed
        kept: list[bytes] = []

        def make(fire: Any) -> Any:
            def keeping(draft: Any, timer: Any, out: Any) -> None:
                row = draft.get(DELAYED + timer.client)
                fire(draft, timer, out)
                if row is not None and timer.client not in kept:
                    kept.append(timer.client)
                    draft.put(DELAYED + timer.client, row)
                    delayed._timers.set(draft, timer.due_ms, DELAYED_DUE, timer.client)
                    delayed.count += 1

            return keeping

        self.replace(delayed, "fire", make)


class AcknowledgedBeforeItsRow(Planted):
    name = "acknowledged before its row"

    def shard(self, core: ShardCore) -> None:
        """The row goes with the next record that takes a delayed message: a crash between loses it."""
        delayed, homes = core._delayed, core._homes
        waiting: list[Any] = []

        def make(take: Any) -> Any:
            def late(draft: Any, entry: Any, age_ms: int) -> Any:
                while waiting:
                    take(draft, *waiting.pop())
                state = homes.live.get(entry.client)
                if state is None or state.conn != entry.conn or entry.keep_ids:
                    return take(draft, entry, age_ms)
                waiting.append((entry, age_ms))
                return Published(False, b"")

            return late

        self.replace(delayed, "take", make)


class LastDueFirst(Planted):
    name = "of what is due at once the last one first"

    def shard(self, core: ShardCore) -> None:
        def make(due: Any) -> Any:
            def turned(draft: Any) -> Any:
                timers = due(draft)
                late = [timer for timer in timers if timer.kind == DELAYED_DUE]
                return [late.pop() if timer.kind == DELAYED_DUE else timer for timer in timers]

            return turned

        self.replace(core._housekeeping, "_due", make)


class TimerWithoutItsMessage(Planted):
    name = "timer erased and its message not entered"

    def shard(self, core: ShardCore) -> None:
        def make(due: Any) -> Any:
            def skipping(draft: Any) -> Any:
                return [timer for timer in due(draft) if timer.kind != DELAYED_DUE or timer.due_ms % 5]

            return skipping

        self.replace(core._housekeeping, "_due", make)


ALL: tuple[type[Planted], ...] = (DueEarly, RowOutlivesItsMessage, AcknowledgedBeforeItsRow, LastDueFirst, TimerWithoutItsMessage)
