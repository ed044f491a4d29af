"""Fills a broker with telemetry for the pipeline's benchmarks: rows of about 190 bytes as stored, in as many generations as wanted.

By the reader's own APPEND, in frames of 4,096 messages: at MQTT's pace a million rows would take longer than all that is measured then.
Devices are spread over the shards by their names, topics have one level that varies, and payloads compress about as well as telemetry does.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from holdfast_spark.client import Client, Unit

DEVICES = 2000
LINES = 20
PAYLOAD_BYTES = 130
PER_FRAME = 4096
_BODIES = 5000
_QOS_1 = 2


@dataclass(frozen=True, slots=True)
class Filled:
    """Units of sealed generations only, and how many rows they have by the reader's count."""

    store: str
    units: tuple[Unit, ...]
    rows: int
    ends: dict[int, int]
    """By shard: where the generation begins that is not sealed yet."""


def _bodies(chance: random.Random) -> list[bytes]:
    """With an empty property list before each."""
    made = []
    for number in range(_BODIES):
        text = b'{"ts":%d,"v":%.3f,"unit":"C","seq":%d,"id":"' % (1_800_000_000_000 + number * 977, chance.random() * 90, number)
        made.append(b"\0" + (text + chance.randbytes(60).hex().encode())[: PAYLOAD_BYTES - 2] + b'"}')
    return made


def frames(rows: int, seed: int = 1) -> Iterator[tuple[bytes, list[bytes], list[bytes], list[bytes]]]:
    """(flags, clients, topics, bodies) of one APPEND after the other."""
    chance = random.Random(seed)
    bodies = _bodies(chance)
    clients = [b"device-%05d" % number for number in range(DEVICES)]
    topics = [b"plant/%d/device-%05d/temperature" % (number % LINES, number) for number in range(DEVICES)]
    at = 0
    while at < rows:
        count = min(PER_FRAME, rows - at)
        chosen = [(at + n) * 7919 % DEVICES for n in range(count)]
        yield bytes((_QOS_1,)) * count, [clients[n] for n in chosen], [topics[n] for n in chosen], chance.choices(bodies, k=count)
        at += count


def fill(client: Client, rows: int, writer: str = "benchmark") -> None:
    """The broker has to want these messages (``durable_storage.messages.capture``). Raises what the client raises."""
    for block, (flags, clients, topics, bodies) in enumerate(frames(rows)):
        client.append(writer, 1, block, flags, clients, topics, bodies)


def sealed(client: Client, rows_per_unit: int = 250_000) -> Filled:
    """What of it is in sealed generations now."""
    cuts = client.cuts()
    start = {int(shard): int(told["earliest"]) for shard, told in cuts["shards"].items()}
    stop = {int(shard): int(told["cut"]) for shard, told in cuts["shards"].items()}
    ends = {
        int(shard): min((int(each["since"]) for each in told["generations"] if each["until"] is None), default=stop[int(shard)])
        for shard, told in cuts["shards"].items()
    }
    plan = client.plan(start, ends, ["#"], None, None, rows_per_unit)
    units = [each for each in plan["units"] if each["sealed"]]
    return Filled(
        str(cuts["store"]),
        tuple(Unit(int(each["shard"]), int(each["generation"]), int(each["from"]), int(each["to"])) for each in units),
        sum(
            int(each["rows"])
            for shard, told in cuts["shards"].items()
            for each in told["generations"]
            if each["until"] is not None and int(each["until"]) <= ends[int(shard)]
        ),
        ends,
    )
