"""`python -m benchmarks.targets`: the bars that Holdfast's performance is held to, a run that measures them, and the verdict.

CPU per message is judged always: of the processes a message passes (group `data`), the median of the turns. Rates are ratios to
mosquitto's in the same turn, median of the turns, and latencies depend on the disk as rates do: both are judged by the turns whose disk
was fast, by its own fdatasync before and after, when these are more than half of all; else the verdict says how slow the disk was.

Latency has a bar in milliseconds, taken on one machine. Where mosquitto, beside us in the same turn, is slower than it was there, the bar
is moved by as much as mosquitto is slower, and never to less: on a machine (or beside a neighbour) that takes twice as long to wake a
process nobody learns anything from milliseconds of another one; and on a faster machine what was promised in milliseconds is kept.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from benchmarks import page
from benchmarks.bench import new_results, running, standing, take_turns
from benchmarks.brokers import ended_from_outside
from benchmarks.load import Record
from benchmarks.outcome import Result
from benchmarks.records import read_results, unclean
from benchmarks.table import markdown, median
from benchmarks.turns import Turn, standard_set
from benchmarks.workers import RunFailed

FAST_DISK_MS: Final = 0.3
ROUNDS: Final = 5
MESSAGES: Final = 100_000
"""Stored and drained in a turn: at 4 µs a message still forty steps of the CPU account."""

Figure = Callable[[Result], float | None]


@dataclass(frozen=True, slots=True)
class Bar:
    """One figure that is promised. `theirs`: the figure that mosquitto had where the bar in milliseconds was set; `beside`: the
    scenario of ours that a rate is compared with instead of mosquitto's."""

    name: str
    scenario: str
    kind: str
    figure: Figure
    must: float
    want: float
    theirs: float = 0.0
    beside: str = ""


def _cpu(result: Result) -> float | None:
    return result.cost["data"].cpu_us if "data" in result.cost else None


def _drain_cpu(result: Result) -> float | None:
    return result.drain_cost["data"].cpu_us if "data" in result.drain_cost else None


def _p50(result: Result) -> float | None:
    return result.end_to_end_ms.p50 if result.end_to_end_ms else None


def _p99(result: Result) -> float | None:
    return result.end_to_end_ms.p99 if result.end_to_end_ms else None


def _acked(result: Result) -> float | None:
    return result.acked_per_s


def _delivered(result: Result) -> float | None:
    return result.delivered_per_s


def _drained(result: Result) -> float | None:
    return result.drained_per_s


BARS: Final = (
    Bar("fan-in", "fan-in", "cpu", _cpu, 26, 16),
    Bar("store", "offline", "cpu", _cpu, 14, 7),
    Bar("drain", "offline", "cpu", _drain_cpu, 9, 4),
    Bar("fan-in", "fan-in", "rate", _delivered, 36 / 52.2, 55 / 52.2),
    Bar("fan-out", "fan-out", "rate", _delivered, 60 / 74.1, 95 / 74.1),
    Bar("pairs", "pairs", "rate", _delivered, 32 / 47.4, 48 / 47.4),
    Bar("store", "offline", "rate", _acked, 70 / 139.9, 140 / 139.9),
    Bar("drain", "offline", "rate", _drained, 120 / 142.7, 240 / 142.7),
    Bar("one at a time", "single", "rate", _delivered, 1.9 / 9.5, 4 / 9.5),
    Bar("p50", "latency", "ms", _p50, 1.5, 0.7, theirs=0.14),
    Bar("p99", "latency", "ms", _p99, 6, 2, theirs=0.37),
    Bar("many sessions", "sessions", "rate", _acked, 0.9, 1.0, beside="one-session"),
)


@dataclass(frozen=True, slots=True)
class Turned:
    """A run of ours and the one it is compared with, from one turn."""

    ours: Record
    theirs: Record | None

    @property
    def disk_ms(self) -> float:
        """The slower of the two probes of our disk."""
        return max(self.ours.fdatasync_p50_ms.before, self.ours.fdatasync_p50_ms.after)


@dataclass(frozen=True, slots=True)
class Judged:
    """One bar beside what was found. `judged` is false where the disk, or a missing partner, allows no verdict; `why` says which."""

    bar: Bar
    found: float | None
    ours: float | None
    must: float
    want: float
    judged: bool
    why: str = ""

    @property
    def met(self) -> bool:
        return self._reaches(self.must)

    @property
    def wanted(self) -> bool:
        return self._reaches(self.want)

    def _reaches(self, limit: float) -> bool:
        if self.found is None:
            return False
        return self.found >= limit if self.bar.kind == "rate" else self.found <= limit

    def __str__(self) -> str:
        if self.found is None:
            return f"{self.bar.name} {self.bar.kind} not measured"
        if self.bar.kind == "cpu":
            text = f"{self.bar.name} {self.found:.1f} us (must {self.must:g}, want {self.want:g})"
        elif self.bar.kind == "ms":
            text = f"{self.bar.name} {self.found:.2f} ms (must {self.must:.2f}, want {self.want:.2f})"
        else:
            text = f"{self.bar.name} {self.found:.2f}x = {self.ours:,.0f}/s (must {self.must:.2f}, want {self.want:.2f})"
        return text if self.judged else f"{text} [{self.why}]"


def turned(records: Sequence[Record], scenario: str, beside: str = "") -> list[Turned]:
    """The turns of a scenario in their order. A turn is a run of ours and what stands beside it: mosquitto's run of the same scenario that
    followed it, or the last run before it of ours of scenario `beside`."""
    out: list[Turned] = []
    before: Record | None = None
    for record in records:
        if record.variant:
            continue
        mine = record.broker != "mosquitto"
        if beside and mine and record.result.scenario == beside:
            before = record
        if record.result.scenario != scenario:
            continue
        if mine:
            out.append(Turned(record, before if beside else None))
            before = None
        elif not beside and out and out[-1].theirs is None:
            out[-1] = replace(out[-1], theirs=record)
    return out


def judge_bar(bar: Bar, records: Sequence[Record]) -> Judged | None:
    """None where the scenario was not run."""
    turns = turned(records, bar.scenario, bar.beside)
    if not turns:
        return None
    if bar.kind == "cpu":
        found = median(bar.figure(turn.ours.result) for turn in turns)
        return Judged(bar, found, found, bar.must, bar.want, judged=True)
    fast = [turn for turn in turns if turn.disk_ms <= FAST_DISK_MS]
    judged = 2 * len(fast) > len(turns)
    why = "" if judged else f"disk p50 {median(turn.disk_ms for turn in turns) or 0:.2f} ms, too slow to judge"
    chosen = fast if judged else turns
    ours = median(bar.figure(turn.ours.result) for turn in chosen)
    if bar.kind == "ms":
        theirs = median(bar.figure(turn.theirs.result) for turn in chosen if turn.theirs)
        slower = max(1.0, theirs / bar.theirs) if theirs else 1.0
        return Judged(bar, ours, ours, bar.must * slower, bar.want * slower, judged, why)
    ratios = [_ratio(bar.figure(turn.ours.result), bar.figure(turn.theirs.result)) for turn in chosen if turn.theirs]
    return Judged(bar, median(ratios), ours, bar.must, bar.want, judged, why)


def judge(records: Sequence[Record]) -> list[Judged]:
    """Every bar whose scenario was run."""
    return [found for found in (judge_bar(bar, records) for bar in BARS) if found]


def missed(found: Sequence[Judged]) -> list[Judged]:
    """Those that have to be reached and are not; a rate without anything to compare it with is one of them."""
    return [each for each in found if (each.judged and not each.met) or each.found is None]


def line(found: Sequence[Judged]) -> str:
    """All figures, and which of the wanted ones are missed."""
    short = [f"{each.bar.name} {each.bar.kind}" for each in found if each.judged and not each.wanted]
    return "; ".join(map(str, found)) + (f"; wanted and missed: {', '.join(short)}" if short else "; all that is wanted is reached")


def _ratio(ours: float | None, theirs: float | None) -> float | None:
    return ours / theirs if ours and theirs else None


def text(records: Sequence[Record]) -> str:
    """The table of the page."""
    first = records[0]
    rows = [["", "found", "must", "wanted", ""]]
    for each in judge(records):
        rate = f"{each.found:.2f} of {each.bar.beside or 'mosquitto'}'s, {each.ours:,.0f}/s" if each.found and each.ours else "-"
        found = rate if each.bar.kind == "rate" else "-" if each.found is None else f"{each.found:.{1 if each.bar.kind == 'cpu' else 2}f}"
        unit = {"cpu": "CPU, µs/msg", "ms": "end to end at 200 msg/s, ms", "rate": "rate"}[each.bar.kind]
        digits = 0 if each.bar.kind == "cpu" else 2
        verdict = each.why if not each.judged else "reached, as wanted" if each.wanted else "reached" if each.met else "**missed**"
        rows.append([f"{each.bar.name}, {unit}", found, f"{each.must:.{digits}f}", f"{each.want:.{digits}f}", verdict])
    about = f"Commit {first.commit}, {first.date[:10]}, {first.machine.cores} cores of {first.machine.model}, mosquitto beside it."
    return "\n".join([about, "", *markdown(rows)])


def turns(*, quick: bool, rounds: int) -> list[Turn]:
    """The scenarios that have a bar, so often that a median means something."""
    wanted = {bar.scenario for bar in BARS}
    out = []
    for turn in standard_set(quick=quick, repeats=rounds):
        if turn.scenario not in wanted:
            continue
        options, theirs = turn.options, turn.mosquitto
        if turn.scenario == "offline" and not quick:
            options = theirs = replace(options, messages=MESSAGES)
        if turn.scenario == "sessions":
            options = replace(options, sessions=200 if quick else 1000)
            theirs = None  # it copies; the bar is our own rate with one session
        out.append(replace(turn, options=options, mosquitto=theirs, repeats=rounds))
    return out


def arguments() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.targets", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="smaller amounts, one turn each")
    parser.add_argument("--rounds", type=int, default=None, help=f"turns of each scenario (default {ROUNDS}, quick 1)")
    parser.add_argument("--only", action="append", default=[], metavar="SCENARIO", help="leave out the others")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting of Holdfast")
    parser.add_argument("--dir", type=Path, help="where the brokers keep their data (default: a new directory in the temporary one)")
    parser.add_argument("--results", type=Path, help="file for the records (default: a new one in benchmarks/results)")
    parser.add_argument("--write", action="store_true", help="the verdict into docs/performance.md")
    parser.add_argument("--judge", type=Path, metavar="FILE", help="measure nothing; judge this file")
    return parser


def main(words: Sequence[str] | None = None) -> int:
    """The command. Exit code 0: every bar that could be judged is reached, and nothing was lost, doubled or out of order."""
    asked = arguments().parse_args(words)
    failures: list[str] = []
    try:
        if asked.judge:
            records = read_results(asked.judge)
        else:
            records, failures = _measure(asked)
    except RunFailed as failure:
        print(f"no verdict: {failure}", file=sys.stderr)
        return 2
    found = judge(records)
    for each in found:
        verdict = "not judged" if not each.judged else "wanted" if each.wanted else "reached" if each.met else "MISSED"
        print(f"{verdict:10} {each}")
    if asked.write and records:
        page.write("targets", text(records))
    wrong = [*failures, *unclean(records)]
    for sentence in wrong:
        print(f"WRONG      {sentence}")
    return 1 if missed(found) or wrong or not found else 0


def _measure(asked: argparse.Namespace) -> tuple[list[Record], list[str]]:
    chosen = turns(quick=asked.quick, rounds=asked.rounds or (1 if asked.quick else ROUNDS))
    unknown = set(asked.only) - {turn.scenario for turn in chosen}
    if unknown:
        raise RunFailed(f"found --only {', '.join(sorted(unknown))}, wanted one of {', '.join(turn.scenario for turn in chosen)}")
    results = new_results(asked.results, "targets")
    with ended_from_outside(), tempfile.TemporaryDirectory(prefix="bench-", dir=asked.dir) as directory:
        with running(standing(["holdfast", "mosquitto"], Path(directory), asked.set)) as brokers:
            done = take_turns([turn for turn in chosen if not asked.only or turn.scenario in asked.only], brokers, 4, results)
    print(f"every run: {results.path}", file=sys.stderr)
    return done


if __name__ == "__main__":
    sys.exit(main())
