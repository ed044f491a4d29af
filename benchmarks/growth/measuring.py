"""The runs that curves are made of: each run has a broker of its own, and the levels of a dimension take turns.

A broker that was used before costs more, by what RocksDB merges of what it has, and a short run tells little: of 400,000 messages to a new
broker the store's cost was the same within 4 % in eight runs, of 100,000 to a used one within 30.

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
from benchmarks.brokers import Broker
from benchmarks.clients import Endpoint
from benchmarks.growth import crowd
from benchmarks.growth.curves import CORES, DIMENSIONS, SESSIONS, STORED, SUBSCRIPTIONS, TOPICS, variant
from benchmarks.load import Record, run
from benchmarks.scenarios import Options
from benchmarks.variants import variant_turns
from benchmarks.wire import Refused
from benchmarks.workers import RunFailed

LEVELS: Final = {dimension.name: dimension for dimension in DIMENSIONS}
VARIANTS: Final = "variants"
PUBLISHERS_EACH: Final = 8
"""Of each shard and gateway, so that each has as much to do as a single one."""
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
    rounds: int = 1
    """So many times as many runs of each level as otherwise."""

    @property
    def messages(self) -> int:
        """Of a run at a level that is not about messages."""
        return 10_000 if self.quick else 400_000

    def missing(self, level: str, wanted: int) -> int:
        """How many runs of a level are still to do."""
        of_level = (record for record in self.records if record.variant == level and record.broker == "holdfast")
        done = sum(record.result.scenario not in ("one-session", "pairs") for record in of_level)
        return max(0, wanted - done)

    def once(self, scenario: str, broker: Broker, level: str, options: Options) -> None:
        """One run, with its records in the file. Raises RunFailed, OutOfTime."""
        self.look_at_the_clock()
        print(f"{level}: {scenario}", file=sys.stderr, flush=True)
        for record in run(scenario, target(broker, 4, level), options):
            self.add(record)

    def add(self, record: Record) -> None:
        self.records.append(record)
        self.results.add(record)

    def look_at_the_clock(self) -> None:
        if time.monotonic() > self.until_s:
            raise OutOfTime

    @contextmanager
    def broker(self, *settings: str) -> Iterator[Broker]:
        """A new Holdfast, alone."""
        self.look_at_the_clock()
        with tempfile.TemporaryDirectory(prefix="growth-", dir=self.directory) as directory:
            with running(standing(["holdfast"], Path(directory), settings)) as (broker,):
                yield broker

    def turns(self, dimension: str, runs: Callable[[int], int]) -> Iterator[tuple[str, int]]:
        """What is still to be run: level and amount, round after round. runs: how many of an amount."""
        wanted = {amount: self.rounds * runs(amount) for amount in LEVELS[dimension].asked(quick=self.quick)}
        for number in range(max(wanted.values())):
            for amount, count in wanted.items():
                level = variant(dimension, amount)
                if number < count and self.missing(level, number + 1):
                    yield level, amount


def stored(measuring: Measuring) -> None:
    """So many messages to an offline session that then drains them."""
    for level, amount in measuring.turns(
        STORED, lambda amount: 5 if amount <= 10_000 else 3 if amount <= 100_000 else 2 if amount <= 1_000_000 else 1
    ):
        with measuring.broker() as broker:
            measuring.once("offline", broker, level, Options(messages=amount, stall_s=30, hard_s=max(120, amount / 5_000)))


def topics(measuring: Measuring) -> None:
    """As many messages at every level, fifteen to each topic at the highest: what a topic costs when it is new is not what a message costs.
    Of a million and a half RocksDB has merged everything once, with index keys and without; of a million only with them."""
    messages = max(measuring.messages, 15 * LEVELS[TOPICS].asked(quick=measuring.quick)[-1])
    for level, amount in measuring.turns(TOPICS, lambda _: 3):
        with measuring.broker() as broker:
            measuring.once("offline", broker, level, Options(messages=messages, topics=amount))


def sessions(measuring: Measuring) -> None:
    """One store for all of them."""
    for level, amount in measuring.turns(SESSIONS, lambda amount: 1 if amount > 10_000 else 2):
        options = Options(
            messages=max(20_000, measuring.messages),
            sessions=amount,
            sessions_drained=3,
            topics=10,
            settle_s=SETTLE_S if amount >= 10_000 else 1.0,
            hard_s=300,
        )
        with measuring.broker() as broker:
            measuring.once("sessions", broker, level, options)


def subscriptions(measuring: Measuring) -> None:
    """So many that do not match."""
    for level, amount in measuring.turns(SUBSCRIPTIONS, lambda _: 2):
        with measuring.broker() as broker:
            try:
                crowd.subscribe(Endpoint(broker.host, broker.port, 4), "crowd", 0, amount)
            except (OSError, Refused) as error:
                raise RunFailed(f"{amount:,} subscriptions: {error}") from error
            time.sleep(SETTLE_S if amount >= 10_000 else 1.0)
            measuring.once("offline", broker, level, Options(messages=measuring.messages, topics=10))


def processes(measuring: Measuring) -> None:
    """Brokers of 1, 2, 4 shards and gateways, each part with a process of its own."""
    for level, amount in measuring.turns(CORES, lambda _: 3):
        with measuring.broker("profile=spread", f"durable_storage.messages.n_shards={amount}", f"gateway.count={amount}") as broker:
            publishers = PUBLISHERS_EACH * amount
            options = Options(
                messages=measuring.messages, publishers=publishers, window=256, topics=publishers, seconds=1.0 if measuring.quick else 3.0
            )  # fmt: skip
            measuring.once("pairs", broker, level, replace(options, topics=1))
            measuring.once("offline", broker, level, options)


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
    STORED: stored,
    SESSIONS: sessions,
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
