"""`python -m benchmarks.growth`: CPU per message as there is more of something, and by other transports and sizes.

Records go to one results file of the commit, run by run. Broken off, or out of time (`--within`), it goes on where it was when it is called
again. When all of it has been measured in full, `--write` puts tables and plots into docs/performance.md.
Exit code 0: everything is there, no curve grows by more than 15 %, QoS 0 reaches half of mosquitto's rate, and nothing was lost; 1: not so;
3: out of time.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks import meter, page
from benchmarks.bench import RESULTS, ResultsFile, new_results
from benchmarks.brokers import ended_from_outside
from benchmarks.growth.curves import DIMENSIONS, Curve, curves, problems, table
from benchmarks.growth.measuring import PARTS, VARIANTS, Measuring, OutOfTime, measure
from benchmarks.load import Record
from benchmarks.plot import Series, line_chart
from benchmarks.records import read_results
from benchmarks.variants import names, variant_table
from benchmarks.variants import problems as variant_problems
from benchmarks.workers import RunFailed

PLOTS = page.PAGE.parent / "plots"
WITHIN_MIN = 45.0
ROUNDS_MAX = 100


def results_of(*, quick: bool) -> Path:
    """The one file of this commit; of a tree that differs from it a new one each time, since nobody knows whether it is still the same."""
    commit, what = meter.commit(), "quick-growth" if quick else "growth"
    return new_results(None, what).path if commit.endswith("+") else RESULTS / f"{commit}-{what}.json"


def wrong(records: Sequence[Record], parts: Sequence[str], *, quick: bool) -> list[str]:
    """Everything that is not as it has to be, in these parts."""
    out = problems(records, parts, quick=quick)
    return [*out, *variant_problems(records)] if VARIANTS in parts else out


def about(records: Sequence[Record]) -> str:
    """Of what, when and where, in a sentence."""
    first = records[0]
    return f"Commit {first.commit}, {first.date[:10]}, {first.machine.cores} cores of {first.machine.model}."


def tables(records: Sequence[Record]) -> dict[str, str]:
    """The tables there is something for, by the part of the page that they belong to."""
    out = {}
    if found := curves(records):
        out["growth"] = table(found, [dimension.name for dimension in DIMENSIONS])
    if any(record.variant in names() for record in records):
        out["variants"] = variant_table(records)
    return out


def plot(curve: Sequence[Curve], what: str) -> str:
    """One picture for a dimension, with a line for each phase."""
    series = [Series(each.phase, [(point.amount, point.us) for point in each.points]) for each in curve]
    return line_chart(f"CPU per message: {curve[0].dimension}", what, "µs per message", series)


def write(records: Sequence[Record]) -> None:
    """Tables and plots, into the page; what was not measured stays as it is there."""
    for name, found in tables(records).items():
        page.write(name, "\n\n".join([about(records), found, *(_plots(records) if name == "growth" else [])]))


def _plots(records: Sequence[Record]) -> list[str]:
    pictures = []
    for dimension in DIMENSIONS:
        mine = [curve for curve in curves(records) if curve.dimension == dimension.name]
        if mine:
            PLOTS.mkdir(exist_ok=True)
            (PLOTS / f"{dimension.name}.svg").write_text(plot(mine, dimension.what), encoding="utf-8")
            pictures.append(f"![CPU per message by {dimension.name}](plots/{dimension.name}.svg)")
    return pictures


def _rounds(text: str) -> int:
    if text.isdecimal() and 1 <= int(text) <= ROUNDS_MAX:
        return int(text)
    raise argparse.ArgumentTypeError(f"found {text!r}, wanted a whole number from 1 to {ROUNDS_MAX}")


def arguments() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.growth", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few, low levels: does everything run?")
    parser.add_argument("--only", action="append", default=[], choices=list(PARTS), help="leave out the other parts")
    parser.add_argument("--within", type=float, default=WITHIN_MIN, metavar="MINUTES", help=f"begin no run later (default {WITHIN_MIN:g})")
    parser.add_argument(
        "--rounds",
        type=_rounds,
        default=1,
        metavar="N",
        help="N times as many runs of each level, for a machine that is not steady (default 1)",
    )
    parser.add_argument("--results", type=Path, help="the file that is gone on with (default: the one of this commit)")
    parser.add_argument("--dir", type=Path, help="where brokers keep their data (default: new directories in the temporary one)")
    parser.add_argument("--write", action="store_true", help="into docs/performance.md, also when something is missing")
    return parser


def main(words: Sequence[str] | None = None) -> int:
    """The command."""
    asked = arguments().parse_args(words)
    parts = [name for name in PARTS if not asked.only or name in asked.only]
    path = asked.results or results_of(quick=asked.quick)
    try:
        records = read_results(path) if path.exists() else []
        until_s = time.monotonic() + 60 * asked.within
        measuring = Measuring(asked.quick, ResultsFile(path, records), records, until_s, asked.dir, asked.rounds)
        with ended_from_outside():
            failures = measure(measuring, parts)
    except OutOfTime:
        print(f"out of time; the same command goes on with {path}", file=sys.stderr)
        return 3
    except RunFailed as failure:
        print(f"no result: {failure}", file=sys.stderr)
        return 2
    if records:
        print("\n\n".join([about(records), *tables(records).values()]))
    if asked.write and records:
        write(records)
    found = [*failures, *wrong(records, parts, quick=asked.quick)]
    for sentence in found:
        print(f"WRONG {sentence}")
    print(f"every run: {path}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
