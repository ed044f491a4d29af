"""The runs that curves are made of: the levels of a dimension have a broker each, which stand beside each other, and short runs go through
them in turns, forwards and backwards.

A machine that has neighbours is half as fast in one minute as in another, and runs minutes apart tell more of that than of the level: of
three long runs each, to a new broker each, two medians of one and the same level differed by 1.3. In turns of seconds all levels have the
same of it: two brokers of one level came to 0.99 of each other in eleven turns, store and drain, in an hour in which single runs differed
by a factor of two. The first run against a broker is for warming up, and counts for nothing: what a topic costs when it is new is not what
a message costs. The brokers go on from run to run, so what RocksDB merges of older runs is on the bill, at each level alike.

Resumable: records go to the results file run by run, and what the file has already is not run again. Bounded: before every run it is asked
whether there is time; when there is none, `OutOfTime` ends the measuring and the file has all that was done.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from benchmarks.bench import ResultsFile, running, standing, take_turns, target
from benchmarks.brokers import Broker
from benchmarks.growth import crowd
from benchmarks.growth.curves import CORES, DIMENSIONS, SESSIONS, STORED, SUBSCRIPTIONS, TOPICS, variant
from benchmarks.load import Record, Target, run
from benchmarks.scenarios import Options
from benchmarks.variants import variant_turns
from benchmarks.wire import Refused
from benchmarks.workers import RunFailed

LEVELS: Final = {dimension.name: dimension for dimension in DIMENSIONS}
VARIANTS: Final = "variants"
ROUNDS, ROUNDS_FEW = 8, 2
"""Of short runs, and of a quick form or runs that are long. Even numbers, so that each level comes as often early as late."""
RUN: Final = "growth"
"""Begins the topics and client ids of all runs: each has the topics of the one before."""
PUBLISHERS_EACH: Final = 4
"""Of each shard and gateway, so that each has as much to do as a single one: what the bars have."""
TOPICS_OF_ALL: Final = 10
"""Of stored messages, at each level. If there were more with more shards, a level of them would be learned at some levels and not at others
(shards.lts), and what is seen would be what topics cost."""
FILLED: Final = 250_000
"""Messages of a first run for each shard: its memory table has been full once then. Memory that a process touches for the first time costs
a page fault for each 4 KiB, and with more shards it takes more messages until there is none of it any more."""
SETTLE_S: Final = 15.0
"""After so long nothing is written any more for many who left."""

Steps = Mapping[str, Options]
"""What a run at a level is made of: the options by scenario."""


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
        return 10_000 if self.quick else 100_000

    def missing(self, level: str, wanted: int) -> int:
        """How many runs of a level are still to do."""
        of_level = (record for record in self.records if record.variant == level and record.broker == "holdfast")
        done = sum(record.result.scenario != "pairs" for record in of_level)
        return max(0, wanted - done)

    def turns(self, dimension: str, runs: Callable[[int], int]) -> Iterator[tuple[str, int]]:
        """What is still to be run: level and amount, in turns. runs: how many of an amount in each round."""
        levels = LEVELS[dimension].asked(quick=self.quick)
        wanted = dict.fromkeys(levels, 0)
        for number in range(self.rounds * (ROUNDS_FEW if self.quick or dimension == STORED else ROUNDS)):
            for amount in levels if number % 2 == 0 else reversed(levels):
                level = variant(dimension, amount)
                for _ in range(runs(amount)):
                    wanted[amount] += 1
                    if self.missing(level, wanted[amount]):
                        yield level, amount

    def measure(
        self, dimension: str, steps: Callable[[int], Steps], *, runs: Callable[[int], int] = lambda _: 1,
        settings: Callable[[int], Sequence[str]] = lambda _: (), before: Callable[[Target, int], None] = lambda _, amount: None,
        first: Callable[[int], int] | None = None,
    ) -> None:  # fmt: skip
        """All levels of a dimension. before: what is made at a broker first. first: messages of the run that warms up; None: as many as
        of the others, and not more than two ordinary runs have. Raises RunFailed, OutOfTime."""
        todo = list(self.turns(dimension, runs))
        if not todo:
            return
        amounts = sorted({amount for _, amount in todo})
        with self.brokers([settings(amount) for amount in amounts]) as brokers:
            targets = {}
            for amount, broker in zip(amounts, brokers, strict=True):
                self.look_at_the_clock()
                found = targets[amount] = target(broker, 4, variant(dimension, amount))
                before(found, amount)
                for scenario, options in steps(amount).items():
                    messages = first(amount) if first else min(options.messages, 2 * self.messages)
                    run(scenario, found, replace(options, messages=messages), RUN)
            for level, amount in todo:
                self.look_at_the_clock()
                print(level, file=sys.stderr, flush=True)
                # The one that is counted last: broken off between two, it is run again.
                made = [each for scenario, options in steps(amount).items() for each in run(scenario, targets[amount], options, RUN)]
                for record in made:
                    self.add(record)

    def add(self, record: Record) -> None:
        self.records.append(record)
        self.results.add(record)

    def look_at_the_clock(self) -> None:
        if time.monotonic() > self.until_s:
            raise OutOfTime

    @contextmanager
    def brokers(self, settings: Sequence[Sequence[str]]) -> Iterator[Sequence[Broker]]:
        """New ones, with these settings each."""
        self.look_at_the_clock()
        with tempfile.TemporaryDirectory(prefix="growth-", dir=self.directory) as directory:
            made = [standing(["holdfast"], Path(directory, str(number)), each)[0] for number, each in enumerate(settings)]
            with running(made):
                yield made


def stored(measuring: Measuring) -> None:
    """So many messages to an offline session that then drains them; fewer are stored more often."""

    def steps(amount: int) -> Steps:
        return {"offline": Options(messages=amount, stall_s=30, hard_s=max(120, amount / 5_000))}

    measuring.measure(STORED, steps, runs=lambda amount: 5 if amount <= 10_000 else 3 if amount <= 100_000 else 1)


def topics(measuring: Measuring) -> None:
    """So many, published to in turn."""
    largest = LEVELS[TOPICS].asked(quick=measuring.quick)[-1]
    measuring.measure(TOPICS, lambda amount: {"offline": Options(messages=max(measuring.messages, largest), topics=amount)})


def sessions(measuring: Measuring) -> None:
    """One store for all of them: one comes back, again and again, and the others stay away."""

    def before(found: Target, amount: int) -> None:
        _made(f"{amount:,} sessions", lambda: crowd.away(found.endpoint, RUN, amount - 1), amount)

    measuring.measure(SESSIONS, lambda _: {"offline": Options(messages=measuring.messages, topics=10)}, before=before)


def subscriptions(measuring: Measuring) -> None:
    """So many that do not match."""

    def before(found: Target, amount: int) -> None:
        _made(f"{amount:,} subscriptions", lambda: crowd.subscribe(found.endpoint, RUN, 0, amount), amount)

    measuring.measure(SUBSCRIPTIONS, lambda _: {"offline": Options(messages=measuring.messages, topics=10)}, before=before)


def _made(what: str, make: Callable[[], None], amount: int) -> None:
    try:
        make()
    except (OSError, Refused) as error:
        raise RunFailed(f"{what}: {error}") from error
    time.sleep(SETTLE_S if amount >= 10_000 else 1.0)


def processes(measuring: Measuring) -> None:
    """Brokers of 1, 2, 4 shards and gateways, each part with a process of its own. So many times as much for so many times as many: what a
    process costs by being there is the same for each, and not more of a message where there are more."""

    def steps(amount: int) -> Steps:
        publishers = PUBLISHERS_EACH * amount
        seconds = amount * (1.0 if measuring.quick else 2.0)
        options = Options(messages=amount * measuring.messages, publishers=publishers, topics=TOPICS_OF_ALL, seconds=seconds)
        return {"pairs": replace(options, topics=1), "offline": options}

    def settings(amount: int) -> Sequence[str]:
        return "profile=spread", f"durable_storage.messages.n_shards={amount}", f"gateway.count={amount}"

    filled = measuring.messages if measuring.quick else FILLED
    measuring.measure(CORES, steps, settings=settings, first=lambda amount: filled * amount)


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
