"""The ratios that decide which layout is the default: each that may be it against skipstream, in one run.

What each of record_batch may be is from the issue that asked for the layouts. pagestream may lose nothing where no level varies, as
before it had batches it had nothing to win there; where one does it has to be cheaper to write. ``auto`` is a layout of which all hold.

What a single device costs is up to how many files RocksDB has of the store just then, which differs three times between two stores that
differ by a tenth: so that is measured with several amounts around the million of the issue, and judged by the median of their ratios.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple

from benchmarks.storage.measured import Folded, Read, Write
from benchmarks.storage.rounds import ratio, rivals

BASE = "skipstream"
LIMITS: Mapping[str, tuple[float, ...]] = {
    "pagestream": (0.9, 3.0, 1.3, 1.1, 1.2, 1.2),
    "record_batch": (0.6, 3.0, 1.3, 1.1, 1.5, 0.4),
}
"""Of each layout that may be the default, for what is measured, in this order: devices written; one device read before, and after folding;
literal streams written; polls of 5 of a hot topic; a raw scan of it."""
AMOUNTS = (6, 8, 10, 12, 14)
"""Messages of devices in the stores of which single ones are read, in 100,000."""
_DEVICES_READ = 500


@dataclass(frozen=True, slots=True)
class Wanted:
    """One ratio, what it may be, and the medians of the figures it is made of. several: the ratios of several amounts, of which it is the
    median."""

    name: str
    found: float
    limit: float
    ours: float
    theirs: float
    several: tuple[float, ...] = ()

    @property
    def holds(self) -> bool:
        return self.found <= self.limit

    @property
    def ratio(self) -> str:
        return f"{self.found:.2f}" + (f" ({', '.join(f'{each:.2f}' for each in self.several)})" if self.several else "")

    def __str__(self) -> str:
        verdict = "" if self.holds else ", FAILS"
        return f"{self.name} {self.ratio} of {self.limit} ({self.ours:.2f} / {self.theirs:.2f} us{verdict})"


def measure(layout: str, share: float) -> list[Wanted]:
    """share: of the full number of messages."""
    found: list[Wanted] = []
    both_layouts = (layout, BASE)
    devices, before, after, literal, polls, raw = LIMITS[layout]

    def take(name: str, limit: float, ours: list[float], theirs: list[float]) -> None:
        found.append(Wanted(name, ratio(ours, theirs), limit, median(ours), median(theirs)))

    def scaled(count: int) -> int:
        return max(1000, int(count * share))

    stores = [_devices(both_layouts, amount, scaled(100_000)) for amount in AMOUNTS]
    written = [[us for store in stores for us in store.written[one]] for one in (0, 1)]
    take("write, 100,000 devices in commits of 100", devices, *written)
    found.append(_one_device("one device, before folding", before, [store.before for store in stores]))
    found.append(_one_device("one device, after folding", after, [store.after for store in stores]))
    ours = found[-1].ours
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


class _Devices(NamedTuple):
    """Of both layouts, microseconds: of each message written, in rounds; of one device read, before and after folding."""

    written: list[list[float]]
    before: list[list[float]]
    after: list[list[float]]


def _devices(both_layouts: tuple[str, str], rounds: int, messages: int) -> _Devices:
    with rivals(both_layouts, "devices") as both:
        writes = both.rounds(Write, rounds, "write", messages, 100, 0)
        before = both.rounds(Read, 3, "ones", _DEVICES_READ)
        both.ask(Folded, "fold")
        after = both.rounds(Read, 3, "ones", _DEVICES_READ)
    written = [[each.process_us for each in one] for one in writes]
    return _Devices(written, *([[each.us for each in one] for one in reads] for reads in (before, after)))


def _one_device(name: str, limit: float, stores: list[list[list[float]]]) -> Wanted:
    """stores: of each, figures of both layouts."""
    ratios = tuple(ratio(ours, theirs) for ours, theirs in stores)
    ours, theirs = (median(median(store[one]) for store in stores) for one in (0, 1))
    return Wanted(name, median(ratios), limit, ours, theirs, ratios)
