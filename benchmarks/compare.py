"""`python -m benchmarks.compare A B`, which `make bench-compare A=... B=...` calls: has a message become dearer from A to B?

A and B are results files, or commits whose results are in `benchmarks/results` (of several files all count). Compared is the median CPU per
message of the processes a message passes, for each scenario and variant that both have; more than 15 % more is a regression. The change of
mosquitto in the same two runs stands beside it: it has not changed, so what it shows is the machine. Exit code 0: no regression; 1: one at
least; 2: nothing to compare. What took less CPU than ten of the steps in which older results count is shown and decides nothing.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.bench import RESULTS
from benchmarks.load import Record
from benchmarks.records import read_results
from benchmarks.table import figure, markdown, median
from benchmarks.workers import RunFailed

REGRESSION: Final = 1.15
STEPS_MIN: Final = 10
"""Steps of the CPU account below which a change of 15 % is one of counting."""
STEP_US: Final = 10_000

Key = tuple[str, str, str, str]
"""Scenario, variant, version of MQTT, phase."""


@dataclass(frozen=True, slots=True)
class Costs:
    """What one side found for one key: CPU per message by run, and how many steps of the account the shortest run had."""

    us: tuple[float, ...]
    steps: float

    @property
    def median(self) -> float:
        return median(self.us) or 0.0


@dataclass(frozen=True, slots=True)
class Change:
    """One line of the comparison."""

    key: Key
    before: Costs
    after: Costs
    mosquitto: float | None

    @property
    def ratio(self) -> float:
        return self.after.median / self.before.median

    @property
    def told_apart(self) -> bool:
        return min(self.before.steps, self.after.steps) >= STEPS_MIN

    @property
    def regression(self) -> bool:
        return self.told_apart and self.ratio > REGRESSION

    @property
    def name(self) -> str:
        scenario, variant, mqtt, phase = self.key
        return f"{scenario} {variant}".strip() + f", MQTT {mqtt}, {phase}"

    @property
    def verdict(self) -> str:
        if not self.told_apart:
            return "too little to tell"
        return "REGRESSION" if self.regression else "less" if self.ratio < 1 / REGRESSION else "same"


def costs(records: Sequence[Record], broker: str) -> dict[Key, Costs]:
    """The costs of one broker by what was measured."""
    found: dict[Key, list[tuple[float, float]]] = {}
    for record in records:
        if record.broker == broker:
            for phase, us, messages in _phases(record):
                found.setdefault((record.result.scenario, record.variant, record.mqtt, phase), []).append((us, us * messages / STEP_US))
    return {key: Costs(tuple(us for us, _ in runs), min(steps for _, steps in runs)) for key, runs in found.items()}


def _phases(record: Record) -> Iterator[tuple[str, float, int]]:
    result = record.result
    for phase, cost, messages in (("publish", result.cost, result.sent), ("drain", result.drain_cost, result.delivered)):
        if "data" in cost and cost["data"].cpu_us > 0:
            yield phase, cost["data"].cpu_us, messages


def changes(before: Sequence[Record], after: Sequence[Record]) -> list[Change]:
    """What both have, in the order of the second."""
    old, new = costs(before, "holdfast"), costs(after, "holdfast")
    theirs = _ratios(costs(before, "mosquitto"), costs(after, "mosquitto"))
    return [Change(key, old[key], new[key], theirs.get(key)) for key in new if key in old]


def _ratios(before: Mapping[Key, Costs], after: Mapping[Key, Costs]) -> dict[Key, float]:
    return {key: after[key].median / before[key].median for key in after if key in before}


def render(found: Sequence[Change]) -> str:
    """The comparison as a table, and a sentence that names what has become dearer."""
    rows = [["scenario", "before, µs/msg", "after, µs/msg", "change", "mosquitto's", ""]]
    for each in found:
        runs = f"({len(each.before.us)} and {len(each.after.us)} runs)"
        rows.append(
            [
                each.name,
                figure(each.before.median, 1),
                figure(each.after.median, 1),
                f"{each.ratio:.2f}",
                "-" if each.mosquitto is None else f"{each.mosquitto:.2f}",
                f"{each.verdict} {runs}",
            ]
        )
    worse = [f"{each.name}: {each.ratio:.2f} times" for each in found if each.regression]
    return "\n".join([*markdown(rows), "", f"dearer by more than 15 %: {'; '.join(worse) or 'nothing'}"])


def resolve(word: str, directory: Path = RESULTS) -> list[Path]:
    """The files that a file's name or a commit means; quick runs only where the commit has no others. Raises RunFailed."""
    if Path(word).is_file():
        return [Path(word)]
    commit = _full(word)
    found = [path for path in sorted(directory.glob("*.json")) if any(_same(part, commit) for part in path.stem.split("-"))]
    if not found:
        raise RunFailed(f"found {word!r}, wanted a results file, or a commit that has one in {directory.name}/")
    return [path for path in found if "quick" not in path.stem] or found


def _full(word: str) -> str:
    """A commit as results files name it; what git does not know stays as it is."""
    command = ["git", "-C", str(RESULTS.parent), "rev-parse", "--verify", "--quiet", f"{word}^{{commit}}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except OSError:
        return word
    return done.stdout.strip() or word


def _same(part: str, commit: str) -> bool:
    """Whether a part of a file's name is this commit; both may be shortened."""
    return len(part) >= 7 and len(commit) >= 7 and (commit.startswith(part) or part.startswith(commit))


def main(words: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.compare", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("before", metavar="A", help="results file, or commit")
    parser.add_argument("after", metavar="B", help="results file, or commit")
    asked = parser.parse_args(words)
    try:
        sides = [[record for path in resolve(word) for record in read_results(path)] for word in (asked.before, asked.after)]
    except RunFailed as failure:
        print(f"no comparison: {failure}", file=sys.stderr)
        return 2
    found = changes(*sides)
    if not found:
        print("no comparison: the two have no scenario of Holdfast's in common", file=sys.stderr)
        return 2
    print(render(found))
    return 1 if any(each.regression for each in found) else 0


if __name__ == "__main__":
    sys.exit(main())
