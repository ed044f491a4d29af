"""Gate 3 of issue 4 of the plan: the archive is killed at each of its steps and run again, for Parquet and for Delta.

A real broker of two shards with some sealed generations in each; in the end everything is sealed. One run to its end says which steps
there are; then, for each step, at its first and its last time, and at some moments of the scan, a run in a directory of its own is killed
there. What is there then has no row that the store has not, none twice, and all that the lease was acknowledged for. After one more run the
table equals the store, row by row, all of it is acknowledged, and ``verify`` finds nothing. In the end a bit is flipped in every file, and
each time it is found.
"""

from __future__ import annotations

import asyncio
import logging
import random
import shutil
import tempfile
import time
from collections import Counter
from pathlib import Path

from holdfast_spark.client import Client, Endpoint
from pipeline.archive_verify import verify
from tests.broker.running import free_port
from tests.gates.gate import GateFailed, Scale, running, settings
from tests.lake.archiver import Archiving
from tests.lake.archives import archive, archived_rows, below, flipped_bytes, stored_rows
from tests.lake.judge import lake_against_store
from tests.lake.ledger import LakeLedger
from tests.lake.publishers import make_publishers, publishing
from tests.lake.stored import Row

LIMIT_S = 2400
FORMATS = ("parquet", "delta")
PER_SECOND, PUBLISH_S, GENERATION_S = 1500.0, 11.0, 3
SEALED_MIN = 3
MOMENTS_MS = (5, 20, 60, 150)
"""After the scan has begun."""
FLIPS, QUICK_FLIPS = 200, 20
QUICK_EVERY = 4
SETTLE_S = 60.0
PATIENCE_S = 60.0


def say(line: str) -> None:
    print(f"  {line}", flush=True)


def chosen(port: int) -> dict[str, str]:
    return settings(
        2,
        **{
            "durable_storage.messages.capture": '["#"]',
            "durable_storage.messages.generation_length": f"{GENERATION_S}s",
            "pipeline.reader": "always",
            "pipeline.listen": f"127.0.0.1:{port}",
        },
    )


class Trials:
    """All runs of one format over one store that does not change any more."""

    def __init__(self, form: str, port: int, token: str, store: list[Row], directory: Path) -> None:
        self.form, self.port, self.token, self.store, self.directory = form, port, token, store, directory
        self.count = 0
        self.steps: Counter[str] = Counter()

    def asked(self, name: str, die_at: str = "", nth: int = 1, after_ms: int | None = None, spark: bool = False) -> Archiving:
        root = str(self.directory / name)
        return Archiving("127.0.0.1", self.port, self.token, root, self.form, f"{self.form}-{name}", die_at, nth, after_ms, spark)

    def whole(self) -> Path:
        """One run that nobody kills: the steps that there are."""
        asked = self.asked("whole")
        ran = archive(asked)
        self.steps = ran.steps
        self.judge(asked, ran.acknowledged, "run to its end")
        return Path(asked.root)

    def trial(self, die_at: str, nth: int, after_ms: int | None = None, spark: bool = False) -> None:
        name = f"trial-{self.count}"
        self.count += 1
        what = f"{self.form}, killed {'at' if after_ms is None else f'{after_ms} ms after'} {die_at!r}, time {nth}"
        asked = self.asked(name, die_at, nth, after_ms, spark)
        killed = archive(asked)
        if not killed.code:
            raise GateFailed(f"{what}: it had ended before, its steps were {dict(killed.steps)}")
        self.partly(asked, what)
        ran = archive(self.asked(name, spark=spark))
        self.judge(asked, ran.acknowledged, what)
        self.drop(asked)
        shutil.rmtree(asked.root)

    def partly(self, asked: Archiving, what: str) -> None:
        """Between the two runs: nothing twice, nothing strange, and nothing acknowledged that is not there."""
        with Client(Endpoint(((asked.host, asked.port),), asked.token), patience_s=PATIENCE_S) as client:
            leases = [each for each in client.lease("list") if each["name"] == asked.lease]
        taken = {int(shard): int(cut) for each in leases for shard, cut in each["to"].items()}
        found = archived_rows(Path(asked.root), self.form)
        verdict = lake_against_store(found, below(self.store, taken))
        # What is committed and not acknowledged yet is a stranger to this comparison, and judged by the next one.
        verdict.counts.pop("stranger", None)
        if not verdict.good:
            raise GateFailed(f"{what}, before the next run, of what is acknowledged ({taken}): {verdict}")
        everything = lake_against_store(found, self.store)
        everything.counts.pop("lost", None)
        if not everything.good:
            raise GateFailed(f"{what}, before the next run: {everything}")

    def judge(self, asked: Archiving, acknowledged: dict[int, int], what: str) -> None:
        verdict = lake_against_store(archived_rows(Path(asked.root), self.form), self.store)
        if not verdict.good:
            raise GateFailed(f"{what}: of {len(self.store)} rows: {verdict}")
        if (released := len(below(self.store, acknowledged))) != len(self.store):
            raise GateFailed(f"{what}: all {len(self.store)} rows are archived, and only {released} are acknowledged, below {acknowledged}")
        if problems := verify(asked.root).problems:
            raise GateFailed(f"{what}: {problems[0]}")

    def drop(self, asked: Archiving) -> None:
        with Client(Endpoint(((asked.host, asked.port),), asked.token), patience_s=PATIENCE_S) as client:
            client.lease("drop", name=asked.lease)


def all_trials(trials: Trials, scale: Scale) -> str:
    began = time.monotonic()
    root = trials.whole()
    wanted = [(name, nth) for name, count in trials.steps.items() for nth in sorted({1, count})]
    for name, nth in wanted[:: QUICK_EVERY if scale.quick else 1]:
        trials.trial(name, nth)
    moments = MOMENTS_MS[1:2] if scale.quick else MOMENTS_MS
    for after_ms in moments:
        trials.trial("scanning", 1, after_ms)
    if not scale.quick:
        trials.trial("comparing", 1, spark=True)
    flips = scale.of(FLIPS, QUICK_FLIPS)
    if missed := flipped_bytes(root, flips, random.Random(3)):
        raise GateFailed(f"{trials.form}: {len(missed)} of {flips} flipped bits were not found, first {missed[0]}")
    said = f"{trials.form}: {trials.count} kills at {len(trials.steps)} steps, each archive equal to the store, {flips} flipped bits found"
    say(f"{said} [{time.monotonic() - began:.0f} s]")
    return said


def wait_sealed(endpoint: Endpoint) -> None:
    """Until there are enough sealed generations in each shard."""
    deadline = time.monotonic() + SETTLE_S
    with Client(endpoint, patience_s=PATIENCE_S) as client:
        while True:
            shards = client.cuts()["shards"].values()
            sealed = min(sum(each["until"] is not None for each in told["generations"]) for told in shards)
            if sealed >= SEALED_MIN:
                return
            if time.monotonic() > deadline:
                raise GateFailed(f"only {sealed} sealed generations in a shard after {SETTLE_S:.0f} s")
            time.sleep(0.5)


def wait_all_sealed(endpoint: Endpoint) -> None:
    """Until no generation that is written to holds a message; nobody publishes any more."""
    deadline = time.monotonic() + SETTLE_S
    with Client(endpoint, patience_s=PATIENCE_S) as client:
        while True:
            shards = client.cuts()["shards"]
            left = {shard: sum(each["rows"] for each in told["generations"] if each["until"] is None) for shard, told in shards.items()}
            if not any(left.values()):
                return
            if time.monotonic() > deadline:
                raise GateFailed(f"messages of each shard in generations that are not sealed after {SETTLE_S:.0f} s: {left}")
            time.sleep(0.5)


async def run(scale: Scale) -> str:
    logging.getLogger("asyncio").setLevel(logging.ERROR)
    port = free_port()
    ledger = LakeLedger()
    directory = Path(tempfile.mkdtemp(prefix="hf-archive-"))
    try:
        async with running(chosen(port)) as watched:
            publishers = make_publishers(watched.broker.port, ledger, 8, 2, PER_SECOND)
            token = (watched.broker.data_dir / "pipeline.token").read_text().strip()
            async with publishing(publishers):
                await asyncio.sleep(PUBLISH_S)
                await asyncio.to_thread(wait_sealed, Endpoint((("127.0.0.1", port),), token))
                await asyncio.gather(*(publisher.finish(SETTLE_S) for publisher in publishers))
            await asyncio.to_thread(wait_all_sealed, Endpoint((("127.0.0.1", port),), token))
            store = await asyncio.to_thread(stored_rows, watched.broker.data_dir)
            if not store:
                raise GateFailed("the store is empty")
            said = [f"{len(store)} rows"]
            for form in FORMATS:
                (directory / form).mkdir()
                trials = Trials(form, port, token, store, directory / form)
                said.append(await asyncio.to_thread(all_trials, trials, scale))
    except BaseException as error:
        error.add_note(f"archives kept in {directory}")
        raise
    shutil.rmtree(directory, ignore_errors=True)
    return "; ".join(said)
