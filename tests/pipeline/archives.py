"""Archives in tests: a store with some generations, an archive run here or in a process that dies, and what the archive holds."""

from __future__ import annotations

import multiprocessing
import os
import random
import resource
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from holdfast_spark.client import Client, Endpoint, parse_brokers
from pipeline import archive, archive_compact
from pipeline.archive import USUAL, Done, Options
from pipeline.archived import ArchiveError, State
from pipeline.manifest import Manifest
from tests.actors.served import Said, Served, said, served

TOPICS = (b"plant/1/temp", b"plant/2/temp", b"plant/2/door", b"$app/x", b"odd/\xc3\xa9//z")
Key = tuple[bytes, bytes, bytes]
"""(client, topic, payload): of messages that tests publish, no two are the same."""


def messages(count: int, seed: int) -> list[Said]:
    rng = random.Random(seed)
    payloads = [b"%d-%d" % (seed, n) + bytes(rng.randrange(40)) for n in range(count)]
    return [said(rng.choice(TOPICS), payload, b"client-%d" % rng.randrange(7)) for payload in payloads]


def key_of(message: Said) -> Key:
    return message.client, message.topic, message.payload


@contextmanager
def store(*, generations: int = 3, per_generation: int = 60, n_shards: int = 2, **how: Any) -> Iterator[tuple[Served, list[Said]]]:
    """A reader over sealed generations and a current one, each with so many messages; and all messages."""
    with served(n_shards=n_shards, **how) as broker:
        everything: list[Said] = []
        for number in range(generations + 1):
            if number:
                broker.roll()
            some = messages(per_generation, number)
            broker.publish(*some)
            everything += some
        yield broker, everything


def endpoint(broker: Served) -> Endpoint:
    return Endpoint(parse_brokers(broker.address), broker.token)


def archived(broker: Served, root: Path, options: Options = USUAL, **how: Any) -> Done:
    """Run in this process, without Spark."""
    return archive.run(None, endpoint(broker), root, options, **how)


def state_of(root: Path) -> State:
    return Manifest(root).load()


def rows_in(root: Path) -> list[dict[str, Any]]:
    """All rows of all files that the manifest names."""
    found: list[dict[str, Any]] = []
    for path in state_of(root).files:
        found += pq.ParquetFile(root / path).read().to_pylist()
    return found


def keys_in(root: Path) -> Counter[Key]:
    return Counter((row["client_id"].encode(), row["topic"].encode(), row["payload"]) for row in rows_in(root))


def places_in(root: Path) -> set[tuple[int, int]]:
    """(shard, offset) of all rows."""
    return {(row["shard"], row["offset"]) for row in rows_in(root)}


def keys_of(said_: list[Said]) -> Counter[Key]:
    return Counter(map(key_of, said_))


def lease(broker: Served, name: str = "archive") -> dict[int, int] | None:
    """Up to where the lease is acknowledged."""
    with Client(endpoint(broker)) as client:
        for each in client.lease("list"):
            if each["name"] == name:
                return {int(shard): cut for shard, cut in each["to"].items()}
    return None


# ---------------------------------------------------------------------------------------------- processes that die

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["tests.pipeline.archives", "deltalake", "pandas"])
DIED = 77


def dying(where: Endpoint, root: Path, options: Options, at: int, what: str = "archive") -> list[str]:
    """Archive in a process that ends, without a word, before its step number ``at``. The steps that it got to; all when it had no more."""
    ours, theirs = _FORKS.Pipe(duplex=False)
    process = _FORKS.Process(target=_die, args=(where, root, options, at, what, theirs))
    process.start()
    theirs.close()
    steps: list[str] = []
    try:
        while True:
            steps.append(ours.recv())
    except EOFError:
        pass
    process.join()
    assert process.exitcode in (0, DIED), f"the process ended with {process.exitcode} after {steps}"
    assert (process.exitcode == DIED) == (len(steps) == at + 1)
    return steps


def _die(where: Endpoint, root: Path, options: Options, at: int, what: str, steps: Any) -> None:
    taken = 0

    def step(name: str) -> None:
        nonlocal taken
        steps.send(name)
        if taken == at:
            os._exit(DIED)
        taken += 1

    if what == "archive":
        archive.run(None, where, root, options, step=step)
    else:
        archive_compact.compact(root, step=step)


def with_room_for(file_bytes: int, where: Endpoint, root: Path, options: Options) -> str | None:
    """Archive in a process that can write no file beyond this; what it said when it stopped."""
    ours, theirs = _FORKS.Pipe(duplex=False)
    process = _FORKS.Process(target=_cramped, args=(file_bytes, where, root, options, theirs))
    process.start()
    theirs.close()
    said_: str | None = ours.recv()
    process.join()
    return said_


def _cramped(file_bytes: int, where: Endpoint, root: Path, options: Options, says: Any) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes, file_bytes))
    try:
        archive.run(None, where, root, options)
    except ArchiveError as error:
        says.send(str(error))
    else:
        says.send(None)
