"""One run of the exactly-once drill: publishers, a broker, a streaming query into a lake, faults, and the judgement.

The broker has two shards and two gateways, captures everything and begins a new generation every few seconds. While publishers keep to
their rate, the query reads through the proxy and is killed, or what it depends on is, one fault after the other; each time it must commit
a batch again by itself. In the end publishers stop, a last query takes what is left (AvailableNow), the broker is stopped, and the lake is
compared with the store and with what publishers were promised.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pyarrow.parquet as pq

from tests.broker.running import CommandFailed, free_port
from tests.gates.gate import GateFailed, Watched, running, settings
from tests.lake.driver import Query
from tests.lake.faults import Fault, Injector, told
from tests.lake.files import lake_rows, orphans
from tests.lake.judge import Verdict, lake_against_store, rows_against_ledger
from tests.lake.ledger import LakeLedger
from tests.lake.proxy import CuttingProxy
from tests.lake.publishers import make_publishers, publishing
from tests.lake.stored import Scanned, scan_stores
from tests.lake.supervisor import Said, Supervisor
from tests.needs import ROOT

N_SHARDS = 2
PUBLISHERS = 8
ROLLS_MIN = 3
LEASE = "lake"
TOKEN_FILE = "pipeline.token"
BACK_S = 300.0
"""From a fault to the next batch that is committed: a new JVM is most of it, ten seconds on a machine that has time and minutes on one
that has none."""
READY_S = 60.0
LAST_S = 300.0
SETTLE_S = 60.0
PAUSE_S = (0.3, 2.0)
WHILE_DOWN_PART = 0.15
"""How often the next fault does not wait until the query is back from the last."""
RATE_PART = 0.9
"""Of the rate that is wanted: so much of it has to be acknowledged, outages included."""

AUDITED = ("missing", "disordered", "repeated", "unreadable", "lost", "duplicates_at_qos_2")
"""What an audit must not find. At QoS 1 there may be as many duplicates as were sent again; which ones, the ledger judges."""

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Drill:
    faults: Sequence[Fault]
    seed: int
    per_second: float = 2000.0
    generation_s: int = 60
    rows_per_trigger: int = 20_000


@dataclass(slots=True)
class Outcome:
    """What came of it; ``verdicts`` are to be looked at by whoever ran it."""

    seconds: float = 0.0
    published: int = 0
    acknowledged: int = 0
    sent_again: int = 0
    rows: int = 0
    rolls: dict[int, int] = field(default_factory=dict)
    batches: int = 0
    lives: int = 0
    orphans: int = 0
    longest_s: float = 0.0
    faults: Counter[str] = field(default_factory=Counter)
    stories: list[str] = field(default_factory=list)
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    audited: dict[str, object] = field(default_factory=dict)
    """What `holdfast pipeline audit` would say of the lake."""

    def __str__(self) -> str:
        done = ", ".join(f"{fault} {count}" for fault, count in sorted(self.faults.items()))
        rolls = "/".join(map(str, self.rolls.values()))
        return (
            f"{self.faults.total()} faults ({done}) in {self.seconds:.0f} s; "
            f"{self.published} published, {self.published / self.seconds:.0f} a second, {self.acknowledged} acknowledged, "
            f"{self.sent_again} sent again; {self.rows} rows in the lake, 0 lost, 0 duplicate, 0 out of order; {rolls} rolls; "
            f"{self.batches} batches, {self.lives} lives of the query, back in {self.longest_s:.0f} s at the most, "
            f"{self.orphans} files of killed tasks that count for nothing"
        )


def broker_settings(drill: Drill) -> dict[str, str]:
    # The reader's port is fixed, so that one that comes back is where the proxy looks for it.
    return settings(
        N_SHARDS,
        **{
            "gateway.count": "2",
            "durable_storage.messages.capture": '["#"]',
            "durable_storage.messages.generation_length": f"{drill.generation_s}s",
            "pipeline.reader": "always",
            "pipeline.listen": f"127.0.0.1:{free_port()}",
        },
    )


def address_of(chosen: dict[str, str]) -> tuple[str, int]:
    host, _, port = chosen["pipeline.listen"].rpartition(":")
    return host, int(port)


class Running:
    """Everything of one run, while it runs."""

    def __init__(self, drill: Drill, watched: Watched, proxy: CuttingProxy, directory: Path, say: Say) -> None:
        self.drill = drill
        self.watched = watched
        self.proxy = proxy
        self.directory = directory
        self.say = say
        self.chance = random.Random(drill.seed)
        self.ledger = LakeLedger()
        self.publishers = make_publishers(watched.broker.port, self.ledger, PUBLISHERS, N_SHARDS, drill.per_second)
        self.supervisor = Supervisor(self._query("live").command(), self._made("live"), cwd=ROOT)
        self.last: Supervisor | None = None
        self.outcome = Outcome()

    @property
    def lake(self) -> Path:
        return self.directory / "lake"

    def _made(self, name: str) -> Path:
        directory = self.directory / name
        directory.mkdir()
        return directory

    def _query(self, trigger: Literal["live", "available"], expect: str = "") -> Query:
        host, port = self.proxy.address
        return Query(
            brokers=f"{host}:{port}",
            token=(self.watched.broker.data_dir / TOKEN_FILE).read_text().strip(),
            lake=str(self.lake),
            checkpoint=str(self.directory / "checkpoint"),
            trigger=trigger,
            expect=expect,
            options={
                "startingOffsets": "earliest",
                "lease": LEASE,
                "maxRowsPerTrigger": str(self.drill.rows_per_trigger),
                "topicFilter": "#",
            },
        )

    # ---- what is under way

    def batches(self) -> list[Said]:
        lives = [*self.supervisor.lives, *(self.last.lives if self.last is not None else [])]
        return [said for life in lives for said in life.said if said.event == "batch"]

    async def back(self, since: float, within_s: float = BACK_S) -> float:
        """Wait until a batch is committed that began after ``since``; how long that took from then."""
        while True:
            for publisher in self.publishers:
                publisher.raise_if_broken()
            done = [said.at_s for said in self.batches() if said.at_s - _seconds(said) > since]
            if done:
                return done[0] - since
            if time.monotonic() - since > within_s:
                words = [said for life in self.supervisor.lives[-2:] if (said := life.last_words())]
                raise GateFailed(
                    f"no batch was committed within {within_s:.0f} s of: {told(self.outcome.stories) or 'the start'}; "
                    f"{len(self.supervisor.lives)} lives of the query, last words: {'; '.join(words) or 'none'}"
                )
            await asyncio.sleep(0.05)

    async def ready(self) -> None:
        deadline = time.monotonic() + READY_S
        while True:
            try:
                if (await self.watched.status()).ready:
                    return
            except CommandFailed:
                pass  # its controller is just coming back
            if time.monotonic() > deadline:
                raise GateFailed(f"the broker was not ready {READY_S:.0f} s after: {told(self.outcome.stories)}")
            await asyncio.sleep(0.3)

    # ---- the run

    async def run(self) -> Outcome:
        outcome, began = self.outcome, time.monotonic()
        injector = Injector(self.watched, self.supervisor, self.proxy, self.chance)
        try:
            async with publishing(self.publishers):
                published_since = time.monotonic()
                self.supervisor.begin()
                await self.back(began)
                self.say(f"the first batch after {time.monotonic() - began:.0f} s")
                for number, fault in enumerate(self.drill.faults, start=1):
                    await asyncio.sleep(self.chance.uniform(*PAUSE_S))
                    since = time.monotonic()
                    story = await injector.inject(fault)
                    outcome.faults[fault] += 1
                    outcome.stories.append(f"{story} at {since - began:.0f} s")
                    if number < len(self.drill.faults) and self.chance.random() < WHILE_DOWN_PART:
                        self.say(f"{number}: {story}; the next one at once")
                        continue
                    took = await self.back(time.monotonic())
                    await self.ready()
                    outcome.longest_s = max(outcome.longest_s, took)
                    self.say(f"{number}: {story}; a batch again after {took:.1f} s")
                await self._rolled(published_since)
                outcome.seconds = time.monotonic() - published_since
                await asyncio.gather(*(publisher.finish(SETTLE_S) for publisher in self.publishers))
            await self._take_what_is_left()
        finally:
            await self.supervisor.close()
            if self.last is not None:
                await self.last.close()
        outcome.published, outcome.acknowledged = self.ledger.published, self.ledger.acked
        outcome.sent_again = self.ledger.sent_again_count
        outcome.lives, outcome.batches = len(self.supervisor.lives), len(self.batches())
        return outcome

    async def _rolled(self, since: float) -> None:
        """Publish on until there were enough rolls."""
        await asyncio.sleep(max(0.0, since + (ROLLS_MIN + 0.5) * self.drill.generation_s - time.monotonic()))

    async def _take_what_is_left(self) -> None:
        await self.supervisor.stop(SETTLE_S)
        expected = self.directory / "expected.parquet"
        await asyncio.to_thread(write_expected, self.ledger, expected)
        self.last = Supervisor(self._query("available", str(expected)).command(), self._made("available"), cwd=ROOT)
        self.last.begin()
        try:
            await self.last.ended(LAST_S)
        except TimeoutError:
            raise GateFailed(f"the last query had not ended after {LAST_S:.0f} s: {self.last.life.last_words()}") from None
        self.outcome.audited = next(said.fields for said in self.last.life.said if said.event == "audited")

    def judge(self, stored: Scanned) -> None:
        """After the broker has ended."""
        outcome = self.outcome
        lake = lake_rows(self.lake)
        outcome.rows, outcome.orphans = len(lake), len(orphans(self.lake))
        # With messages on both sides: what rolls after the last of them is no roll under live writes.
        outcome.rolls = {shard: count - 1 for shard, count in stored.generations.items()}
        outcome.verdicts = {
            "the lake against the store": lake_against_store(lake, stored.rows),
            "the lake against the publishers": rows_against_ledger(lake, self.ledger),
        }


def write_expected(ledger: LakeLedger, path: Path) -> None:
    """What was promised, for the audit."""
    columns = list(zip(*ledger.acknowledged_keys(), strict=True))
    pq.write_table(pa.table(dict(zip(("client_id", "topic", "sequence"), map(list, columns), strict=True))), path)


def _seconds(said: Said) -> float:
    ms = said.fields["ms"]
    assert isinstance(ms, int | float)
    return ms / 1000


@asynccontextmanager
async def drilling(drill: Drill, directory: Path, say: Say) -> AsyncIterator[Running]:
    """A broker, a proxy before its reader, and nothing left of them at the end."""
    chosen = broker_settings(drill)
    async with running(chosen) as watched:
        address = address_of(chosen)
        with CuttingProxy(lambda: address) as proxy:
            yield Running(drill, watched, proxy, directory, say)


def require_right(drill: Drill, outcome: Outcome) -> None:
    """Raises GateFailed with what went wrong."""
    for what, verdict in outcome.verdicts.items():
        if not verdict.good:
            raise GateFailed(f"{what}: {verdict}; after {'; '.join(outcome.stories)}")
    faults = {name: outcome.audited[name] for name in AUDITED if outcome.audited[name]}
    duplicates = outcome.audited["duplicates"]
    if faults or not isinstance(duplicates, int) or duplicates > outcome.sent_again or outcome.audited["rows"] != outcome.rows:
        raise GateFailed(f"the audit of {outcome.rows} rows, of which {outcome.sent_again} were sent again, found {outcome.audited}")
    if min(outcome.rolls.values()) < ROLLS_MIN:
        raise GateFailed(f"{outcome.rolls} rolls by shard, {ROLLS_MIN} are wanted of each")
    if outcome.acknowledged < drill.per_second * outcome.seconds * RATE_PART:
        rate = outcome.acknowledged / outcome.seconds
        raise GateFailed(f"{rate:.0f} messages a second were published and acknowledged, {drill.per_second:.0f} are wanted")
    if absent := Counter[str](drill.faults) - outcome.faults:
        raise GateFailed(f"{dict(absent)} of the faults did not come")
    if not outcome.rows or not outcome.audited["rows_at_qos_2"]:
        raise GateFailed(f"the lake is empty at one QoS: of {outcome.rows} rows {outcome.audited['rows_at_qos_2']} are at QoS 2")


async def exactly_once(drill: Drill, directory: Path, say: Say) -> Outcome:
    async with drilling(drill, directory, say) as run:
        await run.run()
        data_dir = run.watched.broker.data_dir
        await asyncio.to_thread(run.watched.broker.down)
        await asyncio.to_thread(lambda: run.judge(scan_stores(data_dir)))
    require_right(drill, run.outcome)
    return run.outcome
