"""The runs that curves are made of: each dimension has a broker of its own, and each level so many runs.

Beside it stands a broker that is always the same, the ruler; benchmarks/growth/curves.py says what for.

Resumable: records go to the results file run by run, and what the file has already is not run again. Bounded: before every run it is asked
whether there is time; when there is none, `OutOfTime` ends the measuring and the file has all that was done.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from benchmarks.bench import ResultsFile, running, standing, take_turns, target
from benchmarks.brokers import Broker, Holdfast
from benchmarks.clients import Endpoint
from benchmarks.growth import crowd
from benchmarks.growth.curves import CORES, DIMENSIONS, RULER, SESSIONS, STORED, SUBSCRIPTIONS, TOPICS, variant
from benchmarks.load import Record, run
from benchmarks.scenarios import Options
from benchmarks.variants import variant_turns
from benchmarks.wire import Refused
from benchmarks.workers import RunFailed

LEVELS: Final = {dimension.name: dimension for dimension in DIMENSIONS}
VARIANTS: Final = "variants"
SETTLE_S: Final = 15.0
"""After so long nothing is written any more for many who left."""


class OutOfTime(Exception):
    """The rest is for the next time."""


@dataclass(slots=True)
class Measuring:
    """What is asked for, what is there, and until when."""

    quick: bool
    results: ResultsFile
    records: list[Record]
    until_s: float
    directory: Path | None = None
    ruler: Broker | None = None
    ruled: bool = False
    """Nothing was run since the ruler was."""

    @property
    def messages(self) -> int:
        """Of the ruler, and of a run at a level that is not about messages."""
        return 10_000 if self.quick else 100_000

    def missing(self, level: str, wanted: int) -> int:
        """How many runs of a level are still to do."""
        of_level = (record for record in self.records if record.variant == level and record.broker == "holdfast")
        done = sum(record.result.scenario not in ("one-session", "pairs") for record in of_level)
        return max(0, wanted - done)

    def once(self, scenario: str, broker: Broker, level: str, options: Options) -> None:
        """One run between two of the ruler, with their records in the file. Raises RunFailed, OutOfTime."""
        self.look_at_the_clock()
        if not self.ruled:
            self._rule(level)
        print(f"{level}: {scenario}", file=sys.stderr, flush=True)
        for record in run(scenario, target(broker, 4, level), options):
            self.add(record)
        self._rule(level)

    def _rule(self, level: str) -> None:
        assert self.ruler is not None
        for record in run("offline", target(self.ruler, 4, level), Options(messages=self.messages, topics=10)):
            self.add(record)
        self.ruled = True

    def add(self, record: Record) -> None:
        self.records.append(record)
        self.results.add(record)

    def look_at_the_clock(self) -> None:
        if time.monotonic() > self.until_s:
            raise OutOfTime

    @contextmanager
    def broker(self, *settings: str) -> Iterator[Broker]:
        """A new Holdfast, and the ruler."""
        self.look_at_the_clock()
        with tempfile.TemporaryDirectory(prefix="growth-", dir=self.directory) as directory:
            self.ruler = Holdfast(Path(directory, RULER))
            self.ruler.name, self.ruled = RULER, False
            with running([*standing(["holdfast"], Path(directory), settings), self.ruler]) as (broker, _):
                yield broker


def runs_of(amount: int) -> int:
    """More of what is short: steps of the CPU account weigh most there."""
    return 5 if amount <= 10_000 else 3 if amount <= 100_000 else 1


def stored(measuring: Measuring) -> None:
    """So many messages to an offline session that then drains them, in a store that keeps all of them."""
    todo = [(n, measuring.missing(variant(STORED, n), runs_of(n))) for n in LEVELS[STORED].asked(quick=measuring.quick)]
    if not any(left for _, left in todo):
        return
    with measuring.broker() as broker:
        for amount, left in todo:
            options = Options(messages=amount, stall_s=30, hard_s=max(120, amount / 5_000))
            for _ in range(left):
                measuring.once("offline", broker, variant(STORED, amount), options)


def topics(measuring: Measuring) -> None:
    """Rounds over all levels, so that what the machine does meanwhile meets all of them."""
    levels = LEVELS[TOPICS].asked(quick=measuring.quick)
    rounds = 3
    if not any(measuring.missing(variant(TOPICS, n), rounds) for n in levels):
        return
    with measuring.broker() as broker:
        for number in range(rounds):
            for amount in levels:
                if measuring.missing(variant(TOPICS, amount), number + 1):
                    measuring.once("offline", broker, variant(TOPICS, amount), Options(messages=measuring.messages, topics=amount))


def sessions(measuring: Measuring) -> None:
    """One store for all of them."""
    levels = LEVELS[SESSIONS].asked(quick=measuring.quick)
    todo = [(n, measuring.missing(variant(SESSIONS, n), 1 if n > 10_000 else 2 if n > 1_000 else 3)) for n in levels]
    if not any(left for _, left in todo):
        return
    with measuring.broker() as broker:
        for amount, left in todo:
            options = Options(
                messages=max(20_000, measuring.messages),
                sessions=amount,
                sessions_drained=3,
                topics=10,
                settle_s=SETTLE_S if amount >= 10_000 else 1.0,
                hard_s=300,
            )
            for _ in range(left):
                measuring.once("sessions", broker, variant(SESSIONS, amount), options)


def subscriptions(measuring: Measuring) -> None:
    """More and more that do not match, each level on top of those before."""
    levels = LEVELS[SUBSCRIPTIONS].asked(quick=measuring.quick)
    todo = [(n, measuring.missing(variant(SUBSCRIPTIONS, n), 3)) for n in levels]
    if not any(left for _, left in todo):
        return
    with measuring.broker() as broker:
        there = 0
        for amount, left in todo:
            if not left:
                continue
            try:
                crowd.subscribe(Endpoint(broker.host, broker.port, 4), "crowd", there, amount)
            except (OSError, Refused) as error:
                raise RunFailed(f"{amount:,} subscriptions: {error}") from error
            there = amount
            time.sleep(SETTLE_S if amount >= 10_000 else 1.0)
            for _ in range(left):
                measuring.once("offline", broker, variant(SUBSCRIPTIONS, amount), Options(messages=measuring.messages, topics=10))


def processes(measuring: Measuring) -> None:
    """Brokers of 1, 2, 4 shards and gateways, one after another, each part with a process of its own."""
    for amount in LEVELS[CORES].asked(quick=measuring.quick):
        left = measuring.missing(variant(CORES, amount), 3)
        if not left:
            continue
        with measuring.broker("profile=spread", f"durable_storage.messages.n_shards={amount}", f"gateway.count={amount}") as broker:
            # Of many publishers each shard and each gateway gets some.
            options = Options(messages=measuring.messages, publishers=8, window=256, topics=8, seconds=1.0 if measuring.quick else 3.0)
            for _ in range(left):
                measuring.once("pairs", broker, variant(CORES, amount), replace(options, topics=1))
                measuring.once("offline", broker, variant(CORES, amount), options)


def variants(measuring: Measuring) -> None:
    """The fan-in by other transports, sizes and levels of quality, mosquitto beside it."""
    turns = variant_turns(quick=measuring.quick, repeats=1 if measuring.quick else 3, plain=True)
    todo = [
        replace(turn, repeats=left)
        for turn in turns
        if (left := turn.repeats - sum(r.variant == turn.variant and r.broker == "holdfast" for r in measuring.records)) > 0
    ]
    if not todo:
        return
    with tempfile.TemporaryDirectory(prefix="growth-", dir=measuring.directory) as directory:
        with running(standing(["holdfast", "mosquitto"], Path(directory), [], doors=True)) as brokers:
            for turn in todo:
                measuring.look_at_the_clock()
                made, failures = take_turns([turn], brokers, 4, measuring.results)
                measuring.records += made
                for sentence in failures:
                    print(sentence, file=sys.stderr, flush=True)


PARTS: Final[dict[str, Callable[[Measuring], None]]] = {
    TOPICS: topics,
    SUBSCRIPTIONS: subscriptions,
    CORES: processes,
    VARIANTS: variants,
    SESSIONS: sessions,
    STORED: stored,
}


def measure(measuring: Measuring, parts: Sequence[str]) -> list[str]:
    """These parts; a sentence for each that could not be ended. Raises OutOfTime."""
    failures = []
    for name in parts:
        try:
            PARTS[name](measuring)
        except RunFailed as failure:
            failures.append(f"{name}: {failure}")
            print(failures[-1], file=sys.stderr, flush=True)
    return failures
