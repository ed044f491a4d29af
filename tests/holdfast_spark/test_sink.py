"""What the sink sends, and that each message is taken once whatever is tried again: tasks, answers, batches, whole queries."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql.types import BinaryType, DataType, IntegerType, StringType, StructField, StructType

from holdfast_spark.client import Client, Endpoint
from holdfast_spark.messages import BLOCK_ROWS, BadMessage
from holdfast_spark.options import OptionError
from holdfast_spark.protocol import Code, Refused
from holdfast_spark.sink import BatchWriter, Sent, Sink, batch_writer, stream_writer
from tests.holdfast_spark.taking import TOKEN, TakingReader

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture
def reader() -> Iterator[TakingReader]:
    with TakingReader() as serving:
        yield serving


def schema(payload: DataType | None = None) -> StructType:
    return StructType([StructField("topic", StringType()), StructField("payload", payload or BinaryType())])


def sink(reader: TakingReader, **options: str) -> Sink:
    return batch_writer({**reader.options, **options}, schema(), False)._sink


def rows(count: int, start: int = 0) -> Iterator[pa.RecordBatch]:
    numbers = range(start, start + count)
    yield pa.record_batch([[f"t/{n % 3}" for n in numbers], [b"%d" % n for n in numbers]], names=["topic", "payload"])


def written(made: Sink, batches: Iterator[pa.RecordBatch], query: str, batch: int, partition: int) -> Sent:
    """By a task that succeeds, and the driver."""
    sent = made.send(batches, query, batch, partition)
    made.finish([None, sent])
    return sent


# ---------------------------------------------------------------------------------------------- options


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({}, "option brokers is missing"),
        ({"brokers": "b"}, "option token is missing"),
        (
            {"brokers": "b", "token": "x", "topicFilter": "#"},
            "option 'topicFilter' is unknown; wanted is topicPrefix or .*docs/pipeline.md",
        ),
        ({"brokers": "b", "token": "x", "topicPrefix": "a/#"}, "option topicPrefix is 'a/#'; wanted is"),
        ({"brokers": "b", "token": "x", "topicPrefix": "$SYS/"}, "option topicPrefix"),
        ({"brokers": "b", "token": "x", "allowRetain": "yes"}, "option allowRetain is 'yes'; wanted is true or false"),
        ({"brokers": "b", "token": "x", "maxRowsPerSecond": "0"}, "option maxRowsPerSecond is '0'; wanted is a whole number from 1"),
        ({"brokers": "b", "token": "x", "replayId": "a/b"}, "option replayId is 'a/b'; wanted is a name"),
        ({"brokers": "b", "token": "x", "batchId": "1"}, "batchId numbers the batches of a replayId"),
        ({"brokers": "b", "token": "x", "replayId": "a", "batchId": "-1"}, "option batchId is '-1'"),
    ],
)
def test_a_wrong_option_is_one_sentence(options: dict[str, str], sentence: str) -> None:
    """The option, what was found, what was wanted."""
    with pytest.raises(OptionError, match=sentence):
        batch_writer(options, schema(), False)


def test_what_a_stream_cannot_be_told_is_refused() -> None:
    """Its checkpoint says who it is; and Spark's own options come with it, in whatever capitals."""
    options = {"brokers": "b", "token": "x", "checkpointLocation": "/c", "queryName": "q"}

    stream_writer(options, schema(), False)
    with pytest.raises(OptionError, match="replayId is for writing a batch"):
        stream_writer(options | {"replayId": "r"}, schema(), False)
    for writer in (batch_writer, stream_writer):
        with pytest.raises(OptionError, match="can only be added"):
            writer({"brokers": "b", "token": "x"}, schema(), True)


def test_columns_that_are_none_are_told_with_the_options() -> None:
    """On the driver, before a task runs."""
    with pytest.raises(OptionError, match="column payload has type int; wanted is binary or string"):
        batch_writer({"brokers": "b", "token": "x"}, schema(IntegerType()), False)


def test_a_batch_without_a_name_has_one_of_its_own() -> None:
    """Two writes of the same rows are two writes; the tries of one task are of the same name, as that travels with the writer."""
    made = [batch_writer({"brokers": "b", "token": "x"}, schema(), False)._replay for _ in range(2)]

    assert made[0] != made[1]
    assert batch_writer({"brokers": "b", "token": "x", "replayId": "r"}, schema(), False)._replay == "r"


# ---------------------------------------------------------------------------------------------- sending


def test_blocks_are_numbered_within_the_batch_and_named_by_query_and_partition(reader: TakingReader) -> None:
    """Each partition is a writer, since tasks run beside each other; its client says whose rows they are."""
    count = 2 * BLOCK_ROWS + 1
    sent = written(sink(reader), rows(count), "q", 7, 3)

    assert [block for block, _ in reader.taken] == [("q/3", 7, 0), ("q/3", 7, 1), ("q/3", 7, 2)]
    assert reader.payloads() == [b"%d" % n for n in range(count)]
    assert {client for _, client, _, _ in reader.rows()} == {b"spark-q"}
    assert (sent.rows, sent.stored, sent.blocks, sent.repeated) == (count, count - 1, 2, 0)


def test_a_task_tried_again_sends_the_same_blocks_and_stores_what_was_missing(reader: TakingReader) -> None:
    """The first try got as far as its second block."""
    count = 3 * BLOCK_ROWS
    broken = sink(reader)

    def fails() -> Iterator[pa.RecordBatch]:
        yield from rows(2 * BLOCK_ROWS + 5)
        raise RuntimeError("the worker died")

    with pytest.raises(RuntimeError, match="the worker died"):
        broken.send(fails(), "q", 0, 0)
    sent = written(broken, rows(count), "q", 0, 0)

    assert reader.payloads() == [b"%d" % n for n in range(count)]
    assert sent.repeated == len(reader.repeated) == 2


@pytest.mark.parametrize("upto", [1, BLOCK_ROWS - 1, BLOCK_ROWS, BLOCK_ROWS + 1, 2 * BLOCK_ROWS])
def test_an_input_that_broke_off_without_a_word_loses_nothing(reader: TakingReader, upto: int) -> None:
    """So it does where what a task reads from fails. Spark throws away what the task said, and tries it again with all rows."""
    count = 2 * BLOCK_ROWS + 7
    sink(reader).send(rows(upto), "q", 0, 0)
    written(sink(reader), rows(count), "q", 0, 0)

    assert reader.payloads() == [b"%d" % n for n in range(count)]


def test_a_lost_answer_is_asked_for_again(reader: TakingReader) -> None:
    """The block was taken and the connection broke: nobody knows, so it is sent again, and known."""
    reader.lose_answers = 2
    written(sink(reader), rows(BLOCK_ROWS + 1), "q", 0, 0)

    assert reader.payloads() == [b"%d" % n for n in range(BLOCK_ROWS + 1)]
    assert len(reader.repeated) == 2


def test_a_later_batch_of_the_query_is_new(reader: TakingReader) -> None:
    """Block numbers begin again, and the batch is above the one before; the batch before that is known though it comes late."""
    for batch in (0, 1, 0):
        written(sink(reader), rows(2, start=10 * batch), "q", batch, 0)

    assert reader.payloads() == [b"0", b"1", b"10", b"11"]
    assert reader.repeated == [("q/0", 0, 0)]


def test_a_partition_without_rows_sends_nothing(reader: TakingReader) -> None:
    """Nor is there a connection: the reader has only so many."""
    refused = Endpoint((("127.0.0.1", 1),), TOKEN)

    sent = Sink(refused, {"topic": 0, "payload": 1}, b"", False, None).send(iter(()), "q", 0, 0)

    assert (sent.rows, sent.blocks) == (0, 0)


def test_a_bad_row_ends_the_task_and_the_rows_of_its_batch_stay_out(reader: TakingReader) -> None:
    """Nothing of the Arrow batch that it came in was on its way."""
    bad = pa.record_batch([["t", "a/#"], [b"", b""]], names=["topic", "payload"])

    with pytest.raises(BadMessage, match="'a/#' has a wildcard"):
        sink(reader).send(iter([bad]), "q", 0, 0)
    assert reader.taken == []


def test_a_refusal_of_the_broker_comes_through(reader: TakingReader) -> None:
    """A quota that is reached is said in the broker's own sentence, and Spark may try again."""
    reader.refusals.append(Refused(Code.FULL, "the quota of 1 GiB is reached"))

    with pytest.raises(Refused, match="the quota of 1 GiB is reached"):
        written(sink(reader), rows(1), "q", 0, 0)


def test_the_rate_is_kept_over_the_whole_task(reader: TakingReader) -> None:
    """A block waits until those before it are due; time that sending took is not waited for again."""
    now, slept = [0.0], []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    def connect(endpoint: Endpoint) -> Client:
        return Client(endpoint, clock=lambda: now[0])

    def slow() -> Iterator[pa.RecordBatch]:
        yield from rows(2 * BLOCK_ROWS)
        now[0] += 3.0
        yield from rows(2 * BLOCK_ROWS)

    sink(reader, maxRowsPerSecond=str(BLOCK_ROWS // 2)).send(slow(), "q", 0, 0, connect=connect, clock=lambda: now[0], sleep=sleep)

    # Due at 0, 2, 4 and 6 s. That the second is complete shows when the third begins, at 3 s: it is late already.
    assert slept == [1.0, 2.0]
    assert now[0] == 6.0


# ---------------------------------------------------------------------------------------------- in Spark

in_spark = [pytest.mark.slow, pytest.mark.needs("spark"), pytest.mark.timeout(600)]


def numbered(spark: SparkSession, count: int, partitions: int) -> DataFrame:
    """Rows t/<n mod 7>, <n>, in the same partitions and order every time."""
    return spark.range(0, count, 1, partitions).selectExpr("concat('t/', id % 7) as topic", "cast(cast(id as string) as binary) as payload")


class TestInSpark:
    pytestmark = in_spark

    def test_a_frame_becomes_messages_each_of_them_once_though_tasks_fail(self, spark: SparkSession, reader: TakingReader) -> None:
        """Every task fails at its third block and again at its fourth, and is tried again by Spark; some answers are lost as well."""
        reader.lose_answers = 2
        reader.refuse_once = {2, 3}
        count = 10 * BLOCK_ROWS

        numbered(spark, count, 2).write.format("holdfast").options(**reader.options, topicPrefix="x/").mode("append").save()

        assert Counter(reader.payloads()) == Counter(b"%d" % n for n in range(count))
        assert all(topic == b"x/t/%d" % (int(body[1:]) % 7) for _, _, topic, body in reader.rows())
        again = Counter(block[2] for block in reader.repeated)
        # Two tries of two tasks; what was lost may have been any of their first blocks.
        assert again[0] >= 4 and again[1] >= 4 and again[2] >= 2 and again[4] == 0

    def test_rows_that_a_failed_task_had_not_yet_given_are_not_missed(
        self, spark: SparkSession, reader: TakingReader, tmp_path: Path
    ) -> None:
        """What the sink reads from is Python too, and fails within a block at the first try of each task."""
        count, marks = 6 * BLOCK_ROWS, str(tmp_path)
        taken = spark.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch")

        def failing_once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            task, given = TaskContext.get(), 0
            assert task is not None
            for batch in batches:
                if task.attemptNumber() == 0 and given > BLOCK_ROWS:
                    Path(marks, str(task.partitionId())).touch()
                    time.sleep(1)
                    raise RuntimeError("failed on purpose")
                yield batch
                given += batch.num_rows

        spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "500")
        try:
            # Long rows, or those of the first try are in buffers still when it fails.
            frame = spark.range(0, count, 1, 2).selectExpr("'t' as topic", "concat(id, ':', repeat('x', 300)) as payload")
            frame.mapInArrow(failing_once, frame.schema).write.format("holdfast").options(**reader.options).mode("append").save()
        finally:
            spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(taken))

        assert sorted(path.name for path in tmp_path.iterdir()) == ["0", "1"]
        assert Counter(int(payload.split(b":")[0]) for payload in reader.payloads()) == Counter(range(count))

    def test_a_named_replay_run_again_writes_nothing_again(self, spark: SparkSession, reader: TakingReader) -> None:
        """And one of another name does."""
        frame = numbered(spark, 100, 2)
        for replay in ("monday", "monday", "tuesday"):
            frame.write.format("holdfast").options(**reader.options, replayId=replay).mode("append").save()

        assert Counter(reader.payloads()) == Counter({b"%d" % n: 2 for n in range(100)})
        assert {client for _, client, _, _ in reader.rows()} == {b"spark-monday", b"spark-tuesday"}

    def test_a_stream_started_again_from_its_checkpoint_writes_each_row_once(
        self, spark: SparkSession, reader: TakingReader, tmp_path: Path
    ) -> None:
        """Its last batch was written and not yet entered as committed: Spark does it again under the same number."""
        checkpoint, files = tmp_path / "checkpoint", tmp_path / "files"

        def run() -> None:
            stream = spark.readStream.schema("topic string, payload binary").option("maxFilesPerTrigger", 1).parquet(str(files))
            query = stream.writeStream.format("holdfast").options(**reader.options, checkpointLocation=str(checkpoint))
            query.trigger(availableNow=True).start().awaitTermination()

        numbered(spark, 100, 2).repartition(2).write.parquet(str(files))
        run()
        before = reader.payloads()
        last = max((checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
        last.unlink()
        (checkpoint / "commits" / f".{last.name}.crc").unlink(missing_ok=True)
        run()

        assert len({block[1] for block, _ in reader.taken}) == 2, "one batch a file"
        assert reader.payloads() == before
        assert Counter(before) == Counter(b"%d" % n for n in range(100))
        assert reader.repeated

    def test_what_spark_says_of_a_wrong_token_is_in_the_message(self, spark: SparkSession, reader: TakingReader) -> None:
        """However deep Spark wraps it."""
        with pytest.raises(Exception, match="the token is not known here"):
            numbered(spark, 1, 1).write.format("holdfast").options(brokers=reader.brokers, token="wrong").mode("append").save()


def test_writers_travel_to_tasks(reader: TakingReader) -> None:
    """Spark pickles them; what they hold must be values."""
    import pyspark.cloudpickle as cloudpickle

    made = batch_writer({**reader.options, "replayId": "r"}, schema(), False)
    again = cloudpickle.loads(cloudpickle.dumps(made))

    assert isinstance(again, BatchWriter)
    assert again._sink == made._sink
