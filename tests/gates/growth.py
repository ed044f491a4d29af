"""Whether the processes of a broker hold more at the end of a long trial than after its first part, each of its own and all together.

Memory goes up and down by itself: a table of RocksDB fills and is written out, garbage waits for its collection.  So not two moments
are compared but the most that was held at any look of two spans of the same length: the second half of warming up, and the end.

Ray's own processes count among all, and are not judged one by one: they grow with time, whoever is connected.  The raylet of a broker to
which nobody came went from 11.5 to 12.2 MB in ten minutes (Ray 2.60), which is more than its share, and a thousandth of the whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.gates.footprint import MB, own_bytes

GROWTH_MAX = 1.05
TOGETHER = "together"
RAY = "ray"
"""What `holdfast status` calls a process of Ray's."""


class Grown(AssertionError):
    """More is held than was after warming up."""


@dataclass(frozen=True, slots=True)
class Look:
    done: int
    bytes: Mapping[str, int]
    """By process, and of all together."""


@dataclass(slots=True)
class Growth:
    """warm: so many cases (messages, connections) are for warming up.  names: what the processes are called, by pid."""

    warm: int
    names: Mapping[int, str]
    looks: list[Look] = field(default_factory=list)

    def look(self, done: int) -> None:
        """Where it is after so many cases."""
        held = {f"{name} {pid}": own_bytes(pid) for pid, name in self.names.items()}
        self.looks.append(Look(done, held | {TOGETHER: sum(held.values())}))

    def ratios(self) -> dict[str, float]:
        """The most at the end to the most before, by process; nothing while there are too few cases to compare."""
        if not self.looks or self.looks[-1].done <= self.warm:
            return {}
        half = self.warm / 2
        before = [look for look in self.looks if half < look.done <= self.warm]
        after = [look for look in self.looks if look.done > max(self.warm, self.looks[-1].done - half)]
        if not before:
            return {}
        return {name: _most(after, name) / _most(before, name) for name in self.looks[-1].bytes}

    def judge(self) -> None:
        """Raises Grown."""
        grown = {name: ratio for name, ratio in self.ratios().items() if ratio > GROWTH_MAX and not name.startswith(f"{RAY} ")}
        if grown:
            raise Grown(f"{', '.join(f'{name}: {ratio:.3f}' for name, ratio in grown.items())} of what was held: {self}")

    def __str__(self) -> str:
        if not self.looks:
            return "no look at memory"
        last, ratios = self.looks[-1].bytes, self.ratios()
        if not ratios:
            return f"{last[TOGETHER] / MB:.0f} MB of its own, too few cases to compare"
        each = ", ".join(f"{name} {ratio:.3f}" for name, ratio in ratios.items() if name != TOGETHER)
        return f"{last[TOGETHER] / MB:.0f} MB of its own, {ratios[TOGETHER]:.3f} of what was held while warming up ({each})"


def _most(looks: list[Look], name: str) -> int:
    return max(look.bytes[name] for look in looks)
