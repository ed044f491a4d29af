"""One view over archive and store: every message once, whatever is archived and dropped while it is made and read."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from holdfast_spark.client import Client
from holdfast_spark.options import read_options
from holdfast_spark.planning import look, make_plan, report, scope_of
from holdfast_spark.protocol import Refused
from holdfast_spark.reading import Reading, read_work
from holdfast_spark.schema import TYPES, arrow_schema
from pipeline.archive import USUAL
from pipeline.archive_compact import compact
from pipeline.archived import ArchiveError
from pipeline.view import Pinned, exclude_text, pin, release, view
from shards.classes import ClassMap, RetentionClass
from shards.options import StoreOptions
from tests.actors.served import STORE, Served
from tests.pipeline.archives import Key, archived, endpoint, keys_of, lease, messages, store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LIVE = replace(USUAL, live_after_ms=0)
MINUTE_MS = 60_000


def cold_keys(pinned: Pinned) -> Counter[Key]:
    rows = [row for file in pinned.files for row in pq.ParquetFile(pinned.root / file.path).read().to_pylist()]
    return Counter((row["client_id"].encode(), row["topic"].encode(), row["payload"]) for row in rows)


def hot_keys(broker: Served, pinned: Pinned) -> Counter[Key]:
    """What the source would read: its plan and its tasks, without a JVM."""
    given = {"brokers": broker.address, "token": broker.token, "topicFilter": "#,$app/#", "exclude": exclude_text(pinned.exclude)}
    options = read_options(given, stream=False)
    with Client(options.endpoint) as client:
        plan = make_plan(
            client, look(client), scope_of(options), pinned.start, pinned.stop,
            rows_per_partition=50, min_partitions=1, expired_at_ms=None, exclude=options.exclude,
        )  # fmt: skip
    if plan.gaps:
        report(plan.gaps, fail=True)
    reading = Reading(options.endpoint, arrow_schema(), True)
    batches = [batch for part in plan.parts for batch in read_work(reading, scope_of(options), part.value)]
    rows = [row for batch in batches for row in batch.to_pylist()]
    return Counter((row["client_id"].encode(), row["topic"].encode(), row["payload"]) for row in rows)


def pinned_now(broker: Served, root: Path, name: str = "v") -> Pinned:
    with Client(endpoint(broker)) as client:
        return pin(client, root, name)


@pytest.mark.slow
def test_at_every_step_of_an_archiver_the_view_has_every_message_once(tmp_path: Path) -> None:
    """Read at once, and read later when the archive has gone on and what it had then has been dropped."""
    with store(per_generation=20, generations=2) as (broker, published):
        views: list[tuple[str, Pinned]] = []

        def step(name: str) -> None:
            if name not in [known for known, _ in views]:
                pinned = pinned_now(broker, tmp_path)
                views.append((name, pinned))
                assert cold_keys(pinned) + hot_keys(broker, pinned) == keys_of(published), name

        archived(broker, tmp_path, replace(LIVE, round_bytes=1), step=step)
        assert len(views) > 10 and {len(pinned.files) for _, pinned in views} >= {0, 1}
        compact(tmp_path)
        for name, pinned in views:
            assert cold_keys(pinned) + hot_keys(broker, pinned) == keys_of(published), name
        more = messages(10, 77)
        broker.publish(*more)
        for name, pinned in views:
            assert cold_keys(pinned) + hot_keys(broker, pinned) == keys_of(published), f"{name}: pinned to one cut"
        pinned = pinned_now(broker, tmp_path)
        assert cold_keys(pinned) + hot_keys(broker, pinned) == keys_of(published + more)
        for shard in (0, 1):
            for number in broker.shards.generations(shard)[:-1]:
                broker.drop(number, shard)
        assert cold_keys(pinned) + hot_keys(broker, pinned) == keys_of(published + more), "dropped, and in the archive"
        with pytest.raises(Refused, match="messages that were to be read are gone"):
            hot_keys(broker, views[0][1])


@pytest.mark.slow
def test_what_a_view_reads_from_the_store_is_held_for_it(tmp_path: Path) -> None:
    """The archive releases it, its time is over, and it stays until the view is released."""
    with store(per_generation=20, generations=2, n_shards=1, generation_ms=MINUTE_MS, retention_ms=4 * MINUTE_MS) as (broker, published):

        def pass_on() -> None:
            for number in range(6):
                broker.publish(*messages(1, 100 + number))
                broker.roll()

        pinned = pinned_now(broker, tmp_path)
        there = broker.shards.generations()
        archived(broker, tmp_path, LIVE)
        pass_on()
        archived(broker, tmp_path, LIVE)
        assert broker.shards.generations()[: len(there)] == there == [1, 2, 3]
        assert hot_keys(broker, pinned) == keys_of(published)
        release(endpoint(broker), "v")
        assert lease(broker, "view-v") is None
        pass_on()
        assert broker.shards.generations()[0] > there[-1], "and then it goes"


def test_an_archive_of_another_site_makes_no_view(tmp_path: Path) -> None:
    """Their positions have nothing to do with each other."""
    with store(per_generation=5, generations=1) as (broker, _):
        archived(broker, tmp_path)
        broker.restart(STORE.replace("0", "f"))
        with pytest.raises(ArchiveError, match="no view has both"):
            pinned_now(broker, tmp_path)
        assert lease(broker, "view-v") is None, "what cannot be viewed holds nothing"


def test_a_view_of_what_the_archive_leaves_out_is_refused_and_holds_nothing(tmp_path: Path) -> None:
    """Topics that its filters do not cover would be there in part."""
    with store(per_generation=5, generations=1) as (broker, _):
        archived(broker, tmp_path, replace(USUAL, filters=("plant/#",)))
        with pytest.raises(ArchiveError, match=r"is of plant/#, and # is asked for"):
            view(None, endpoint(broker), tmp_path, "v", topics=("#",))
        assert lease(broker, "view-v") is None


@pytest.mark.slow
def test_what_went_before_the_view_was_made_is_not_missed_in_it(tmp_path: Path) -> None:
    """A class that is kept longer begins below what was dropped of another, before the archive began, and after it was archived."""
    kept_long = ClassMap((RetentionClass("long", b"$app/#", 1 << 45),))
    with store(per_generation=20, generations=3, n_shards=1, store=StoreOptions("skipstream", classes=kept_long)) as (broker, published):
        with Client(endpoint(broker)) as client:
            klass = {each["id"]: each["class"] for each in client.cuts()["shards"]["0"]["generations"]}
        first, second = sorted(number for number, of in klass.items() if of == "default")[:2]
        pinned = pinned_now(broker, tmp_path)
        broker.drop(first)
        with pytest.raises(Refused, match="messages that were to be read are gone"):
            hot_keys(broker, pinned)
        left = [each for number, each in enumerate(published) if number >= 20 or each.topic.startswith(b"$app/")]
        assert hot_keys(broker, pinned_now(broker, tmp_path)) == keys_of(left)
        archived(broker, tmp_path, replace(USUAL, lease=None))
        broker.drop(second)
        pinned = pinned_now(broker, tmp_path)
        assert cold_keys(pinned) + hot_keys(broker, pinned) == keys_of(left)
        assert not any(at <= pinned.start[0] for at in pinned.exclude[0].values()), "nobody asks below its beginning"


def keys(frame: DataFrame) -> Counter[Key]:
    return Counter((row.client_id.encode(), row.topic.encode(), bytes(row.payload)) for row in frame.collect())


@pytest.mark.slow
@pytest.mark.needs("spark")
@pytest.mark.timeout(600)
def test_the_view_in_sql(spark: SparkSession, tmp_path: Path) -> None:
    """Schema and rows of the source; the same count while the archive goes on; by its filters; made anew it has what came."""
    with store(per_generation=40, generations=2) as (broker, published):
        plain = [each for each in published if not each.topic.startswith(b"$")]
        frame = view(spark, endpoint(broker), tmp_path)
        assert keys(frame) == keys_of(plain), "without an archive"
        archived(broker, tmp_path, replace(USUAL, round_bytes=1), rounds_max=2)
        frame = view(spark, endpoint(broker), tmp_path)
        assert [(field.name, field.dataType.simpleString()) for field in frame.schema.fields] == list(TYPES.items())
        assert keys(frame) == keys_of(plain)
        archived(broker, tmp_path, LIVE)
        broker.publish(*messages(10, 88))
        counts = "select topic, count(*) as n, count(distinct shard, offset) as places from messages group by topic"
        for _ in range(2):
            found = {row.topic: (row.n, row.places) for row in spark.sql(counts).collect()}
            wanted = Counter(each.topic.decode() for each in plain)
            assert found == {topic: (n, n) for topic, n in wanted.items()}
            compact(tmp_path)
        newer = view(spark, endpoint(broker), tmp_path, "newer", topics=("plant/2/+", "$app/#"))
        some = [each for each in published + messages(10, 88) if each.topic.startswith((b"plant/2/", b"$app/"))]
        assert keys(newer) == keys_of(some) == keys(spark.sql("select * from newer"))
        release(endpoint(broker), "newer")
