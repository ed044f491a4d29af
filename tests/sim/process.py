"""A process of the simulated machine: it lives, is stopped (SIGSTOP), goes on, dies; and the turns of its loop.

Timers and what comes from the network reach a process through `deliver`: a dead one hears nothing, a stopped one hears it all
at once when it goes on, each source in its order and the sources in any.

`Turns` does what actors.pump does: one tick at the end of a turn, however many events the turn brought, and a wake-up in
time.  How long a turn lasts is chance: that is where events of different links come together or do not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from actors.pump import PATIENCE_S
from tests.sim.world import MS, SECOND, World

TURN_US = (5, 120)
WAKES_PER_SECOND_MAX = 600
"""A timer that is never served costs a core in life, and nobody sees it."""


class Process:
    """One incarnation.  `name` is unique in a world, as a process's random incarnation makes it in life."""

    def __init__(self, world: World, role: str, index: int, incarnation: int) -> None:
        self.world = world
        self.role = role
        self.index = index
        self.name = f"{role}-{index}:{incarnation:04x}"
        self.alive = True
        self.stopped = False
        self.shut_down = False
        """It was told to end, and ends as it likes."""
        self.still_us = -1
        """Until when it stood still, or a wire of it did, the last time."""
        self.when_dead: list[Callable[[Process], None]] = []
        """The kernel's part of a death: sockets are closed, whoever waits for the process hears of it."""
        self._held: list[tuple[object, Callable[..., None], tuple[Any, ...]]] = []

    # ------------------------------------------------------------------ what it hears

    def deliver(self, source: object, action: Callable[..., None], *args: Any) -> None:
        """An event from a source: now, later when the process is stopped, never when it is dead."""
        if self.stopped:
            self._held.append((source, action, args))
        elif self.alive:
            action(*args)

    def after(self, delay_us: int, action: Callable[..., None], *args: Any) -> None:
        """A timer of the process's loop, or a call at the end of a turn."""
        self.world.later(delay_us, self.deliver, None, action, *args)

    # ------------------------------------------------------------------ what happens to it

    def stop(self) -> None:
        if self.alive and not self.stopped:
            self.world.note(self.name, "stopped")
            self.stopped = True

    def go_on(self) -> None:
        """Timers first, as a loop does it, then the sockets in any order."""
        if not self.stopped:
            return
        self.world.note(self.name, "goes on")
        self.stopped = False
        self.still_us = self.world.now_us
        held, self._held = self._held, []
        sources: dict[object, list[tuple[Callable[..., None], tuple[Any, ...]]]] = {}
        for source, action, args in held:
            sources.setdefault(source, []).append((action, args))
        order = [source for source in sources if source is not None]
        self.world.rng.shuffle(order)
        for source in ([None] if None in sources else []) + order:
            for action, args in sources[source]:
                self.deliver(source, action, *args)

    def die(self, why: str) -> None:
        """SIGKILL, or an end of its own making.  Nothing of it runs any more."""
        if not self.alive:
            return
        self.world.note(self.name, "died", why)
        self.alive = False
        self.stopped = False
        self._held.clear()
        for told in self.when_dead:
            told(self)


class Turns:
    """actors.pump.Pump on virtual time."""

    def __init__(self, process: Process, tick: Callable[[], None]) -> None:
        self._process = process
        self._world = process.world
        self._deliver = process.deliver
        self._tick = tick
        self._scheduled = False
        self._due_us = self._later_us = -1
        self._timer = 0
        self._patient = False
        self._second = self._woken = 0

    def soon(self) -> None:
        """A tick at the end of this turn of the loop."""
        if not self._scheduled:
            self._scheduled = True
            self._world.later(self._world.between(*TURN_US), self._deliver, None, self._run)

    def patiently(self) -> None:
        """With the next tick, and not later than PATIENCE_S."""
        if not self._world.patient:
            self.soon()
        elif not self._scheduled and not self._patient:
            self._patient = True
            self._world.later(int(PATIENCE_S * SECOND), self._deliver, None, self.soon)

    def within(self, after_ms: int) -> None:
        """A tick not later than this."""
        due_us = self._world.now_us + after_ms * MS
        if self._due_us >= 0:
            later_us = self._due_us if self._due_us > due_us else due_us
            if self._later_us < 0 or later_us < self._later_us:
                self._later_us = later_us
            if self._due_us <= due_us:
                return
        self._at(due_us)

    def _at(self, due_us: int) -> None:
        self._due_us = due_us
        self._timer += 1
        self._world.later(max(0, due_us - self._world.now_us), self._deliver, None, self._wake, self._timer)

    def _wake(self, timer: int) -> None:
        if timer == self._timer:
            second, self._woken = self._world.now_us // SECOND, self._woken + 1
            if second != self._second:
                self._second, self._woken = second, 0
            elif self._woken > WAKES_PER_SECOND_MAX:
                raise AssertionError(f"{self._process.name} has itself woken {self._woken} times in second {second}: it spins")
            self._due_us = -1
            if self._later_us >= 0:
                due_us, self._later_us = self._later_us, -1
                self._at(due_us)
            self.soon()

    def _run(self) -> None:
        self._scheduled = self._patient = False
        self._tick()
