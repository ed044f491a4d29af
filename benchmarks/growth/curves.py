"""What a message costs at each level of what there is: curves from records, and whether they are flat. Computes and measures nothing.

The levels of a dimension are measured in rounds of all of them (benchmarks.growth.measuring), and a machine with neighbours is dearer in
one round than in another. So a level is put beside the others of its round, and what it costs is the median of that over all rounds: its
share of the middle of a round, by the median of those middles. What all levels of a round have in common drops out.

Growth of a curve is the largest cost of a level over the cheapest level below it. A first level whose fixed costs lie on few messages can
therefore not hide what comes after it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from benchmarks.load import Record
from benchmarks.outcome import Result
from benchmarks.records import unclean
from benchmarks.table import figure, markdown

GROWTH_MAX: Final = 1.15
STORED, TOPICS, SESSIONS, SUBSCRIPTIONS, CORES = "stored", "topics", "sessions", "subscriptions", "processes"


@dataclass(frozen=True, slots=True)
class Dimension:
    """Something of which there may be more. `levels` of a full and of a quick run."""

    name: str
    what: str
    levels: tuple[int, ...]
    quick: tuple[int, ...]

    def asked(self, *, quick: bool) -> tuple[int, ...]:
        return self.quick if quick else self.levels


DIMENSIONS: Final = (
    Dimension(STORED, "messages stored, then drained by one session", (10_000, 100_000, 1_000_000, 10_000_000), (10_000, 30_000)),
    Dimension(TOPICS, "topics, one session on a wildcard over them", (10, 100, 1_000, 10_000, 100_000), (10, 1_000)),
    Dimension(SESSIONS, "offline sessions on one wildcard", (1, 10, 100, 1_000, 10_000, 100_000), (1, 100)),
    Dimension(SUBSCRIPTIONS, "further subscriptions, a half with +, none of which matches", (10, 100, 1_000, 10_000, 100_000), (10, 1_000)),
    Dimension(CORES, "shards, and as many gateways", (1, 2, 4), (1, 2)),
)


def variant(dimension: str, amount: int) -> str:
    """How the records of a level are called."""
    return f"{dimension} {amount}"


@dataclass(frozen=True, slots=True)
class Point:
    """One level. us: what a message costs, beside the other levels. median: of its runs as they are."""

    amount: int
    us: float
    median: float
    runs: int


@dataclass(frozen=True, slots=True)
class Curve:
    """What one phase costs over the levels of a dimension, the smallest first."""

    dimension: str
    phase: str
    points: tuple[Point, ...]

    @property
    def growth(self) -> float:
        ratios = [point.us / min(each.us for each in self.points[:number]) for number, point in enumerate(self.points) if number]
        return max(ratios, default=1.0)


def _store(result: Result) -> float | None:
    return result.cost["data"].cpu_us if "data" in result.cost and result.scenario in ("offline", "sessions") else None


def _drain(result: Result) -> float | None:
    return result.drain_cost["data"].cpu_us if "data" in result.drain_cost and result.scenario in ("offline", "sessions") else None


def _online(result: Result) -> float | None:
    return result.cost["data"].cpu_us if "data" in result.cost and result.scenario == "pairs" else None


PHASES: Final[tuple[tuple[str, Callable[[Result], float | None]], ...]] = (("store", _store), ("drain", _drain), ("pairs", _online))


def curves(records: Sequence[Record]) -> list[Curve]:
    """One for each dimension and phase that was measured."""
    out = []
    for dimension in DIMENSIONS:
        of: dict[int, list[Result]] = {}
        for record in records:
            name, _, number = record.variant.rpartition(" ")
            if name == dimension.name and record.broker == "holdfast" and number.isdigit():
                of.setdefault(int(number), []).append(record.result)
        for phase, cost in PHASES:
            measured = {amount: [us for us in map(cost, results) if us] for amount, results in sorted(of.items())}
            points = beside({amount: found for amount, found in measured.items() if found})
            if points:
                out.append(Curve(dimension.name, phase, points))
    return out


def beside(measured: Mapping[int, Sequence[float]]) -> tuple[Point, ...]:
    """The levels from all of their runs, which are in the order in which they were made. Of a level that has several in a round it is
    their median."""
    rounds = min(map(len, measured.values()), default=0)
    if not rounds:
        return ()
    costs = {amount: _by_round(found, rounds) for amount, found in measured.items()}
    middles = [median(of_round) for of_round in zip(*costs.values(), strict=True)]
    middle = median(middles)
    return tuple(
        Point(amount, middle * median([us / each for us, each in zip(costs[amount], middles, strict=True)]), median(found), len(found))
        for amount, found in measured.items()
    )


def _by_round(found: Sequence[float], rounds: int) -> list[float]:
    each = len(found) // rounds
    return [median(found[number * each : (number + 1) * each]) for number in range(rounds)]


def table(found: Sequence[Curve], names: Sequence[str]) -> str:
    """The curves of these dimensions."""
    rows = [["of", "amount", "phase", "µs/msg", "median", "runs", "largest growth"]]
    for curve in found:
        if curve.dimension in names:
            for number, point in enumerate(curve.points):
                growth = f"{curve.growth:.2f}" if number == len(curve.points) - 1 else ""
                costs = [figure(us, 1) for us in (point.us, point.median)]
                rows.append([curve.dimension, f"{point.amount:,}", curve.phase, *costs, str(point.runs), growth])
    return "\n".join(markdown(rows)) if len(rows) > 1 else "not measured"


def problems(records: Sequence[Record], asked: Sequence[str], *, quick: bool) -> list[str]:
    """What keeps the curves of these dimensions from being whole and flat, and every run that was not clean."""
    found = curves(records)
    out = []
    for dimension in DIMENSIONS:
        if dimension.name not in asked:
            continue
        mine = [curve for curve in found if curve.dimension == dimension.name]
        absent = [
            amount
            for amount in dimension.asked(quick=quick)
            if not mine or any(amount not in {p.amount for p in curve.points} for curve in mine)
        ]
        if absent:
            out.append(f"{dimension.name}: nothing measured at {', '.join(f'{amount:,}' for amount in absent)}")
        out += [f"{curve.dimension}, {curve.phase}: {curve.growth:.2f} times" for curve in mine if curve.growth > GROWTH_MAX]
    return [*out, *unclean(records)]


def line(records: Sequence[Record]) -> str:
    """All curves in one line, with their largest growth and the costs at both ends."""
    return "; ".join(
        f"{curve.dimension} {curve.points[0].amount:,} to {curve.points[-1].amount:,} {curve.phase} {curve.points[0].us:.1f} to "
        f"{curve.points[-1].us:.1f} us, at most {curve.growth:.2f} times"
        for curve in curves(records)
    )
