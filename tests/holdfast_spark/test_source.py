"""`format("holdfast")` in one real Spark session, over a reader of a store in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from holdfast_spark.schema import FROM_PROPERTIES, TYPES
from tests.holdfast_spark.fake_reader import TOKEN, FakeReader, Generation, StoreInMemory
from tests.holdfast_spark.plain import Message

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.needs("spark"), pytest.mark.timeout(600)]

AT_MS = 1_700_000_000_000


def message(number: int, *, topic: str | None = None, client: str | None = None) -> Message:
    return Message(
        1 + number % 3,
        1 + 10 * number,
        topic or f"plant/{number % 3}/temp",
        client or f"dev-{number % 2}",
        b"%d" % number,
        qos=number % 3,
        retain=number % 2 == 0,
        at_ms=AT_MS + 1000 * number,
        properties=((0x26, ("n", str(number))), (0x26, ("n", "again"))) if number % 4 == 0 else (),
    )


def two_shards(count: int = 40) -> StoreInMemory:
    """Half of the messages in each of two shards; the first of which has rolled once."""
    store = StoreInMemory({0: {1: Generation(0)}, 1: {1: Generation(0)}}, cuts={0: 0, 1: 0})
    store.put(0, *[message(number) for number in range(0, count // 2, 2)])
    store.roll(0)
    store.put(0, *[message(number) for number in range(count // 2, count, 2)])
    store.put(1, *[message(number) for number in range(1, count, 2)])
    return store


@pytest.fixture
def reader() -> Iterator[FakeReader]:
    with FakeReader(two_shards()) as served:
        yield served


def load(spark: SparkSession, reader: FakeReader, **options: str) -> DataFrame:
    given_ = {"brokers": reader.brokers, "token": TOKEN, **options}
    return spark.read.format("holdfast").options(**given_).load()


def numbers(frame: DataFrame) -> list[int]:
    return sorted(int(row[0]) for row in frame.select("payload").collect())


def test_a_batch_has_every_row_and_column(spark: SparkSession, reader: FakeReader) -> None:
    """All values of all columns, as a plain decoder has them."""
    frame = load(spark, reader)
    assert [(each.name, each.dataType.simpleString()) for each in frame.schema.fields] == list(TYPES.items())
    assert {each.name for each in frame.schema.fields if each.nullable} == FROM_PROPERTIES
    rows = [row.asDict(recursive=True) for row in frame.collect()]
    expected = []
    for shard, generations in reader.store.shards.items():
        for number, generation in generations.items():
            for each in generation.messages:
                row = each.row(shard, number, 2)
                # Spark gives times in the zone of this process, without saying so.
                row["ts"] = row["ts"].astimezone().replace(tzinfo=None)
                expected.append(row)
    by_place = lambda row: (row["shard"], row["offset"])  # noqa: E731
    assert sorted(
        [{**row, "payload": bytes(row["payload"]), "message_id": bytes(row["message_id"])} for row in rows], key=by_place
    ) == sorted(expected, key=by_place)


def test_columns_by_option_and_by_schema(spark: SparkSession, reader: FakeReader) -> None:
    """Only what is asked for is made; a schema of other types is one sentence."""
    assert load(spark, reader, columns="offset,topic").columns == ["offset", "topic"]
    found = spark.read.format("holdfast").schema("payload binary, ts timestamp").options(brokers=reader.brokers, token=TOKEN).load()
    assert numbers(found) == list(range(40))
    wrong = spark.read.format("holdfast").schema("qos int").options(brokers=reader.brokers, token=TOKEN).load()
    with pytest.raises(Exception, match="column qos has type int in the schema that was given; here it is tinyint"):
        wrong.collect()


def test_sql_reads_it_too(spark: SparkSession, reader: FakeReader) -> None:
    """`create temporary view ... using holdfast`."""
    spark.sql(f"create or replace temporary view v using holdfast options (brokers '{reader.brokers}', token '{TOKEN}')")
    assert spark.sql("select count(*) n from v where qos = 1").collect()[0].n == len([n for n in range(40) if n % 3 == 1])


def test_filters_that_are_pushed_down_spare_rows_and_change_none(spark: SparkSession, reader: FakeReader) -> None:
    """With the option, the reader is asked for less, and the answers are those of Spark's own filters."""
    assert spark.conf.get("spark.sql.python.filterPushdown.enabled") == "true"

    def found(condition: str) -> list[int]:
        reader.asked.clear()
        return numbers(load(spark, reader, pushdown="true").where(condition))

    assert found("topic = 'plant/1/temp' and client_id = 'dev-0'") == [n for n in range(40) if n % 3 == 1 and n % 2 == 0]
    scan = next(request for request in reader.asked if request["verb"] == "SCAN")
    assert (scan["filters"], scan["clients"]) == (["plant/1/temp"], ["dev-0"])
    low = datetime.fromtimestamp(AT_MS / 1000, UTC) + timedelta(seconds=10)
    high = low + timedelta(seconds=7)
    assert found(f"ts >= timestamp'{low:%Y-%m-%d %H:%M:%S}Z' and ts < timestamp'{high:%Y-%m-%d %H:%M:%S}Z'") == list(range(10, 17))
    assert "FIND" in reader.verbs()
    assert found("offset between 101 and 141 and shard = 1") == [11, 13]
    assert [request["from"] for request in reader.asked if request["verb"] == "PLAN"] == [{"1": 101}]
    assert found("topic in ('plant/0/temp', 'none') or qos = 1") == [n for n in range(40) if n % 3 != 2]
    assert found("topic = 'plant/+/temp'") == []


def test_one_frame_may_be_used_with_many_filters(spark: SparkSession, reader: FakeReader) -> None:
    """As it is by default. (Spark 4.3 would use a reader narrowed by one filter for the others too.)"""
    frame = load(spark, reader)
    assert numbers(frame.where("topic = 'plant/1/temp'")) == [n for n in range(40) if n % 3 == 1]
    assert numbers(frame) == list(range(40))
    assert numbers(frame.where("topic = 'plant/1/temp'").union(frame.where("qos = 2"))) == [n for n in range(40) if n % 3 != 0]
    assert {tuple(request["filters"]) for request in reader.asked if request["verb"] == "SCAN"} == {("#",)}


def test_options_narrow_what_is_read(spark: SparkSession, reader: FakeReader) -> None:
    """Topics, clients, shards, times."""
    assert numbers(load(spark, reader, topicFilter="plant/0/#,plant/2/+")) == [n for n in range(40) if n % 3 != 1]
    assert numbers(load(spark, reader, clientIds="dev-1")) == list(range(1, 40, 2))
    assert numbers(load(spark, reader, shards="1")) == list(range(1, 40, 2))
    begin, end = AT_MS + 5000, AT_MS + 12_000
    assert numbers(load(spark, reader, startingTimestamp=str(begin), endingTimestamp=str(end))) == list(range(5, 12))


def test_times_are_those_of_the_wall_clock(spark: SparkSession, reader: FakeReader) -> None:
    """A clock that was set is shown as it was, and asked for so."""
    reader.store.wall = [[151, 3_600_000]]
    begin = AT_MS + 3_600_000
    assert numbers(load(spark, reader, startingTimestamp=str(begin))) == list(range(15, 40))
    assert numbers(load(spark, reader, endingTimestamp=str(begin))) == list(range(15))


def test_two_ranges_that_meet_are_the_whole(spark: SparkSession, reader: FakeReader) -> None:
    """[a, b) and [b, c) have each row of [a, c) once, wherever b is."""
    whole = Counter(numbers(load(spark, reader)))
    for first, second in ((0, 0), (51, 232), (200, 41), (10_000, 10_000)):
        cuts = {shard: min(cut, reader.store.cuts[shard]) for shard, cut in ((0, first), (1, second))}
        middle = f'{{"s":{{"0":{cuts[0]},"1":{cuts[1]}}},"store":"site-a:2","v":1}}'
        halves = Counter(numbers(load(spark, reader, endingOffsets=middle))) + Counter(numbers(load(spark, reader, startingOffsets=middle)))
        assert halves == whole, middle


def test_nothing_to_read_is_an_empty_frame(spark: SparkSession, reader: FakeReader) -> None:
    """Without a partition Spark makes one of its own, with nothing in it."""
    assert load(spark, reader, startingOffsets="latest").count() == 0
    assert load(spark, reader, topicFilter="nothing/here").count() == 0


def test_partitions_are_as_small_as_asked(spark: SparkSession, reader: FakeReader) -> None:
    """By rows, and by number; and small units go together."""
    assert load(spark, reader, maxRowsPerPartition="5").rdd.getNumPartitions() == 8
    assert load(spark, reader).rdd.getNumPartitions() == 2
    assert load(spark, reader, minPartitions="4").rdd.getNumPartitions() >= 4
    assert numbers(load(spark, reader, maxRowsPerPartition="3")) == list(range(40))


def test_a_reader_that_is_away_for_a_moment_costs_no_query(spark: SparkSession, reader: FakeReader) -> None:
    """Planning and reading wait for it, and what was cut goes on."""
    from holdfast_spark.protocol import Refused

    reader.refusals = [(verb, Refused("AWAY", "later")) for verb in ("CUTS", "PLAN", "SCAN", "SCAN")]
    reader.cuts_after = [0, 150, 333]
    assert numbers(load(spark, reader)) == list(range(40))


def sentence_of(error: pytest.ExceptionInfo[Exception], wanted: str) -> None:
    assert wanted in str(error.value), str(error.value)[-2000:]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"token": "wrong"}, "the token is not known (TOKEN)"),
        ({"maxRowsPerTriger": "5"}, "option 'maxrowspertriger' is unknown; wanted is maxRowsPerTrigger"),
        ({"maxRowsPerTrigger": "5"}, "option maxRowsPerTrigger is for stream reading"),
        ({"topicFilter": "a/#/b"}, "option topicFilter is 'a/#/b'; wanted is topic filters such as"),
        (
            {"startingOffsets": '{"s":{"0":1,"1":1},"store":"site-b:1","v":1}'},
            "the offset was made by store site-b:1, and the reader serves site-a:2",
        ),
        ({"startingOffsets": '{"s":{"0":1,"1":999999},"store":"site-a:2","v":1}'}, "startingOffsets is 999999 in shard 1"),
    ],
)
def test_what_is_wrong_is_one_sentence(spark: SparkSession, reader: FakeReader, options: dict[str, str], sentence: str) -> None:
    """Found, and wanted."""
    with pytest.raises(Exception) as error:  # which class Spark makes of it is Spark's business
        load(spark, reader, **options).collect()
    sentence_of(error, sentence)


def test_what_is_gone_is_an_error_with_the_exact_gap_when_it_was_asked_for(spark: SparkSession, reader: FakeReader) -> None:
    """From an offset: an error, or everything else with failOnDataLoss=false. From the earliest nothing that is gone was promised."""
    offset = '{"s":{"0":0,"1":0},"store":"site-a:2","v":1}'
    reader.store.drop(0, 1)
    with pytest.raises(Exception) as error:
        load(spark, reader, startingOffsets=offset).collect()
    sentence_of(error, "shard 0, generation 1 (class default), positions 0 to 182: retention")
    left = sorted([*range(20, 40, 2), *range(1, 40, 2)])
    assert numbers(load(spark, reader, startingOffsets=offset, failOnDataLoss="false")) == left
    assert numbers(load(spark, reader)) == left


# ---------------------------------------------------------------------------------------------- streams


class Sink:
    """Rows by batch, as foreachBatch gave them."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []

    def __call__(self, frame: DataFrame, _: int) -> None:
        self.batches.append(numbers(frame))

    @property
    def rows(self) -> list[int]:
        return sorted(each for batch in self.batches for each in batch)


TOO_SLOW = "Python worker failed to connect back"
"""Spark gives its Python on the driver 10 s to start, which a machine with much else to do does not always do in time."""


def stream(spark: SparkSession, reader: FakeReader, sink: Any, checkpoint: Path, **options: str) -> Any:
    """Run with AvailableNow to its end."""
    frame = spark.readStream.format("holdfast").options(brokers=reader.brokers, token=TOKEN, **options).load()
    for attempt in range(10):
        query = frame.writeStream.foreachBatch(sink).option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
        try:
            assert query.awaitTermination(240)
            return query
        except Exception as error:
            if TOO_SLOW not in str(error) or attempt == 9:
                raise
        finally:
            query.stop()
    raise AssertionError("not reached")


def test_available_now_in_several_batches_gives_each_row_once_and_acknowledges_all(
    spark: SparkSession, reader: FakeReader, tmp_path: Path
) -> None:
    """Limits are kept to, what comes meanwhile waits for the next run, a restart goes on behind the last batch, and the lease is told of
    the last batch too, though Spark commits it to nobody."""
    sink = Sink()

    class Growing(Sink):
        def __call__(self, frame: DataFrame, batch: int) -> None:
            super().__call__(frame, batch)
            if batch == 0:
                reader.store.put(1, message(41))

    first = Growing()
    options = {"startingOffsets": "earliest", "maxRowsPerTrigger": "15", "lease": "lake-1", "capture": "plant/#"}
    query = stream(spark, reader, first, tmp_path, **options)
    assert first.rows == list(range(40))
    assert len(first.batches) == 3
    assert max(map(len, first.batches)) <= 15
    assert reader.store.leases["lake-1"]["to"] == {"0": 382, "1": 392}
    assert reader.store.leases["lake-1"]["filters"] == ["plant/#"]
    assert '"lease": "lake-1"' in query.lastProgress.sources[0].endOffset

    stream(spark, reader, sink, tmp_path, **options)
    assert sink.rows == [41]
    assert reader.store.leases["lake-1"]["to"]["1"] == 412


def test_a_batch_that_failed_is_read_again_the_same_and_not_acknowledged(spark: SparkSession, reader: FakeReader, tmp_path: Path) -> None:
    """The checkpoint is the truth: the lease stays at what was committed, and the next run begins with the batch that failed."""
    seen: list[list[int]] = []

    def failing(frame: DataFrame, batch: int) -> None:
        seen.append(numbers(frame))
        if batch == 1:
            raise RuntimeError("the sink has a bad day")

    options = {"startingOffsets": "earliest", "maxRowsPerTrigger": "15", "lease": "lake-1"}
    with pytest.raises(Exception, match="bad day"):
        stream(spark, reader, failing, tmp_path, **options)
    acknowledged = reader.store.leases["lake-1"]["to"]
    first = {int(shard): cut for shard, cut in acknowledged.items()}
    below = [n for n in range(40) if 1 + 10 * n < first[n % 2]]
    assert set(below) == set(seen[0])
    sink = Sink()
    reader.store.put(0, message(42))
    stream(spark, reader, sink, tmp_path, **options)
    assert sink.batches[0] == seen[1]
    assert sorted(seen[0] + sink.rows) == [*range(40), 42]


def test_a_stream_from_the_latest_has_what_comes_afterwards(spark: SparkSession, reader: FakeReader, tmp_path: Path) -> None:
    """The default of a stream; and with nothing new there is no batch."""
    sink = Sink()
    stream(spark, reader, sink, tmp_path)
    assert sink.rows == []
    reader.store.put(0, message(40))
    stream(spark, reader, sink, tmp_path)
    assert sink.rows == [40]
    batches = len(sink.batches)
    stream(spark, reader, sink, tmp_path)
    assert len(sink.batches) == batches


def test_a_stream_that_meets_another_store_stops(spark: SparkSession, reader: FakeReader, tmp_path: Path) -> None:
    """Its offsets mean nothing there; beginning at 0 would repeat, going on would lose."""
    stream(spark, reader, Sink(), tmp_path, startingOffsets="earliest")
    reader.store.store = "site-a:3"
    with pytest.raises(Exception, match="made by store site-a:2, and the reader serves site-a:3"):
        stream(spark, reader, Sink(), tmp_path, startingOffsets="earliest")


def test_a_stream_that_lost_messages_says_which(spark: SparkSession, reader: FakeReader, tmp_path: Path) -> None:
    """What was dropped between two runs is an error with the gap; with failOnDataLoss=false it goes on behind it."""
    options = {"startingOffsets": "earliest", "maxRowsPerTrigger": "5"}
    frame = spark.readStream.format("holdfast").options(brokers=reader.brokers, token=TOKEN, **options).load()

    def stop_after_one(_: DataFrame, batch: int) -> None:
        if batch == 1:
            raise RuntimeError("enough")

    with pytest.raises(Exception, match="enough"):
        stream(spark, reader, stop_after_one, tmp_path, **options)
    reader.store.drop(0, 1)
    with pytest.raises(Exception, match=r"messages that were to be read are gone \(shard 0, generation 1"):
        stream(spark, reader, Sink(), tmp_path, **options)
    sink = Sink()
    stream(spark, reader, sink, tmp_path, failOnDataLoss="false", **options)
    assert {20, 39} <= set(sink.rows)
    assert not {12, 14, 16, 18} & set(sink.rows)
    assert frame.isStreaming


def test_the_listener_acknowledges_a_batch_as_soon_as_it_is_done(spark: SparkSession, reader: FakeReader, tmp_path: Path) -> None:
    """Without the next trigger, which may be an hour away."""
    import time

    from holdfast_spark.acks import acknowledge
    from holdfast_spark.client import Endpoint, parse_brokers

    listener = acknowledge(spark, Endpoint(parse_brokers(reader.brokers), TOKEN))
    frame = (
        spark.readStream.format("holdfast").options(brokers=reader.brokers, token=TOKEN, startingOffsets="earliest", lease="lake-2").load()
    )

    def start() -> Any:
        return frame.writeStream.foreachBatch(Sink()).option("checkpointLocation", str(tmp_path)).trigger(processingTime="1 hour").start()

    query = start()
    try:
        until = time.monotonic() + 240
        while reader.store.leases.get("lake-2", {}).get("to") != {"0": 382, "1": 392}:
            assert time.monotonic() < until, reader.store.leases
            if query.exception() is not None and TOO_SLOW in str(query.exception()):
                query = start()
            time.sleep(0.1)
    finally:
        query.stop()
        spark.streams.removeListener(listener)
