"""The ratios that decide which layout is the default: each that may be it against skipstream, in one run.

What each of record_batch may be is from the issue that asked for the layouts. pagestream has nothing to win where no level varies, and
nothing to lose; where one does it has to be cheaper to write. ``auto`` is a layout of which all hold.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median

from benchmarks.storage.measured import Folded, Read, Write
from benchmarks.storage.rounds import ratio, rivals

BASE = "skipstream"
LIMITS: Mapping[str, tuple[float, ...]] = {
    "pagestream": (0.9, 3.0, 1.3, 1.1, 1.2, 1.2),
    "record_batch": (0.6, 3.0, 1.3, 1.1, 1.5, 0.4),
}
"""Of each layout that may be the default, for what is measured, in this order: devices written; one device read before, and after folding;
literal streams written; polls of 5 of a hot topic; a raw scan of it."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """One ratio, what it may be, and the medians of the figures it is made of."""

    name: str
    found: float
    limit: float
    ours: float
    theirs: float

    @property
    def holds(self) -> bool:
        return self.found <= self.limit

    def __str__(self) -> str:
        verdict = "" if self.holds else ", FAILS"
        return f"{self.name} {self.found:.2f} of {self.limit} ({self.ours:.2f} / {self.theirs:.2f} us{verdict})"


def measure(layout: str, share: float) -> list[Wanted]:
    """share: of the full number of messages, 10^6 for the devices."""
    found: list[Wanted] = []
    both_layouts = (layout, BASE)
    devices, before, after, literal, polls, raw = LIMITS[layout]

    def take(name: str, limit: float, ours: list[float], theirs: list[float]) -> None:
        found.append(Wanted(name, ratio(ours, theirs), limit, median(ours), median(theirs)))

    def scaled(count: int) -> int:
        return max(1000, int(count * share))

    with rivals(both_layouts, "devices") as both:
        writes = both.rounds(Write, 10, "write", scaled(100_000), 100, 0)
        take("write, 100,000 devices in commits of 100", devices, *([each.process_us for each in one] for one in writes))
        reads = both.rounds(Read, 7, "ones", 1000)
        take("one device, before folding", before, *([each.us for each in one] for one in reads))
        both.ask(Folded, "fold")
        reads = both.rounds(Read, 7, "ones", 1000)
        take("one device, after folding", after, *([each.us for each in one] for one in reads))
        ours = median(each.us for each in reads[0])
        found.append(Wanted("one device, after folding, of 1 ms", ours / 1000, 1.0, ours, 1000.0))
    with rivals(both_layouts, "literal") as both:
        writes = both.rounds(Write, 10, "write", scaled(50_000), 100, 0)
        take("write, 2,000 literal streams in commits of 100", literal, *([each.process_us for each in one] for one in writes))
    with rivals(both_layouts, "hot") as both:
        both.rounds(Write, 2, "write", scaled(100_000), 100, 0)
        reads = both.rounds(Read, 9, "read", "#", 5, scaled(50_000))
        take("poll of 5 messages, one hot topic", polls, *([each.us for each in one] for one in reads))
        reads = both.rounds(Read, 9, "raw", scaled(200_000))
        take("raw scan of one hot topic", raw, *([each.us for each in one] for one in reads))
    return found
