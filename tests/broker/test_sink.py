"""Rows of a DataFrame reach an MQTT subscriber once each, though tasks fail mid-way and the reader is killed."""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from actors.reader.demand import demand
from tests.actors.hand import Hand
from tests.broker import wire
from tests.broker.running import QUIET_RAY, Options, RunningBroker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = 6000
PARTITIONS = 2
FAIL_BEHIND = 2000
"""Rows of a partition: more than one block of the sink."""
WAIT_S = 120.0

pytestmark = [
    pytest.mark.slow,
    pytest.mark.needs("spark"),
    pytest.mark.timeout(600),
    pytest.mark.parametrize("broker", [Options({**QUIET_RAY, "pipeline.listen": "127.0.0.1:0"})], indirect=True, ids=["reader"]),
]


def failing_once(frame: DataFrame, marks: Path) -> DataFrame:
    """The same rows; but the first try of each partition fails mid-way, and not before a message of it has reached the subscriber."""
    directory, behind, wait_s = str(marks), FAIL_BEHIND, WAIT_S

    def pass_on(batches: Iterator[Any]) -> Iterator[Any]:
        from pyspark import TaskContext

        task = TaskContext.get()
        assert task is not None
        partition, rows, until = task.partitionId(), 0, time.monotonic() + wait_s
        for batch in batches:
            yield batch
            rows += batch.num_rows
            if task.attemptNumber() == 0 and rows > behind:
                while not os.path.exists(os.path.join(directory, f"seen-{partition}")):
                    if time.monotonic() > until:
                        raise RuntimeError("no message of this partition has reached the subscriber")
                    time.sleep(0.05)
                Path(directory, f"failed-{partition}").touch()
                raise RuntimeError("failed on purpose")

    return frame.mapInArrow(pass_on, frame.schema)


async def received(subscriber: Hand, count: int, marks: Path) -> list[tuple[str, int]]:
    """(topic, number) of so many messages; says by a mark of which partitions some have come."""
    found: list[tuple[str, int]] = []
    until = time.monotonic() + 2 * WAIT_S
    while len(found) < count:
        assert time.monotonic() < until, f"{len(found)} of {count} messages came: {Counter(topic for topic, _ in found)}"
        try:
            async with asyncio.timeout(10):
                packet = await subscriber.packet()
        except TimeoutError:
            # Spark takes its time; the broker must not take us for gone.
            subscriber.send(wire.PINGREQ)
            continue
        if packet.kind == wire.PINGRESP:
            continue
        message = wire.read_publish(5, packet.flags, packet.body)
        subscriber.acknowledge(wire.PUBACK, message.packet_id)
        found.append((message.topic, int(message.payload.split(b":")[0])))
        (marks / f"seen-{message.topic.rpartition('/')[2]}").touch()
    return found


def kill_once(broker: RunningBroker, marks: Path) -> None:
    """The reader, as soon as the first task has failed: others are being sent."""
    until = time.monotonic() + 2 * WAIT_S
    while not any(marks.glob("failed-*")):
        assert time.monotonic() < until, "no task has failed"
        time.sleep(0.05)
    broker.kill(broker.status().pids("reader")[0])


async def test_a_subscriber_gets_each_row_once_though_tasks_fail(broker: RunningBroker, spark: SparkSession, tmp_path: Path) -> None:
    """Each task is tried twice, its first blocks are sent twice; in the order of the rows, and the same replay once more is nothing."""
    address = await asyncio.to_thread(demand, broker.data_dir)
    options = {"brokers": str(address), "tokenFile": str(broker.data_dir / "pipeline.token"), "replayId": "drill", "topicPrefix": "replay/"}
    # Small batches, so that what is yielded is on its way before the task fails.
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "500")
    numbered = spark.range(0, ROWS, 1, PARTITIONS).selectExpr(
        f"cast(id div {ROWS // PARTITIONS} as string) as topic", "concat(id, ':', repeat('x', 300)) as payload"
    )
    subscriber = await Hand.connect(broker.port, "subscriber", 5)
    await subscriber.subscribe("replay/#", 1)

    def write(frame: DataFrame) -> None:
        # Spark looks for a data source in the session of the thread. This thread is new, and has one by making a frame.
        spark.createDataFrame([], "nothing int")
        frame.write.format("holdfast").options(**options).mode("append").save()

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(asyncio.to_thread(write, failing_once(numbered, tmp_path)))
        tasks.create_task(asyncio.to_thread(kill_once, broker, tmp_path))
        all_of_it = tasks.create_task(received(subscriber, ROWS, tmp_path))
    found = all_of_it.result()
    await asyncio.to_thread(write, numbered)

    assert sorted(path.name for path in tmp_path.glob("failed-*")) == [f"failed-{number}" for number in range(PARTITIONS)]
    for number in range(PARTITIONS):
        rows = range(number * ROWS // PARTITIONS, (number + 1) * ROWS // PARTITIONS)
        assert [row for topic, row in found if topic == f"replay/{number}"] == list(rows)
    await subscriber.alive()
    await subscriber.close()
