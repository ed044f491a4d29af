"""The stream reader without Spark: what it answers to the questions that Spark asks, in the order in which it asks them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark import cloudpickle
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows, ReadMinRows

from holdfast_spark.options import read_options
from holdfast_spark.protocol import Refused
from holdfast_spark.source import HoldfastReader
from holdfast_spark.streaming import HoldfastStreamReader
from tests.holdfast_spark.fake_reader import TOKEN, FakeReader, Generation, StoreInMemory
from tests.holdfast_spark.plain import Message, spark_schema

AT_MS = 1_700_000_000_000
Offset = dict[str, Any]


def message(number: int) -> Message:
    return Message(1 + number % 3, 1 + 10 * number, f"t/{number % 3}", "c", b"%d" % number, at_ms=AT_MS + number)


def two_shards(count: int = 12) -> StoreInMemory:
    store = StoreInMemory({0: {1: Generation(0)}, 1: {1: Generation(0)}}, cuts={0: 0, 1: 0})
    for number in range(count):
        store.put(number % 2, message(number))
    return store


@pytest.fixture
def reader() -> Iterator[FakeReader]:
    with FakeReader(two_shards()) as served:
        yield served


_made: list[HoldfastStreamReader] = []


@pytest.fixture(autouse=True)
def _stopped() -> Iterator[None]:
    """Every reader is stopped, as Spark does at the end of a query."""
    yield
    while _made:
        _made.pop().stop()


def streaming(reader: FakeReader, **options: str) -> HoldfastStreamReader:
    begin = {} if "startingTimestamp" in options else {"startingOffsets": "earliest"}
    return plainly({"brokers": reader.brokers, "token": TOKEN, **begin, **options})


def plainly(options: dict[str, str]) -> HoldfastStreamReader:
    made = HoldfastStreamReader(read_options(options, stream=True), spark_schema(("payload", "shard", "offset")))
    _made.append(made)
    return made


def again(offset: Offset) -> Offset:
    """As it comes back from Spark's log."""
    found: Offset = json.loads(json.dumps(offset))
    return found


def rows(made: HoldfastStreamReader | HoldfastReader, parts: Any) -> list[int]:
    """What tasks read, each with a reader that came by pickle."""
    found: list[int] = []
    for part in parts:
        there, its = cloudpickle.loads(cloudpickle.dumps((made, part)))
        found += [int(value) for batch in there.read(its) for value in batch.column("payload").to_pylist()]
    return sorted(found)


def run(
    made: HoldfastStreamReader, start: Offset | None = None, meanwhile: Callable[[], None] = lambda: None
) -> tuple[list[list[int]], Offset]:
    """All batches until there is nothing new, as Spark runs them with AvailableNow; and the last offset."""
    made.prepareForTriggerAvailableNow()
    begin = made.initialOffset() if start is None else start
    batches: list[list[int]] = []
    before: Offset | None = None
    while True:
        end = made.latestOffset(again(begin), made.getDefaultReadLimit())
        if json.dumps(end) == json.dumps(begin):
            made.stop()
            return batches, begin
        meanwhile()
        if before is not None:
            made.commit(again(before))
        batches.append(rows(made, made.partitions(again(begin), again(end))))
        before = begin = end


def test_all_rows_come_once_and_then_nothing(reader: FakeReader) -> None:
    """In one batch without a limit; the end is given back as it came, which is how Spark knows."""
    batches, end = run(streaming(reader))
    assert batches == [list(range(12))]
    assert end == {"s": {"0": 102, "1": 112}, "store": "site-a:2", "v": 1}
    assert run(streaming(reader), end)[0] == []


@settings(max_examples=25)
@given(st.integers(1, 15), st.sampled_from((None, "1", "60", "5000")), st.integers(0, 12))
@pytest.mark.slow
def test_limits_are_kept_and_everything_comes(limit: int, size: str | None, count: int) -> None:
    """Whatever the limits: no batch is larger, none is empty, the rows of all batches are those of the store."""
    with FakeReader(two_shards(count)) as reader:
        more = {} if size is None else {"maxBytesPerTrigger": size}
        batches, _ = run(streaming(reader, maxRowsPerTrigger=str(limit), **more))
        assert sorted(row for batch in batches for row in batch) == list(range(count))
        assert all(1 <= len(batch) <= limit for batch in batches)
        if size == "1":
            assert all(len(batch) == 1 for batch in batches)


def test_the_limit_that_spark_gives_counts(reader: FakeReader) -> None:
    """All available: Spark means it, as with Trigger.Once; and the one of the options is what Spark is told."""
    made = streaming(reader, maxRowsPerTrigger="3", maxBytesPerTrigger="1")
    assert made.getDefaultReadLimit() == ReadMaxRows(3)
    assert streaming(reader, maxBytesPerTrigger="9").getDefaultReadLimit() == ReadMaxBytes(9)
    assert streaming(reader, minRowsPerTrigger="9").getDefaultReadLimit() == ReadMinRows(9)
    assert streaming(reader).getDefaultReadLimit() == ReadAllAvailable()
    begin = made.initialOffset()
    end = made.latestOffset(begin, ReadAllAvailable())
    assert rows(made, made.partitions(begin, end)) == list(range(12))


def test_available_now_ends_while_messages_go_on_coming(reader: FakeReader) -> None:
    """What comes after its beginning is for the next run, which goes on where this one stopped."""
    coming = iter(range(100, 200))
    batches, end = run(streaming(reader, maxRowsPerTrigger="5"), meanwhile=lambda: reader.store.put(0, message(next(coming))))
    assert sorted(row for batch in batches for row in batch) == list(range(12))
    assert sorted(row for batch in run(streaming(reader), end)[0] for row in batch) == list(range(100, next(coming)))


def test_a_cut_that_moves_without_messages_makes_no_batch(reader: FakeReader) -> None:
    """Positions go on by themselves: an acknowledged lease alone would be a reason for the next batch, for ever."""
    made = streaming(reader)
    offset = made.initialOffset()
    moved = 0
    for _ in range(20):
        end = made.latestOffset(again(offset), ReadAllAvailable())
        moved += end != offset
        offset = end
        reader.store.cuts = {shard: cut + 5 for shard, cut in reader.store.cuts.items()}
    assert moved <= 2
    reader.store.put(0, message(50))
    end = made.latestOffset(again(offset), ReadAllAvailable())
    assert rows(made, made.partitions(again(offset), again(end))) == [50]


def test_a_row_that_was_counted_before_it_was_committed_is_not_forgotten(reader: FakeReader, monkeypatch: pytest.MonkeyPatch) -> None:
    """The count may be ahead of the cut while a sync hangs; so quiet ends by itself."""
    now = 0.0
    monkeypatch.setattr("holdfast_spark.streaming.time.monotonic", lambda: now)
    made = streaming(reader)
    offset = made.initialOffset()
    committed = dict(reader.store.cuts)
    reader.store.put(0, message(50))
    late = dict(reader.store.cuts)
    reader.store.cuts = committed
    for _ in range(3):
        offset = made.latestOffset(again(offset), ReadAllAvailable())
    reader.store.cuts = late
    now += 11
    end = made.latestOffset(again(offset), ReadAllAvailable())
    assert rows(made, made.partitions(again(offset), again(end))) == [50]


def test_few_rows_wait_for_more_but_not_for_ever(reader: FakeReader, monkeypatch: pytest.MonkeyPatch) -> None:
    """minRowsPerTrigger, until maxTriggerDelay; and AvailableNow takes what there is."""
    now = 0.0
    monkeypatch.setattr("holdfast_spark.streaming.time.monotonic", lambda: now)
    made = streaming(reader, minRowsPerTrigger="13", maxTriggerDelay="60s")
    offset = made.initialOffset()
    assert made.latestOffset(again(offset), ReadMinRows(13)) == offset
    now += 61
    assert made.latestOffset(again(offset), ReadMinRows(13)) != offset
    now += 1
    made = streaming(reader, minRowsPerTrigger="12", maxTriggerDelay="60s")
    assert made.latestOffset(again(offset), ReadMinRows(12)) != offset
    assert run(streaming(reader, minRowsPerTrigger="1000"))[0] == [list(range(12))]


# ---------------------------------------------------------------------------------------------- where it begins


def test_the_latest_is_what_a_stream_without_a_word_begins_with(reader: FakeReader) -> None:
    """As with Kafka. Asked again after a crash in the first batch, it may be beyond the end of that: then the batch is empty, no error."""
    made = plainly({"brokers": reader.brokers, "token": TOKEN})
    offset = made.initialOffset()
    assert offset["s"] == {"0": 102, "1": 112}
    reader.store.put(0, message(50))
    later = made.initialOffset()
    assert rows(made, made.partitions(later, offset)) == []
    assert rows(made, made.partitions(offset, later)) == [50]


def test_the_latest_of_a_lease_stays_where_the_lease_was_put(reader: FakeReader) -> None:
    """So a query that dies in its first batch loses nothing of it."""
    first = streaming(reader, startingOffsets="latest", lease="l").initialOffset()
    reader.store.put(0, message(50))
    assert streaming(reader, startingOffsets="latest", lease="l").initialOffset() == first
    assert first == {"lease": "l", "s": {"0": 102, "1": 112}, "store": "site-a:2", "v": 1}


def test_a_stream_may_begin_at_a_time_an_offset_or_a_lease(reader: FakeReader) -> None:
    """Each has what lies behind it, and nothing else."""
    timed = {"startingTimestamp": str(AT_MS + 4)}
    assert run(streaming(reader, **timed))[0] == [list(range(4, 12))]
    offset = '{"s":{"0":50,"1":0},"store":"site-a:2","v":1}'
    assert run(streaming(reader, startingOffsets=offset))[0] == [sorted([6, 8, 10, *range(1, 12, 2)])]
    streaming(reader, startingOffsets="lease", lease="l").initialOffset()
    reader.store.leases["l"]["to"] = {"0": 0, "1": 100}
    assert run(streaming(reader, startingOffsets="lease", lease="l"))[0] == [[0, 2, 4, 6, 8, 10, 11]]
    assert run(streaming(reader, lease="m", **timed))[0] == [list(range(4, 12))]


# ---------------------------------------------------------------------------------------------- leases


def test_a_lease_is_acknowledged_for_all_committed_batches_and_no_more(reader: FakeReader) -> None:
    """By the question for what comes next, since Spark tells nobody of the last batch; while a batch is read, never."""
    made = streaming(reader, lease="l", leaseTtl="1h", leaseMaxBytes="1GB", leaseBlock="true", capture="t/#", maxRowsPerTrigger="5")
    begin = made.initialOffset()
    middle = made.latestOffset(again(begin), made.getDefaultReadLimit())
    made.partitions(again(begin), again(middle))
    lease = reader.store.leases["l"]
    assert lease["to"] == {"0": 0, "1": 0}
    assert (lease["ttl_ms"], lease["max_age_ms"], lease["max_bytes"], lease["block"], lease["filters"]) == (
        3_600_000,
        None,
        10**9,
        True,
        ["t/#"],
    )
    made.latestOffset(again(middle), made.getDefaultReadLimit())
    assert lease["to"] == middle["s"]
    _, end = run(made, middle)
    assert lease["to"] == end["s"]


def test_another_store_is_never_acknowledged(reader: FakeReader) -> None:
    """It may have a lease of the same name, which holds what nobody has read."""
    made = streaming(reader, lease="lake")
    begin = made.initialOffset()
    end = made.latestOffset(again(begin), ReadAllAvailable())
    reader.store.store = "site-b:1"
    made.stop()
    with pytest.raises(Refused, match="STORE"):
        made.commit(again(end))
    assert not [asked for asked in reader.asked if asked.get("do") == "ack"]


def test_acknowledging_is_not_repeated_and_never_goes_back(reader: FakeReader) -> None:
    """The same offset is said once."""
    made = streaming(reader, lease="l")
    _, end = run(made)
    acks = [request for request in reader.asked if request.get("do") == "ack"]
    assert [request["to"] for request in acks] == [end["s"]]


def test_a_lease_that_is_gone_is_put_again_and_comes_to_the_checkpoint(reader: FakeReader) -> None:
    """It holds from the earliest until the first acknowledgement, so nothing between can go."""
    made = streaming(reader, startingOffsets="latest", lease="l")
    offset = made.initialOffset()
    del reader.store.leases["l"]
    restarted = streaming(reader, startingOffsets="latest", lease="l")
    reader.store.put(0, message(50))
    restarted.latestOffset(again(offset), ReadAllAvailable())
    assert [request["start"] for request in reader.asked if request.get("do") == "put"] == ["latest", "earliest"]
    assert reader.store.leases["l"]["to"] == offset["s"]


def test_a_lease_is_renewed_well_before_it_ends(reader: FakeReader, monkeypatch: pytest.MonkeyPatch) -> None:
    """A query without new messages would lose it else."""
    now = 0.0
    monkeypatch.setattr("holdfast_spark.streaming.time.monotonic", lambda: now)
    made = streaming(reader, lease="l", leaseTtl="40s")
    offset = made.initialOffset()
    for _ in range(5):
        now += 6
        made.latestOffset(again(offset), ReadAllAvailable())
    puts = [request for request in reader.asked if request.get("do") == "put"]
    assert 3 <= len(puts) <= 4


# ---------------------------------------------------------------------------------------------- what is gone


def test_what_had_expired_is_decided_once_for_a_batch(reader: FakeReader) -> None:
    """When its end is made, and goes with it: a batch that is run again later has the same rows. One from a log without it is as of now."""
    now_ms = int(time.time() * 1000)
    reader.store.put(0, Message(1, 500, "t/1", "c", b"500", at_ms=now_ms, properties=((2, 100),)))
    made = streaming(reader, dropExpired="true", startingTimestamp=str(now_ms - 1000))
    begin = made.initialOffset()
    end = made.latestOffset(again(begin), ReadAllAvailable())
    assert end["at"] >= now_ms and "at" not in begin and list(end) == sorted(end)
    for later_ms, found in ((0, [500]), (99_000, [500]), (110_000, [])):
        assert rows(made, made.partitions(again(begin), {**again(end), "at": end["at"] + later_ms})) == found
    assert rows(made, made.partitions(again(begin), {name: end[name] for name in ("s", "store", "v")})) == [500]
    assert made.latestOffset(again(end), ReadAllAvailable()) == end, "nothing came, so nothing is to be done"


def test_another_store_is_never_read_under_an_old_offset(reader: FakeReader) -> None:
    """Neither asked for new offsets, nor for partitions."""
    made = streaming(reader)
    begin = made.initialOffset()
    end = made.latestOffset(begin, ReadAllAvailable())
    reader.store.store = "site-a:3"
    with pytest.raises(Refused, match="site-a:2, and the reader serves site-a:3"):
        made.latestOffset(again(end), ReadAllAvailable())
    with pytest.raises(Refused, match="STORE"):
        made.partitions(again(begin), again(end))


def rolled() -> StoreInMemory:
    store = two_shards(6)
    store.roll(0)
    store.put(0, message(20))
    return store


def test_what_was_dropped_after_the_query_began_is_an_error_with_its_range() -> None:
    """Or a line in the log, with failOnDataLoss=false."""
    with FakeReader(rolled()) as reader:
        made = streaming(reader)
        begin = made.initialOffset()
        end = made.latestOffset(begin, ReadAllAvailable())
        reader.store.drop(0, 1)
        with pytest.raises(Refused, match=r"shard 0, generation 1 \(class default\), positions 0 to 42: retention") as refused:
            made.partitions(again(begin), again(end))
        assert refused.value.more["gaps"][0]["to"] == 42
        careless = streaming(reader, failOnDataLoss="false")
        assert rows(careless, careless.partitions(again(begin), again(end))) == [1, 3, 5, 20]


def test_what_was_dropped_before_the_query_began_was_not_promised_to_it() -> None:
    """From the earliest on: all that there is."""
    with FakeReader(rolled()) as reader:
        reader.store.drop(0, 1)
        # Another class still has messages of that time, so the earliest lies before what is gone.
        reader.store.shards[0][7] = Generation(0)
        assert run(streaming(reader, maxRowsPerTrigger="1"))[0] == [[20], [1], [3], [5]]


def test_what_is_forgotten_later_is_not_what_was_gone_before() -> None:
    """Generation 0 stands for all that is remembered no more. It may have been there when the query began, and reach further now."""
    with FakeReader(rolled()) as reader:
        reader.store.shards[0][7] = Generation(0)
        forgotten = {"shard": 0, "generation": 0, "class": "", "from": 0, "to": 11, "reason": ""}
        reader.store.gone.append(forgotten)
        made = streaming(reader)
        begin = made.initialOffset()
        end = made.latestOffset(begin, ReadAllAvailable())
        assert len(made.partitions(begin, end)) > 1
        forgotten["to"] = 41
        with pytest.raises(Refused, match=r"generation 0.* positions 11 to 41"):
            made.partitions(begin, end)


def test_what_is_dropped_between_plan_and_scan_fails_the_task() -> None:
    """Never fewer rows without a word."""
    with FakeReader(rolled()) as reader:
        made, careless = streaming(reader), streaming(reader, failOnDataLoss="false")
        begin = made.initialOffset()
        end = made.latestOffset(begin, ReadAllAvailable())
        parts = made.partitions(begin, end)
        reader.store.drop(0, 1)
        with pytest.raises(Refused, match="LOST"):
            rows(made, parts)
        assert rows(careless, parts) == [1, 3, 5, 20]


def test_a_damaged_message_fails_the_task_and_says_where(reader: FakeReader) -> None:
    """It is not left out."""

    class Damaged(Message):
        def value(self) -> bytes:
            return b"\x09" + super().value()[1:]

    reader.store.put(0, Damaged(1, 900, "t", "c", b"1"))
    made = streaming(reader)
    begin = made.initialOffset()
    with pytest.raises(Refused, match=r"shard 0, generation 1: a stored message of version 9.*DAMAGED"):
        rows(made, made.partitions(begin, made.latestOffset(begin, ReadAllAvailable())))


def test_a_reader_keeps_no_connection_that_could_travel(reader: FakeReader) -> None:
    """Spark pickles it for its tasks after it was used."""
    made = streaming(reader)
    made.initialOffset()
    assert cloudpickle.loads(cloudpickle.dumps(made))._client is None
    made.stop()
    made.stop()
