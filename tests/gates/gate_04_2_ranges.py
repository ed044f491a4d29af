"""Gate 2 of issue 4 of the plan: what a range of positions holds never changes, and an answer that is cut short is always an error.

First the properties, over every layout, with rolls, folds, drops and restarts of a store in memory, with many examples. Then a real broker
of one shard for each layout that ships: while messages come at a steady rate, generations of two classes roll, are folded and dropped, and
ranges are planned and read over the reader's protocol in one piece and in two, again at once and again later (tests/lake/ranges.py). At
last one answer to a scan is cut at every class of byte, and one to a plan, by a proxy: each time the client raises, and with patience it
gets the same.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import re
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from holdfast_spark.client import Client, Endpoint, NoReader, Unit
from tests.broker.running import free_port
from tests.gates.gate import GateFailed, Scale, Watched, running, settings
from tests.lake.ledger import LakeLedger
from tests.lake.proxy import Address, CuttingProxy
from tests.lake.publishers import make_publishers, publishing
from tests.lake.ranges import FILTERS, Ranges, read_unit
from tests.lake.truncation import RawClient, places
from tests.needs import ROOT

LIMIT_S = 1800
LAYOUTS = ("pagestream", "skipstream", "record_batch", "wildcard_optimized")
SECONDS, QUICK_SECONDS = 90, 25
EXAMPLES, QUICK_EXAMPLES = 2000, 100
PROPERTIES = "tests/contracts/test_bulk_ranges.py"
PER_SECOND = 2000.0
GENERATION_S, KEPT_S, SHORT_S = 5, 20, 10
READY_S = 30.0
WANTED = (
    "in two pieces, sealed",
    "in two pieces, being written",
    "again, sealed before",
    "again, was being written",
    "again, and it was dropped",
)


def say(line: str) -> None:
    print(f"  {line}", flush=True)


def properties(examples: int) -> str:
    """The words of pytest."""
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--timeout=1200", PROPERTIES]
    environment = {**os.environ, "RANGES_EXAMPLES": str(examples)}
    run = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False, env=environment)
    found = re.search(r"(\d+) passed(.*?) in ", run.stdout)
    if run.returncode or found is None or "skipped" in found[2]:
        lines = [line for line in run.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))] + run.stdout.splitlines()[-1:]
        raise GateFailed(f"{PROPERTIES}: {'; '.join(lines) or run.stderr}")
    return f"{found[1]} properties with {examples} examples each"


def chosen(layout: str, port: int) -> dict[str, str]:
    """Generations of two classes, of which the second is kept for a shorter time."""
    return settings(
        1,
        **{
            "durable_storage.messages.capture": '["#"]',
            "durable_storage.messages.layout.type": layout,
            "durable_storage.messages.layout.epoch_bits": "17",
            "durable_storage.messages.generation_length": f"{GENERATION_S}s",
            "durable_storage.messages.classes": f'[{{name = "short", filter = "lake/0/#", period = "{SHORT_S}s"}}]',
            "durable_sessions.message_retention_period": f"{KEPT_S}s",
            "pipeline.reader": "always",
            "pipeline.listen": f"127.0.0.1:{port}",
        },
    )


def token_of(watched: Watched) -> str:
    return (watched.broker.data_dir / "pipeline.token").read_text().strip()


def read_on(endpoint: Endpoint, seconds: float, seed: int) -> Ranges:
    """In a thread, beside the publishers."""
    with Client(endpoint, patience_s=READY_S) as client:
        ranges = Ranges(client, client.hello()["store"], random.Random(seed))
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            ranges.turn()
        return ranges


def largest_sealed(client: Client) -> Unit:
    told = client.cuts()["shards"]["0"]
    plan = client.plan({0: int(told["earliest"])}, {0: int(told["cut"])}, FILTERS, None, None, 1_000_000)
    sealed = [each for each in plan["units"] if each["sealed"]]
    if not sealed:
        raise GateFailed(f"no sealed generation among {len(plan['units'])} units")
    best = max(sealed, key=lambda each: int(each["rows"] or 0))
    return Unit(int(best["shard"]), int(best["generation"]), int(best["from"]), int(best["to"]))


def cut_everywhere(address: Address, token: str) -> tuple[int, int]:
    """How many places were cut, in an answer of how many bytes. Nobody writes meanwhile."""
    with Client(Endpoint((address,), token), patience_s=READY_S) as client:
        # So that it stays while it is cut.
        client.lease("put", name="cuts", ttl_ms=600_000, max_age_ms=None, max_bytes=None, block=False, filters=[], start="earliest")
        store, unit = client.hello()["store"], largest_sealed(client)
        whole = read_unit(client, store, unit)
    raw = RawClient(address, token)
    request = {"store": store, "shard": unit.shard, "generation": unit.generation, "from": unit.start, "to": unit.stop, "filters": FILTERS}
    answer = raw.scan({**request, "clients": None})
    if raw.scan({**request, "clients": None}) != answer:
        raise GateFailed(f"{unit}: two answers of other bytes")
    found = places(answer)
    bounds = {"from": {str(unit.shard): unit.start}, "to": {str(unit.shard): unit.stop}}
    planned = raw.ask("PLAN", {**bounds, "filters": FILTERS, "clients": None, "shards": None, "rows_per_unit": 1_000_000})
    raw.close()
    with CuttingProxy(lambda: address) as proxy:
        endpoint = Endpoint((proxy.address,), token)
        with Client(endpoint, patience_s=0.0) as impatient, Client(endpoint, patience_s=READY_S) as patient:
            for place in found:
                impatient.hello()
                proxy.cut_after(place.after)
                try:
                    rows = read_unit(impatient, store, unit)
                except NoReader:
                    pass  # as it has to be
                else:
                    raise GateFailed(f"cut in {place.name}, after {place.after} of {len(answer)} bytes: {rows.count} rows and no error")
                patient.hello()
                proxy.cut_after(place.after)
                if not read_unit(patient, store, unit).same(whole):
                    raise GateFailed(f"cut in {place.name}: other rows when it was asked again")
            of_plan = sorted({0, 1, 4, 5, len(planned) // 2, len(planned) - 1})
            for after in of_plan:
                cut_plan(proxy, impatient, patient, unit, after)
        if proxy.cuts != 2 * (len(found) + len(of_plan)):
            raise GateFailed(f"{proxy.cuts} cuts, {2 * (len(found) + len(of_plan))} were asked for")
    return len(found) + len(of_plan), len(answer)


def cut_plan(proxy: CuttingProxy, impatient: Client, patient: Client, unit: Unit, after: int) -> None:
    """An answer of one frame is cut as well."""

    def planned(client: Client) -> dict[str, Any]:
        return client.plan({unit.shard: unit.start}, {unit.shard: unit.stop}, FILTERS, None, None, 1_000_000)

    impatient.hello()
    proxy.cut_after(after)
    try:
        answer = planned(impatient)
    except NoReader:
        pass  # as it has to be
    else:
        raise GateFailed(f"the answer to PLAN cut after {after} bytes: {answer} and no error")
    patient.hello()
    proxy.cut_after(after)
    if planned(patient)["units"] != planned(impatient)["units"]:
        raise GateFailed(f"the answer to PLAN cut after {after} bytes: another one when it was asked again")


async def live(layout: str, seconds: float, seed: int) -> tuple[Counter[str], str]:
    port = free_port()
    ledger = LakeLedger()
    async with running(chosen(layout, port)) as watched:
        endpoint = Endpoint((("127.0.0.1", port),), token_of(watched))
        publishers = make_publishers(watched.broker.port, ledger, 8, 1, PER_SECOND)
        async with publishing(publishers):
            ranges = await asyncio.to_thread(read_on, endpoint, seconds, seed)
            for publisher in publishers:
                publisher.raise_if_broken()
        missing = [kind for kind in WANTED if not ranges.happened[kind]]
        if missing:
            raise GateFailed(f"{layout}: in {seconds:.0f} s there was no range that was {' or '.join(missing)}: {dict(ranges.happened)}")
        count, size = await asyncio.to_thread(cut_everywhere, ("127.0.0.1", port), endpoint.token)
        oldest_s = ranges.oldest_s
    story = f"{layout}: {ranges.rows} rows, oldest reread after {oldest_s:.0f} s, {count} cuts in an answer of {size} bytes"
    say(f"{story}; {dict(ranges.happened)}")
    return ranges.happened, story


async def run(scale: Scale) -> str:
    logging.getLogger("asyncio").setLevel(logging.ERROR)
    if not (Path(ROOT) / PROPERTIES).is_file():
        raise GateFailed(f"{PROPERTIES} is not there")
    said = await asyncio.to_thread(properties, scale.of(EXAMPLES, QUICK_EXAMPLES))
    say(said)
    happened: Counter[str] = Counter()
    stories = []
    for seed, layout in enumerate(LAYOUTS[1:2] if scale.quick else LAYOUTS):
        found, story = await live(layout, scale.of(SECONDS, QUICK_SECONDS), seed)
        happened += found
        stories.append(story)
    kinds = ", ".join(f"{kind} {count}" for kind, count in sorted(happened.items()))
    return f"{said}; live, {kinds}; {'; '.join(stories)}; every cut was an error"
