"""The source against the shipped reader over real stores: what was published is what is read."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from holdfast_spark.client import Client, Endpoint, NoReader, parse_brokers
from holdfast_spark.options import read_options
from holdfast_spark.planning import look
from holdfast_spark.protocol import Refused
from holdfast_spark.source import HoldfastReader
from holdfast_spark.streaming import HoldfastStreamReader
from tests.actors.served import Said, Served, served
from tests.holdfast_spark.plain import spark_schema
from tests.lake.proxy import CuttingProxy

pytestmark = pytest.mark.slow

AT_MS = 1_700_000_000_000
COLUMNS = ("topic", "payload", "client_id", "qos", "retain", "ts", "shard", "offset", "user_properties")
Offset = dict[str, Any]


def some(begin: int, end: int) -> list[Said]:
    """Of six clients, over streams with and without a varying level, at times a second apart."""
    pair = b"\x26\x00\x01k\x00\x01v"
    return [
        Said(
            b"plant/%d/temp" % (number % 5) if number % 2 else b"$app/fixed",
            b"%d" % number,
            b"dev-%d" % (6 + number % 6),
            qos=1 + number % 2,
            properties=bytes((len(pair),)) + pair if number % 4 == 0 else b"\0",
            published_at_ms=AT_MS + 1000 * number,
        )
        for number in range(begin, end)
    ]


@pytest.fixture
def broker() -> Iterator[Served]:
    """Two shards, two generations, 60 messages."""
    with served(*some(0, 40), n_shards=2) as found:
        found.roll()
        found.publish(*some(40, 60))
        yield found


def batch(broker: Served, brokers: str = "", **options: str) -> HoldfastReader:
    given = {"brokers": brokers or broker.address, "token": broker.token, "topicFilter": "#,$app/#", **options}
    return HoldfastReader(read_options(given, stream=False), spark_schema(COLUMNS))


def rows(made: HoldfastReader | HoldfastStreamReader, parts: Any) -> list[dict[str, Any]]:
    return [row for part in parts for found in made.read(part) for row in found.to_pylist()]


def numbers(made: HoldfastReader) -> list[int]:
    return sorted(int(row["payload"]) for row in rows(made, made.partitions()))


def test_what_was_published_is_what_is_read(broker: Served) -> None:
    """Every message once, with its own topic, client, time and properties."""
    made = batch(broker)
    found = {int(row["payload"]): row for row in rows(made, made.partitions())}
    assert sorted(found) == list(range(60))
    for number, each in enumerate(some(0, 60)):
        row = found[number]
        assert (row["topic"], row["client_id"], row["qos"]) == (each.topic.decode(), each.client.decode(), each.qos)
        assert row["ts"].timestamp() * 1000 == each.published_at_ms
        assert row["user_properties"] == ([{"key": "k", "value": "v"}] if number % 4 == 0 else None)
    assert len({(row["shard"], row["offset"]) for row in found.values()}) == 60
    by_client = Counter((row["client_id"], row["shard"]) for row in found.values())
    assert len(by_client) == 6
    assert {shard for _, shard in by_client} == {0, 1}


def test_order_of_a_publisher_is_that_of_its_offsets(broker: Served) -> None:
    """FIFO per publisher and topic."""
    made = batch(broker)
    found = sorted(rows(made, made.partitions()), key=lambda row: (row["client_id"], row["offset"]))
    for client in {row["client_id"] for row in found}:
        said = [int(row["payload"]) for row in found if row["client_id"] == client]
        assert said == sorted(said)


def test_filters_clients_shards_and_small_parts_are_those_of_the_reader(broker: Served) -> None:
    """The same rows as a filter over all of them."""
    assert numbers(batch(broker, topicFilter="plant/1/+")) == [n for n in range(60) if n % 2 and n % 5 == 1]
    assert numbers(batch(broker, topicFilter="plant/#,plant/1/temp")) == list(range(1, 60, 2))
    assert numbers(batch(broker, clientIds="dev-7")) == list(range(1, 60, 6))
    assert sorted(numbers(batch(broker, shards="0")) + numbers(batch(broker, shards="1"))) == list(range(60))
    assert numbers(batch(broker, maxRowsPerPartition="3")) == list(range(60))
    assert numbers(batch(broker, minPartitions="5")) == list(range(60))


def test_times_are_found() -> None:
    """Exact to the millisecond, whatever the marks are: the same rows as a filter over all of them."""
    with served() as broker:
        for number in range(30):
            broker.publish(Said(b"t/%d" % (number % 3), b"%d" % number))
            broker.shards.pass_time(17_000)
        made = batch(broker)
        times = {int(row["payload"]): round(row["ts"].timestamp() * 1000) for row in rows(made, made.partitions())}
        for first, last in ((10, 20), (0, 5), (29, 30), (0, 30)):
            for begin, end in ((times[first], times[last - 1] + 1), (times[first] - 1, times[last - 1])):
                wanted = [number for number, at in times.items() if begin <= at < end]
                assert numbers(batch(broker, startingTimestamp=str(begin), endingTimestamp=str(end))) == sorted(wanted)


def test_two_ranges_that_meet_are_the_whole_at_every_position(broker: Served) -> None:
    """[a, b) + [b, c) = [a, c) for each b that a message begins or ends at."""
    made = batch(broker)
    offsets = sorted((row["shard"], row["offset"]) for row in rows(made, made.partitions()))
    with Client(Endpoint(parse_brokers(broker.address), broker.token)) as client:
        state = look(client)
    for shard, position in offsets[::7]:
        cuts = {**state.cuts, shard: position}
        middle = json.dumps({"s": {str(each): cut for each, cut in cuts.items()}, "store": state.store, "v": 1})
        whole = numbers(batch(broker, endingOffsets=middle)) + numbers(batch(broker, startingOffsets=middle))
        assert sorted(whole) == list(range(60))


def test_a_stream_has_each_message_once_over_rolls_and_restarts_of_the_reader(broker: Served) -> None:
    """Limits, a roll in between, another reader process; and the lease is where the checkpoint is."""
    options = {"brokers": broker.address, "token": broker.token, "topicFilter": "#,$app/#", "startingOffsets": "earliest"}
    options |= {"maxRowsPerTrigger": "7", "lease": "lake", "capture": "#"}
    made = HoldfastStreamReader(read_options(options, stream=True), spark_schema(COLUMNS))
    found: list[int] = []
    begin = made.initialOffset()
    for turn in range(100):
        end = made.latestOffset(begin, made.getDefaultReadLimit())
        if end == begin and turn > 20:
            break
        if end != begin:
            got = [int(row["payload"]) for row in rows(made, made.partitions(begin, end))]
            assert len(got) <= 7
            found += got
        begin = end
        if turn == 3:
            broker.publish(*some(60, 70))
            broker.roll()
            broker.publish(*some(70, 75))
        if turn == 6:
            broker.restart()
        if turn == 9:
            made.stop()
            made = HoldfastStreamReader(read_options(options, stream=True), spark_schema(COLUMNS))
    else:
        raise AssertionError("it never came to its end")
    assert sorted(found) == list(range(75))
    (lease,) = made._reached().lease("list")
    assert lease["to"] == begin["s"]
    made.stop()


def test_another_store_at_the_same_address_is_no_continuation(broker: Served) -> None:
    """Neither for a task nor for the stream."""
    options = {"brokers": broker.address, "token": broker.token, "startingOffsets": "earliest"}
    made = HoldfastStreamReader(read_options(options, stream=True), spark_schema(COLUMNS))
    begin = made.initialOffset()
    end = made.latestOffset(begin, ReadAllAvailable())
    parts = made.partitions(begin, end)
    broker.restart("0123456789abcdef:2")
    with pytest.raises(Refused, match="STORE"):
        rows(made, parts)
    with pytest.raises(Refused, match="0123456789abcdef:2"):
        made.latestOffset(end, ReadAllAvailable())
    made.stop()


def test_a_dropped_generation_is_a_gap_with_its_range(broker: Served) -> None:
    """For who named a place before it; who asks for the earliest gets what there is."""
    with Client(Endpoint(parse_brokers(broker.address), broker.token)) as client:
        state = look(client)
        first = next(each["id"] for each in client.cuts()["shards"]["0"]["generations"] if each["until"] is not None)
    start = json.dumps({"s": {str(shard): at for shard, at in state.earliest.items()}, "store": state.store, "v": 1})
    broker.drop(first)
    left = numbers(batch(broker))
    assert left and set(left) < set(range(60))
    with pytest.raises(Refused, match=f"shard 0, generation {first}") as refused:
        batch(broker, startingOffsets=start).partitions()
    assert refused.value.code == "LOST"
    assert numbers(batch(broker, startingOffsets=start, failOnDataLoss="false")) == left


def test_an_answer_of_the_shipped_reader_cut_anywhere_is_made_good_or_an_error(broker: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through a proxy that cuts after so many bytes: with patience all rows once, without it an error, never fewer rows."""
    with CuttingProxy(lambda: (broker.host, broker.port)) as proxy:
        brokers = f"{proxy.address[0]}:{proxy.address[1]}"
        made = batch(broker, brokers)
        parts = made.partitions()
        whole = sorted(int(row["payload"]) for row in rows(made, parts))
        assert whole == list(range(60))
        for after in (0, 3, 5, 60, 90, 200, 400, 800, 1200, 1600):
            cut = proxy.cut_after(after, reset=after % 400 == 0)
            assert sorted(int(row["payload"]) for row in rows(made, parts)) == whole
            assert cut.done.is_set()
        monkeypatch.setattr("holdfast_spark.client.PATIENCE_S", 0.0)
        monkeypatch.setattr("holdfast_spark.reading.Client", lambda endpoint, who: Client(endpoint, who=who, patience_s=0.0))
        for after in (0, 3, 5, 60, 90, 200, 400):
            proxy.cut_after(after)
            with pytest.raises(NoReader):
                rows(made, parts)
