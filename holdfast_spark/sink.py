"""`format("holdfast")` as a sink: the rows of a DataFrame become messages, each of them once (docs/reader.md, docs/pipeline.md).

    frame.select("topic", "payload").write.format("holdfast").mode("append").save()

Each task is a writer of its own, named by the query and its partition, and numbers its blocks within the batch. The shard keeps the last
number in the record of the messages, so a task, a batch or a query that is tried again stores nothing twice. The last block of a task is
sent by the driver, when Spark says that the task has succeeded: where what a task reads from fails, its input just ends, and a block of
fewer rows than it will have at the next try would be taken for that one. That nothing is stored twice holds when the input
is repeatable: the same partitions with the same rows in the same order. Kafka, files and this source are; `rand()`, or a shuffle without
a sort within partitions behind it, is not.

A stream is known by its checkpoint. A batch is known by option replayId; without one it has a random name, so its tasks may be tried
again as often as Spark likes, and who runs it a second time writes everything a second time.
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from holdfast_spark.client import Client, Endpoint
from holdfast_spark.messages import BadMessage, Outgoing, Rules, blocks, check_input
from holdfast_spark.options import OPTIONS as READING
from holdfast_spark.options import OptionError, endpoint_of, read_values

QUERY: Final = "sql.streaming.queryId"
BATCH: Final = "streaming.sql.batchId"
"""Properties that Spark gives to the tasks of a stream. The first is kept in its checkpoint."""

_count, _flag = READING["maxRowsPerTrigger"], READING["tls"]


def _name(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,50}", value):
        raise ValueError("a name of up to 50 letters, digits, dots, underlines and hyphens")
    return value


def _number(value: str) -> int:
    if not re.fullmatch(r"\d{1,18}", value):
        raise ValueError("a whole number from 0")
    return int(value)


def _prefix(value: str) -> bytes:
    if re.search(r"[+#\0]", value) or value.startswith("$"):
        raise ValueError("the beginning of topic names, without wildcards and $")
    return value.encode("utf-8")


OPTIONS: Final[Mapping[str, Callable[[str], Any]]] = {
    **{name: READING[name] for name in ("brokers", "token", "tokenFile", "tls", "caFile")},
    "topicPrefix": _prefix,
    "allowRetain": _flag,
    "maxRowsPerSecond": _count,
    "replayId": _name,
    "batchId": _number,
}
"""Name -> how its text is read."""
_OF_BATCHES: Final = ("replayId", "batchId")
_OF_SPARK: Final = frozenset({"checkpointlocation", "queryname"})
"""Spark hands on the options of a stream that it has taken itself."""


@dataclass(frozen=True, slots=True)
class Sink:
    """What tasks need; it travels with them."""

    endpoint: Endpoint
    where: Mapping[str, int]
    topic_prefix: bytes
    allow_retain: bool
    rows_per_s: int | None

    def send(
        self,
        batches: Iterator[pa.RecordBatch],
        query: str,
        batch: int,
        partition: int,
        *,
        connect: Callable[[Endpoint], Client] | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> Sent:
        """All blocks but the last, which is given back: see above."""
        rules = Rules(f"spark-{query}".encode(), self.topic_prefix, self.allow_retain)
        rows = stored = repeated = 0
        last: Numbered | None = None
        began = clock()
        with (connect or _connect)(self.endpoint) as client:
            for number, block in enumerate(blocks(batches, self.where, rules)):
                if self.rows_per_s is not None and (early := began + rows / self.rows_per_s - clock()) > 0:
                    sleep(early)
                rows += len(block.flags)
                last = Numbered(f"{query}/{partition}", batch, number, block)
                if block.complete:
                    answer = last.sent(client)
                    stored += int(answer["stored"])
                    repeated += bool(answer["repeated"])
        return Sent(rows, stored, 0 if last is None else last.number, repeated, last)

    def finish(self, messages: Iterable[WriterCommitMessage | None]) -> None:
        """The last blocks of tasks that have succeeded."""
        with _connect(self.endpoint) as client:
            for each in messages:
                if isinstance(each, Sent) and each.last is not None:
                    each.last.sent(client)


@dataclass(frozen=True, slots=True)
class Numbered:
    """A block and by what the shards know it."""

    writer: str
    batch: int
    number: int
    block: Outgoing

    def sent(self, client: Client) -> dict[str, Any]:
        block = self.block
        return client.append(self.writer, self.batch, self.number, bytes(block.flags), block.clients, block.topics, block.bodies)


@dataclass(frozen=True, slots=True)
class Sent(WriterCommitMessage):
    """What a task has sent: blocks but for the last, which is here. rows: with those of the last; stored: how many messages somebody waits
    for; repeated: blocks that the broker had already."""

    rows: int
    stored: int
    blocks: int
    repeated: int
    last: Numbered | None


class BatchWriter(DataSourceArrowWriter):
    def __init__(self, sink: Sink, replay: str, batch: int) -> None:
        self._sink = sink
        self._replay = replay
        self._batch = batch

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Sent:
        return self._sink.send(iterator, self._replay, self._batch, _task().partitionId())

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._sink.finish(messages)


class StreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Sent:
        task = _task()
        query, batch = task.getLocalProperty(QUERY), task.getLocalProperty(BATCH)
        if query is None or batch is None:
            raise RuntimeError(f"Spark does not say which query and batch this is: {QUERY} is {query}, {BATCH} is {batch}")
        return self._sink.send(iterator, query, int(batch), task.partitionId())

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self._sink.finish(messages)


def batch_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> BatchWriter:
    if overwrite:
        raise OptionError('mode is overwrite, and messages can only be added; wanted is mode("append")')
    found = read_values(options, OPTIONS)
    if "batchId" in found and "replayId" not in found:
        raise OptionError("option batchId numbers the batches of a replayId, and that is not given")
    # Made once, on the driver: all tasks and all their tries have the same.
    replay = found.get("replayId") or f"once-{secrets.token_hex(8)}"
    return BatchWriter(_sink(found, schema), replay, found.get("batchId", 0))


def stream_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> StreamWriter:
    if overwrite:
        raise OptionError('output mode is complete, and messages can only be added; wanted is outputMode("append") or "update"')
    found = read_values({name: text for name, text in options.items() if name.lower() not in _OF_SPARK}, OPTIONS)
    for name in _OF_BATCHES:
        if name in found:
            raise OptionError(f"option {name} is for writing a batch; a stream is known by its checkpoint")
    return StreamWriter(_sink(found, schema))


def _sink(found: Mapping[str, Any], schema: StructType) -> Sink:
    try:
        where = check_input([(each.name, each.dataType.simpleString()) for each in schema.fields])
    except BadMessage as error:
        raise OptionError(str(error)) from None
    return Sink(
        endpoint=endpoint_of(found),
        where=where,
        topic_prefix=found.get("topicPrefix", b""),
        allow_retain=found.get("allowRetain", False),
        rows_per_s=found.get("maxRowsPerSecond"),
    )


def _task() -> TaskContext:
    task = TaskContext.get()
    assert task is not None, "writing happens in tasks"
    return task


def _connect(endpoint: Endpoint) -> Client:
    return Client(endpoint, who="spark sink")
