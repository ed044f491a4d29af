"""The ratios that decide which layout is the default: record_batch against skipstream, in one run.

What each may be is from the issue that asked for the layouts; ``auto`` is record_batch only if all of them hold.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from benchmarks.storage.measured import Folded, Read, Write
from benchmarks.storage.rounds import ratio, rivals

LAYOUTS = ("record_batch", "skipstream")


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


def measure(share: float) -> list[Wanted]:
    """share: of the full number of messages, 10^6 for the devices."""
    found: list[Wanted] = []

    def take(name: str, limit: float, ours: list[float], theirs: list[float]) -> None:
        found.append(Wanted(name, ratio(ours, theirs), limit, median(ours), median(theirs)))

    def scaled(count: int) -> int:
        return max(1000, int(count * share))

    with rivals(LAYOUTS, "devices") as both:
        writes = both.rounds(Write, 10, "write", scaled(100_000), 100, 0)
        take("write, 100,000 devices in commits of 100", 0.6, *([each.process_us for each in one] for one in writes))
        reads = both.rounds(Read, 3, "ones", 1000)
        take("one device, before folding", 3.0, *([each.us for each in one] for one in reads))
        both.ask(Folded, "fold")
        reads = both.rounds(Read, 3, "ones", 1000)
        take("one device, after folding", 1.3, *([each.us for each in one] for one in reads))
        ours = median(each.us for each in reads[0])
        found.append(Wanted("one device, after folding, of 1 ms", ours / 1000, 1.0, ours, 1000.0))
    with rivals(LAYOUTS, "literal") as both:
        writes = both.rounds(Write, 10, "write", scaled(50_000), 100, 0)
        take("write, 2,000 literal streams in commits of 100", 1.1, *([each.process_us for each in one] for one in writes))
    with rivals(LAYOUTS, "hot") as both:
        both.rounds(Write, 2, "write", scaled(100_000), 100, 0)
        reads = both.rounds(Read, 3, "read", "#", 5, scaled(50_000))
        take("poll of 5 messages, one hot topic", 1.5, *([each.us for each in one] for one in reads))
        reads = both.rounds(Read, 3, "raw", scaled(200_000))
        take("raw scan of one hot topic", 0.4, *([each.us for each in one] for one in reads))
    return found
