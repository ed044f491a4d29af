"""`make bench`: the standard set of scenarios against Holdfast and, when it is installed, Debian's mosquitto, taking turns.

The two run side by side and take each run right after one another, because a machine's disk and neighbours change by the minute: a ratio
within a turn means more than either rate. Writes every run to a file in `benchmarks/results/` and prints the table of medians.
Exit code 0: Holdfast has a result in every scenario and lost, doubled and disordered nothing.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from benchmarks import meter
from benchmarks.brokers import Broker, Doors, Holdfast, Mosquitto, ended_from_outside, find_mosquitto
from benchmarks.clients import Endpoint
from benchmarks.load import Record, Target, run
from benchmarks.table import idle_line, render
from benchmarks.turns import Transport, Turn, standard_set
from benchmarks.variants import variant_table, variant_turns
from benchmarks.wire import Version
from benchmarks.workers import RunFailed

RESULTS: Final = Path(__file__).parent / "results"
IDLE_S: Final = 2.0


def target(broker: Broker, version: Version, variant: str = "", transport: Transport = "tcp") -> Target:
    """The broker with the processes it has at this moment; one that was restarted since has others."""
    endpoint = Endpoint(broker.host, broker.port, version)
    if transport != "tcp":
        if broker.doors is None:
            raise RunFailed(f"{broker.name} does not listen for {transport}")
        if transport == "tls":
            endpoint = replace(endpoint, port=broker.doors.tls, ca=broker.doors.shown.cert)
        else:
            endpoint = replace(endpoint, port=broker.doors.web, web=True)
    return Target(broker.name, broker.version, endpoint, broker.groups(), broker.data_dir, broker.data_dir.parent, variant)


def idle_cores(broker: Broker) -> dict[str, float]:
    """CPU of the broker with nobody connected, in cores."""
    groups = broker.groups()
    before = meter.measure(groups)
    time.sleep(IDLE_S)
    after = meter.measure(groups)
    return {group: (after[group].cpu_s - before[group].cpu_s) / IDLE_S for group in groups}


class ResultsFile:
    """A JSON array with one record a line, whole after every record, so that a run that is broken off is not lost. `before`: records that
    it has already, of a run that goes on."""

    def __init__(self, path: Path, before: Sequence[Record] = ()) -> None:
        self.path = path
        self._lines = [record.line() for record in before]
        path.parent.mkdir(parents=True, exist_ok=True)

    def add(self, record: Record) -> None:
        self._lines.append(record.line())
        self.path.write_text("[\n" + ",\n".join(self._lines) + "\n]\n")


def take_turns(turns: Sequence[Turn], brokers: Sequence[Broker], version: Version, results: ResultsFile) -> tuple[list[Record], list[str]]:
    """Every turn on every broker; the records, and a sentence for each run without a result."""
    records: list[Record] = []
    failures: list[str] = []
    for turn in turns:
        for number in range(turn.repeats):
            for broker in brokers:
                options = turn.of(broker.name)
                if options is None:
                    continue
                what = f"{turn.scenario} {turn.variant}".strip()
                print(f"{what} {number + 1}/{turn.repeats} {broker.name}", file=sys.stderr, flush=True)
                try:
                    made = run(turn.scenario, target(broker, turn.version or version, turn.variant, turn.transport), options)
                except RunFailed as failure:
                    failures.append(f"{broker.name} {what}: {failure}")
                    print(f"  {failure}", file=sys.stderr, flush=True)
                    continue
                records += made
                for record in made:
                    results.add(record)
    return records, failures


def arguments() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="smaller amounts, one turn each: under two minutes")
    parser.add_argument("--repeats", type=int, default=None, help="turns of each main scenario (default 3, quick 1)")
    parser.add_argument("--only", action="append", default=[], metavar="SCENARIO", help="leave out the others")
    parser.add_argument("--plain", action="store_true", help="leave out other transports, sizes and levels of quality")
    parser.add_argument("--brokers", default="holdfast,mosquitto", help="which of holdfast,mosquitto")
    parser.add_argument("--mqtt", choices=("3.1.1", "5"), default="3.1.1")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting of Holdfast")
    parser.add_argument("--dir", type=Path, help="where the brokers keep their data (default: a new directory in the temporary one)")
    parser.add_argument("--results", type=Path, help="file for the records")
    return parser


def main(words: Sequence[str] | None = None) -> int:
    """The command."""
    asked = arguments().parse_args(words)
    version: Version = 5 if asked.mqtt == "5" else 4
    turns = standard_set(quick=asked.quick, repeats=asked.repeats or (1 if asked.quick else 3))
    if not asked.plain and not asked.only:
        turns += variant_turns(quick=asked.quick, repeats=1)
    unknown = set(asked.only) - {turn.scenario for turn in turns}
    if unknown:
        print(f"found --only {', '.join(sorted(unknown))}, wanted one of {', '.join(turn.scenario for turn in turns)}", file=sys.stderr)
        return 2
    turns = [turn for turn in turns if not asked.only or turn.scenario in asked.only]
    results = new_results(asked.results)
    with ended_from_outside(), tempfile.TemporaryDirectory(prefix="bench-", dir=asked.dir) as directory:
        return _measure(
            standing(asked.brokers.split(","), Path(directory), asked.set, doors=any(turn.transport != "tcp" for turn in turns)),
            turns,
            version,
            results,
        )


def standing(names: Sequence[str], directory: Path, settings: Sequence[str], *, doors: bool = False) -> list[Broker]:
    """The brokers of these names, not started yet; without mosquitto where it is not installed. `doors`: Holdfast also by TLS and
    WebSocket."""
    brokers: list[Broker] = []
    if "holdfast" in names:
        brokers.append(Holdfast(directory, settings, Doors.planned(directory) if doors else None))
    if "mosquitto" in names:
        program = find_mosquitto()
        if program is None:
            print("mosquitto is not installed, so there will be no ratios; `make system-deps` installs it", file=sys.stderr)
        else:
            brokers.append(Mosquitto(directory, program))
    return brokers


@contextmanager
def running(brokers: Sequence[Broker]) -> Iterator[Sequence[Broker]]:
    """Within it they run; raises RunFailed when one does not start. One that does not stop is told of, and spoils nothing."""
    started: list[Broker] = []
    try:
        for broker in brokers:
            started.append(broker)
            broker.start()
        yield brokers
    finally:
        for broker in reversed(started):
            try:
                broker.stop()
            except RunFailed as left:
                print(left, file=sys.stderr)


def new_results(chosen: Path | None, what: str = "") -> ResultsFile:
    """The file for the records of a run, by default a new one whose name says when, which commit and what."""
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    return ResultsFile(chosen or RESULTS / f"{stamp}-{meter.commit().rstrip('+')}{what and f'-{what}'}.json")


def _measure(brokers: Sequence[Broker], turns: Sequence[Turn], version: Version, results: ResultsFile) -> int:
    try:
        with running(brokers):
            records, failures = take_turns(turns, brokers, version, results)
            # At the end: for its first half minute a broker that embeds Ray is busy with starting what nobody waits for.
            idle = {broker.name: idle_cores(broker) for broker in brokers}
    except RunFailed as failure:
        print(f"no benchmark: {failure}", file=sys.stderr)
        return 2
    print(render(records))
    if any(record.variant for record in records):
        print(f"\n{variant_table(records)}\n")
    print(idle_line(idle))
    for sentence in failures:
        print(f"no result: {sentence}")
    print(f"every run: {results.path}")
    ours = brokers[0].name
    wrong = [record for record in records if record.broker == ours and not record.result.clean]
    return 1 if wrong or any(sentence.startswith(ours) for sentence in failures) or not records else 0


if __name__ == "__main__":
    sys.exit(main())
