"""An archived range back to topics: each message once, in its order, however often it runs and whatever is archived meanwhile."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pipeline import restore
from pipeline.archive import USUAL
from pipeline.archive_compact import compact
from pipeline.archived import ArchiveError
from pipeline.restore import Options, _later, _planned
from tests.actors.served import Said, Served
from tests.pipeline.archives import archived, messages, rows_in, state_of, store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LIVE = replace(USUAL, live_after_ms=0)
Order = dict[tuple[str, str], list[bytes]]


def ordered(rows: list[dict[str, Any]], prefix: str = "") -> Order:
    """(client, topic without the prefix) -> payloads in the order of the store."""
    found: Order = defaultdict(list)
    for row in sorted(rows, key=lambda row: (row["shard"], row["offset"])):
        if row["topic"].startswith(prefix):
            found[row["client_id"], row["topic"].removeprefix(prefix)].append(row["payload"])
    return dict(found)


def published_in_order(published: list[Said], topics: tuple[bytes, ...] = (b"",)) -> Order:
    found: Order = defaultdict(list)
    for each in published:
        if each.topic.startswith(topics):
            found[each.client.decode(), each.topic.decode()].append(each.payload)
    return dict(found)


def stored(broker: Served, root: Path) -> list[dict[str, Any]]:
    """All that is in the store, by way of an archive of its own."""
    archived(broker, root, replace(LIVE, lease=None))
    return rows_in(root)


def test_a_restore_keeps_its_name_and_its_commit(tmp_path: Path) -> None:
    """Whatever is archived, rewritten or moved meanwhile; another range or another attempt has another name."""
    with store(per_generation=20, generations=1, generation_ms=900_000) as (broker, _):
        root = tmp_path / "a"
        archived(broker, root)
        first = _planned(root, Options(topics=("plant/#",)))
        broker.publish(*messages(10, 7))
        archived(broker, root, LIVE)
        compact(root)
        root = root.rename(tmp_path / "b")
        again = _planned(root, Options(topics=("plant/#",), allow_retain=True, rows_per_second=5))
        assert (again.replay_id, again.state) == (first.replay_id, first.state) and state_of(root).number > first.state.number
        later = _later(again)
        assert later
        assert set(later) == {key for key, each in state_of(root).reached.items() if each != first.state.reached.get(key)}
        others = [Options(), Options(topics=("plant/+",)), Options(topics=("plant/#",), again="2"), Options(topics=("plant/#",), prefix="")]
        names = {_planned(root, each).replay_id for each in others}
        assert len(names) == 4 and first.replay_id not in names
        assert _planned(root, Options()).state.number == state_of(root).number


def test_files_outside_of_the_range_are_not_read(tmp_path: Path) -> None:
    """By time and by offset."""
    with store(per_generation=20, generations=3) as (broker, _):
        archived(broker, tmp_path)
        files = sorted(state_of(tmp_path).files.values(), key=lambda file: file.ts_first)
        assert len(files) == 3
        middle = files[1]
        found = _planned(tmp_path, Options(from_ms=middle.ts_first // 1000, before_ms=middle.ts_last // 1000 + 1)).files
        assert found == (middle,)
        assert _planned(tmp_path, Options(before_ms=files[0].ts_first // 1000)).files == ()
        below = {0: (0, min(piece.first for piece in middle.pieces))}
        assert _planned(tmp_path, Options(offsets=below)).files == (files[0],)


def test_what_is_no_archive_is_one_sentence(tmp_path: Path) -> None:
    """And nothing is made there."""
    with pytest.raises(ArchiveError, match="is not an archive, or an empty one"):
        _planned(tmp_path, Options())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.needs("spark")
@pytest.mark.timeout(600)
def test_a_restored_range_is_there_once_in_its_order(spark: SparkSession, tmp_path: Path) -> None:
    """Run twice, and once more when the archive has grown and was rewritten; below the prefix."""
    with store(per_generation=60, generations=2) as (broker, published):
        root = tmp_path / "lake"
        archived(broker, root, LIVE)
        where = {"brokers": broker.address, "token": broker.token}
        options = Options(topics=("plant/#", "odd/#"), partitions=3)
        wanted = published_in_order(published, (b"plant/", b"odd/"))
        frame = restore.messages(spark, root, options)
        assert Counter(row.topic for row in frame.select("topic").collect()) == Counter(
            topic for (_, topic), payloads in wanted.items() for _ in payloads
        )
        done = restore.run(spark, root, options, where)
        assert done.rows == sum(map(len, wanted.values()))
        assert ordered(stored(broker, tmp_path / "1"), "restore/") == wanted
        assert restore.run(spark, root, options, where).replay_id == done.replay_id
        broker.publish(*messages(20, 5))
        archived(broker, root, LIVE)
        compact(root)
        assert restore.run(spark, root, options, where).rows == done.rows
        assert ordered(stored(broker, tmp_path / "2"), "restore/") == wanted
        restore.run(spark, root, replace(options, again="once more"), where)
        twice = ordered(stored(broker, tmp_path / "3"), "restore/")
        assert {key: len(payloads) for key, payloads in twice.items()} != {key: len(payloads) for key, payloads in wanted.items()}
