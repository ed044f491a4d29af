"""Gate 2 of issue 7 of the plan: what a replay brings is what is stored, and a right that is not there brings none of it.

Publishers write over five generations and more. The broker is stopped, and everything that lies in its store is read with the library, one
message after the other. Then, with the broker up again, generations rolling and others publishing, 200 replays of random filters and times,
of durable sessions and ephemeral ones, some of which lose their connection half way and go on from the position of their last message: each
brings exactly what a selection by hand finds. At last rules come into force that deny the right: before SUBSCRIBE, and in the midst of a
replay.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from pathlib import Path
from random import Random

from shards.logical import open_log
from shards.options import StoreOptions
from tests.broker.replaying import Replayer
from tests.gates.gate import GateFailed, Scale, running, settings
from tests.gates.gate_05_3_access_matrix import put, reload
from tests.gates.past import Ask, Stored, differs, nothing_more, random_ask, replayed, selected, topic_of

LIMIT_S = 1800
N_SHARDS = 2
GENERATIONS = 5
GENERATION_S = 8
WRITERS = 6
ASKS = 200
AT_ONCE = 8
HELD = 5
SEED = 7_2
ALLOWED = 'version = 1\n[[rule]]\nallow = ["all"]\ntopics = ["#"]\n'
DENIED = 'version = 1\n[[rule]]\ndeny = ["replay"]\ntopics = ["past/#"]\n[[rule]]\nallow = ["all"]\ntopics = ["#"]\n'


async def write(port: int, number: int, prefix: str, until: float) -> int:
    """QoS 1 and 2, one after the other."""
    random = Random(f"{SEED}/{prefix}/{number}")
    writer = await Replayer.connect(port, f"writer-{prefix}-{number}", 5, expiry_s=0)
    sent = 0
    while time.monotonic() < until:
        await writer.published(topic_of(random, prefix), f"{prefix}.{number}.{sent}", qos=random.choice((1, 1, 2)))
        sent += 1
        await asyncio.sleep(random.random() * 0.05)
    await writer.close()
    return sent


def everything(data_dir: Path) -> tuple[list[Stored], int]:
    """All messages, and how many generations they lie in."""
    found: list[Stored] = []
    generations = 0
    for shard in range(N_SHARDS):
        with open_log("rocksdb", str(data_dir / "shards" / str(shard)), StoreOptions()) as log:
            generations = max(generations, len(log.generations()))
            for each in log.subscribe(b"past/#"):
                place = (shard, each.position)
                row = (each.topic.decode(), each.payload.decode(), each.publisher.decode(), each.qos, each.published_at_ms, place)
                found.append(Stored(*row))
    return found, generations


async def one(port: int, number: int, ask: Ask, stored: list[Stored]) -> tuple[str, Replayer]:
    wanted = selected(ask, stored)
    name = f"reader-{number}"
    reader = await Replayer.connect(port, name, 5, expiry_s=0 if ask.ephemeral else 3600, receive_max=ask.receive_max)
    reader, found = await replayed(reader, ask, name, port, len(wanted))
    return differs(ask, found, wanted), reader


async def revoked(port: int, take_away: object, stored: list[Stored]) -> str:
    """What came of history behind the revocation."""
    assert callable(take_away)
    readers = [await Replayer.connect(port, f"held-{expiry_s}", 5, expiry_s=expiry_s, receive_max=HELD) for expiry_s in (0, 3600)]
    for reader in readers:
        told = await reader.replay("past/#", replay_from="earliest")
        if told.codes != b"\x01":
            raise GateFailed(f"a replay that is allowed was answered with {told}")
    got = [[await reader.message() for _ in range(HELD)] for reader in readers]
    await asyncio.to_thread(take_away)
    told = await (await Replayer.connect(port, "late", 5, expiry_s=0)).replay("past/#", replay_from="earliest")
    if told.codes != b"\x87":
        raise GateFailed(f"a replay that is denied was answered with {told}")
    live = await Replayer.connect(port, "live", 5, expiry_s=0)
    for reader, messages in zip(readers, got, strict=True):
        await reader.complete(*messages)
    await live.published("past/0/0", "live")
    for reader in readers:
        message = await reader.got()
        if message.payload != "live":
            raise GateFailed(f"{message} came after the right was taken away, {len(stored)} are stored")
        await reader.alive()
        await reader.close()
    return f"none of {len(stored)} messages without the right, nor after it was taken away"


async def run(scale: Scale) -> str:
    random = Random(SEED)
    asks_wanted = scale.of(ASKS)
    with tempfile.TemporaryDirectory(prefix="hf-replay-") as name:
        rules = Path(name) / "rules.toml"
        put(rules, ALLOWED)
        more = {
            "durable_storage.messages.capture": '["past/#"]',
            "durable_storage.messages.generation_length": f"{GENERATION_S}s",
            "access.rules": str(rules),
            "gateway.count": "2",
        }
        async with running(settings(N_SHARDS, **more)) as watched:
            port = (await watched.status()).listeners[0].port
            until = time.monotonic() + GENERATIONS * GENERATION_S
            sent = sum(await asyncio.gather(*(write(port, number, "past", until) for number in range(WRITERS))))
            await asyncio.to_thread(watched.broker.down)
            stored, generations = await asyncio.to_thread(everything, watched.broker.data_dir)
            if len(stored) != sent or generations < GENERATIONS:
                raise GateFailed(f"{len(stored)} messages in {generations} generations are stored, {sent} were acknowledged")
            port = (await watched.up()).listeners[0].port
            beside = asyncio.create_task(write(port, 0, "beside", time.monotonic() + LIMIT_S))
            asks = [random_ask(random, "past", stored) for _ in range(asks_wanted)]
            wrong: list[str] = []
            before: list[tuple[Ask, Replayer]] = []
            for start in range(0, len(asks), AT_ONCE):
                some = asks[start : start + AT_ONCE]
                answers = await asyncio.gather(*(one(port, start + at, ask, stored) for at, ask in enumerate(some)))
                wrong += [sentence for sentence, _ in answers if sentence]
                # While the next ones read, the ones before have ended and get nothing.
                wrong += await nothing_more(before)
                before = [(ask, reader) for ask, (_, reader) in zip(some, answers, strict=True)]
            wrong += await nothing_more(before)
            if wrong:
                raise GateFailed(f"{len(wrong)} of {len(asks)} replays differ, the first: {wrong[0]}")

            def take_away() -> None:
                put(rules, DENIED)
                reload(watched.broker)

            words = await revoked(port, take_away, stored)
            beside.cancel()
            await asyncio.gather(beside, return_exceptions=True)
            arrived = sum(len(selected(ask, stored)) for ask in asks)
    resumed = sum(ask.resumes for ask in asks)
    return (
        f"{len(asks)} replays, {sum(ask.ephemeral for ask in asks)} of ephemeral sessions, {resumed} of them broken off and gone on, "
        f"brought {arrived} messages of {len(stored)} in {generations} generations, each as selected by hand; {words}; "
        f"load average {os.getloadavg()[0]:.1f}"
    )
