"""The listener that tells leases of completed batches: it says what was committed, and is never in the way of a query."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast_spark.acks import AckListener
from holdfast_spark.client import Client, Endpoint, parse_brokers
from holdfast_spark.leases import put_lease
from holdfast_spark.offsets import Offset
from holdfast_spark.options import read_options
from holdfast_spark.protocol import Refused
from holdfast_spark.source import losses
from tests.holdfast_spark.fake_reader import TOKEN, FakeReader, one_shard
from tests.holdfast_spark.plain import Message


@pytest.fixture
def reader() -> Iterator[FakeReader]:
    with FakeReader(one_shard(Message(1, 10, "t", "c", b""))) as served:
        lease = read_options({"brokers": served.brokers, "token": TOKEN, "lease": "l"}, stream=True).lease
        assert lease is not None
        with Client(endpoint(served)) as client:
            put_lease(client, lease, start="earliest")
        yield served


def endpoint(reader: FakeReader) -> Endpoint:
    return Endpoint(parse_brokers(reader.brokers), TOKEN)


def listening(reader: FakeReader) -> AckListener:
    return AckListener(endpoint(reader), connect=lambda found: Client(found, patience_s=0))


def progress(*ends: str | None) -> Any:
    """A batch was completed, of a query with sources that ended there."""
    return SimpleNamespace(progress=SimpleNamespace(sources=[SimpleNamespace(endOffset=end) for end in ends]))


def acked(reader: FakeReader) -> list[dict[str, int]]:
    return [request["to"] for request in reader.asked if request.get("do") == "ack"]


def test_a_completed_batch_is_acknowledged_once(reader: FakeReader) -> None:
    """Spark tells of an idle query again and again; and of sources that are not ours."""
    listener = listening(reader)
    for cut in (4, 4, 9, 9):
        listener.onQueryProgress(progress(Offset("site-a:2", {0: cut}, "l").as_json(), '{"logOffset":7}', None, "17"))
    assert acked(reader) == [{"0": 4}, {"0": 9}]
    assert reader.store.leases["l"]["to"] == {"0": 9}


def test_what_has_no_lease_or_is_of_another_store_is_let_alone(reader: FakeReader) -> None:
    """A query of the same session may read from another broker, with a lease of the same name."""
    listener = listening(reader)
    listener.onQueryProgress(progress(Offset("site-a:2", {0: 4}).as_json(), Offset("site-b:1", {0: 4}, "l").as_json()))
    assert acked(reader) == []


def test_a_reader_that_is_away_harms_no_query_and_is_told_by_the_next_batch(reader: FakeReader) -> None:
    """Nothing is raised into Spark, and nothing counts as told that was not."""
    listener = listening(reader)
    reader.refusals = [("LEASE", Refused("AWAY", "later"))]
    end = Offset("site-a:2", {0: 4}, "l").as_json()
    listener.onQueryProgress(progress(end))
    assert reader.store.leases["l"]["to"] == {"0": 0}
    listener.onQueryProgress(progress(end))
    assert reader.store.leases["l"]["to"] == {"0": 4}


def test_what_is_gone_between_two_offsets_can_be_asked_for(reader: FakeReader) -> None:
    """For who goes on with failOnDataLoss=false: shard, generation, positions, why."""
    reader.store.roll(0)
    reader.store.put(0, Message(1, 50, "t", "c", b""))
    reader.store.drop(0, 1)
    options = {"brokers": reader.brokers, "token": TOKEN}
    (gap,) = losses(options, Offset("site-a:2", {0: 3}), Offset("site-a:2", {0: 51}))
    assert (gap.shard, gap.generation, gap.start, gap.stop, gap.reason) == (0, 1, 3, 11, "retention")
    assert losses(options, Offset("site-a:2", {0: 11}), Offset("site-a:2", {0: 51})) == []
