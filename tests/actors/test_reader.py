"""What the reader reads is what was stored: all of it, each once, never above the cut, whatever the bounds, the filters and the hour."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from holdfast_spark.protocol import BLOCK_BYTES_MAX, BLOCK_ROWS_MAX
from mqtt.topics import matches
from shards.options import StoreOptions
from tests.actors.calling import Got, caller
from tests.actors.served import HOUR_MS, Said, Served, said, served

LAYOUTS = ("pagestream", "skipstream", "record_batch", "wildcard_optimized")


def many(count: int, *, start: int = 0, topics: int = 30, clients: int = 5) -> list[Said]:
    return [said(b"plant/%d/t%d" % (n % 3, n % topics), b"%d" % n, b"c%d" % (n % clients)) for n in range(start, start + count)]


def shown(rows: list[Got]) -> list[tuple[bytes, bytes, bytes]]:
    return sorted((row.topic, row.payload, row.client) for row in rows)


def of(messages: list[Said], *filters: bytes) -> list[tuple[bytes, bytes, bytes]]:
    return sorted((each.topic, each.payload, each.client) for each in messages if any(matches(f, each.topic) for f in filters or (b"#",)))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_everything_that_was_stored_comes_once_over_rolls_and_shards(layout: str) -> None:
    """Units of a plan are disjoint and leave nothing out; rows of a topic and publisher come in the order of their positions."""
    first, second, third = many(300), many(200, start=300), many(100, start=500)
    with served(*first, n_shards=2, layout=layout) as broker, caller(broker) as reader:
        broker.roll()
        broker.publish(*second)
        broker.roll()
        broker.publish(*third)
        rows = reader.everything(broker, "#")
        assert shown(rows) == of(first + second + third)
        for client in {row.client for row in rows}:
            for topic in {row.topic for row in rows}:
                payloads = [int(row.payload) for row in rows if (row.client, row.topic) == (client, topic)]
                assert payloads == sorted(payloads)


@pytest.mark.parametrize(
    "filters",
    [["plant/1/#"], ["plant/+/t3"], ["plant/1/t1", "plant/+/t1"], ["plant/0/t0", "plant/2/t2", "plant/1/+"], ["nobody/#"], ["$app/#"]],
)
@pytest.mark.parametrize("thresholds", [(100, 10), (1, 1)])
def test_only_what_a_filter_matches_comes_and_what_several_match_comes_once(filters: list[str], thresholds: tuple[int, ...]) -> None:
    """With few streams and many levels in each, or the other way round."""

    messages = [*many(200), said(b"$app/x", b"y"), said(b"plant", b"parent")]
    with served(*messages, store=StoreOptions("skipstream", thresholds)) as broker, caller(broker) as reader:
        assert shown(reader.everything(broker, *filters)) == of(messages, *[each.encode() for each in filters])


def test_no_filter_at_all_is_everything_that_is_stored() -> None:
    """Also what begins with $, which no wildcard meets."""
    messages = [*many(20), said(b"$app/x", b"y")]
    with served(*messages) as broker, caller(broker) as reader:
        assert shown(reader.everything(broker)) == of(messages, b"#", b"$app/#")


def test_a_scan_of_clients_gives_what_those_have_published() -> None:
    """And the plan asks only the shards where they are at home."""
    messages = many(200, clients=7)
    with served(*messages, n_shards=3) as broker, caller(broker) as reader:
        rows = reader.everything(broker, "#", clients=["c1", "c4", "nobody"])
        assert shown(rows) == of([each for each in messages if each.client in (b"c1", b"c4")])
        home = broker.shards.table.shard_of(b"c1")
        assert {unit["shard"] for unit in reader.plan("#", clients=["c1"])} == {home}


def test_a_range_reads_the_same_twice_and_as_its_parts() -> None:
    """[a,b) twice gives the same bytes; [a,b) and [b,c) give what [a,c) gives, also when more is written and rolled in between."""
    messages = many(500)
    with served(*messages) as broker, caller(broker) as reader:
        (unit,) = reader.plan("#")
        whole = reader.scan(broker, unit, "#")
        positions = sorted(row.position for row in whole.rows)
        broker.publish(*many(100, start=500))
        broker.roll()
        assert reader.scan(broker, unit, "#").raw == whole.raw
        for b in (positions[0], positions[100], positions[250] + 1, positions[-1]):
            parts = [reader.scan(broker, {**unit, "from": low, "to": high}, "#").rows for low, high in ((0, b), (b, unit["to"]))]
            assert all(row.position < b for row in parts[0]) and all(row.position >= b for row in parts[1])
            assert sorted(parts[0] + parts[1]) == sorted(whole.rows)


def test_a_range_is_planned_the_same_whatever_came_behind_it() -> None:
    """Also when it is in a sealed generation by then: what a task writes by its number (docs/reader.md) it writes again at a second try."""
    with served(*many(1500)) as broker, caller(broker) as reader:
        broker.roll()
        # Marks come with records; the last of these lies before the cut.
        for start in range(1500, 4000, 100):
            broker.publish(*many(100, start=start))
        cut = reader.cut()

        def planned(end: int) -> list[tuple[int, int, int, int]]:
            assert reader.cut() >= end, "the reader has seen what came since"
            answer = reader.ask("PLAN", from_={"0": 0}, to={"0": end}, filters=["#"], clients=None, shards=None, rows_per_unit=960)
            return [(unit["generation"], unit["from"], unit["to"], unit["rows"]) for unit in answer["units"]]

        ends = [cut, cut - 1, cut - 2_500]
        before = [planned(end) for end in ends]
        assert len(before[0]) > 3, "it is split, or this test shows nothing"
        broker.shards.pass_time(10_000)
        for start in (4000, 6000):
            broker.publish(*many(2000, start=start))
            assert [planned(end) for end in ends] == before
        broker.roll()
        assert [planned(end) for end in ends] == before

        at_a_roll = reader.cut()
        whole = planned(at_a_roll)
        broker.publish(*many(100, start=9000))
        assert planned(at_a_roll) == whole


def test_blocks_keep_their_bounds_and_a_first_value_is_never_too_large() -> None:
    """So a client knows how much room it needs."""
    large = [said(b"large", bytes(3 << 20)), said(b"large", bytes(3 << 20)), said(b"large", bytes(9 << 20)), said(b"large", b"small")]
    messages = [*large, *many(20_000, topics=3, clients=1)]
    with served(*messages) as broker, caller(broker) as reader:
        scanned = reader.scan(broker, reader.plan("#")[0], "#")
        assert len(scanned.rows) == len(messages)
        assert all(0 < rows <= BLOCK_ROWS_MAX and (size <= BLOCK_BYTES_MAX or rows == 1) for rows, size in scanned.sizes)
        assert len(scanned.sizes) < 12, "blocks are filled"


def test_nothing_is_read_above_the_cut_that_the_shard_told() -> None:
    """What is written and not committed may be lost; it is in the files and in no answer."""
    with served(*many(50)) as broker, caller(broker) as reader:
        core = broker.shards.cores[0]
        cut = reader.cut()
        # In the log of the engine, and not committed: the sync has not come back.
        core.tick = lambda ms=1, sync=True: type(core).tick(core, ms, False)  # type: ignore[method-assign]
        with broker.shards.lock:
            from shards.frames import Publish

            core.request(1, Publish(b"publisher", 0, False, core.now_ms, b"\2", [1], [b"plant/0/t0"], [b"\0never"]))
            core.request(1, Publish(b"c0", broker.shards._conns[b"c0"], False, core.now_ms, b"\2", [1], [b"plant/0/t0"], [b"\0never"]))
            core.tick()
        assert core.uncommitted
        assert reader.cut() == cut
        (unit,) = reader.plan("#")
        assert unit["to"] == cut and b"never" not in {row.payload for row in reader.scan(broker, unit, "#").rows}
        assert broker.views.fresh([0])[0].view.position >= core.uncommitted[-1], "it is in the files, or this test shows nothing"
        answer = reader.scan(broker, {**unit, "to": cut + 1_000_000}, "#")
        assert answer.end["error"] == "REQUEST" and not answer.rows


@pytest.mark.slow
@pytest.mark.parametrize("layout", LAYOUTS)
def test_scans_beside_writes_and_rolls_are_exact(layout: str) -> None:
    """Each reads to the newest cut, over and over; what it gives is what was acknowledged by then, and the union is everything."""
    batches = [many(200, start=200 * number) for number in range(12)]
    with served(layout=layout) as broker:
        seen: list[list[tuple[int, Got]]] = [[], []]
        done = threading.Event()
        failures: list[BaseException] = []

        def follow(mine: list[tuple[int, Got]]) -> None:
            try:
                with caller(broker) as reader:
                    begin, last = 0, False
                    while not last:
                        last = done.is_set()
                        end = reader.cut()
                        asked: dict[str, Any] = {"from_": {"0": begin}, "to": {"0": end}, "filters": ["#"], "rows_per_unit": 100}
                        for unit in reader.ask("PLAN", **asked)["units"]:
                            mine += [(unit["generation"], row) for row in reader.scan(broker, unit, "#").rows]
                        begin = end
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=follow, args=(mine,)) for mine in seen]
        for thread in threads:
            thread.start()
        for number, batch in enumerate(batches):
            broker.publish(*batch)
            if number % 4 == 3:
                broker.roll()
        done.set()
        for thread in threads:
            thread.join(60)
        assert not failures
        everything = of([each for batch in batches for each in batch])
        for mine in seen:
            assert shown([row for _, row in mine]) == everything
            assert len({generation for generation, _ in mine}) >= 3


def test_what_was_dropped_is_lost_with_its_range_and_never_an_empty_answer() -> None:
    """A plan tells the gap; a scan that was planned before is refused with it."""
    with served(*many(50)) as broker, caller(broker) as reader:
        (before,) = reader.plan("#")
        broker.roll()
        broker.publish(*many(20, start=50))
        found = reader.cuts()[0]
        sealed = found["generations"][0]
        assert reader.scan(broker, before, "#").end["trailer"]["rows"] == 50
        broker.drop(sealed["id"])
        assert reader.cuts()[0]["gone"] == [
            {"shard": 0, "generation": sealed["id"], "class": "default", "from": 0, "to": sealed["until"], "reason": "period"}
        ]
        end = reader.scan(broker, before, "#").end
        assert end["error"] == "LOST" and end["gaps"][0] | {"from": 0, "to": before["to"]} == end["gaps"][0]
        cut = reader.cut()
        asked: dict[str, Any] = {"from_": {"0": 5}, "to": {"0": cut}, "filters": ["#"], "rows_per_unit": 1000}
        plan = reader.ask("PLAN", **asked)
        assert [(gap["from"], gap["to"]) for gap in plan["gaps"]] == [(5, sealed["until"])]
        assert [unit["from"] for unit in plan["units"]] == [sealed["until"]]
        later = reader.ask("PLAN", **{**asked, "from_": {"0": sealed["until"]}})
        assert later["gaps"] == [] and reader.cuts()[0]["earliest"] == sealed["until"]


def test_cuts_tell_what_each_generation_is() -> None:
    """A current one has no end; a sealed one knows when it ended and what it holds."""
    with served(*many(30)) as broker, caller(broker) as reader:
        broker.roll()
        broker.publish(*many(10, start=30))
        found = reader.cuts()[0]
        sealed, *_, current = found["generations"]
        assert found["earliest"] == 0 and current["until"] is None and current["sealed_ms"] is None
        assert sealed["until"] is not None and sealed["created_ms"] < sealed["sealed_ms"] == found["generations"][1]["created_ms"]
        assert (sealed["rows"], current["rows"]) == (30, 10) and sealed["bytes"] > 30 * 16
        assert sealed["class"] == "default" and sealed["layout"] == "skipstream"
        assert found["cut"] > current["since"] >= sealed["until"]


def test_times_are_found_by_marks() -> None:
    """Nothing younger than the time less a minute is before the position, and nothing older than it plus a minute behind the other."""
    with served(*many(10)) as broker, caller(broker) as reader:
        times: list[tuple[int, int]] = []
        for number in range(20):
            broker.shards.pass_time(60_000)
            now = broker.shards.cores[0].now_ms
            broker.publish(Said(b"plant/0/t0", b"%d" % number, published_at_ms=now))
            times.append((now, max(row.position for row in reader.everything(broker, "#"))))
        asked = [times[3][0], times[10][0], 0, times[-1][0] + HOUR_MS]
        answer = reader.ask("FIND", ms=asked)
        for ms, position, behind in zip(asked, answer["positions"]["0"], answer["behind"]["0"], strict=True):
            assert all(at >= position for when, at in times if when >= ms - 60_000)
            assert behind is None or all(at < behind for when, at in times if when < ms)
        assert 0 < answer["positions"]["0"][0] < answer["positions"]["0"][1], "it says something"
        assert answer["behind"]["0"][0] < answer["behind"]["0"][1] and answer["behind"]["0"][3] is None


@pytest.mark.slow
@pytest.mark.parametrize("rolled", [False, True])
def test_a_limit_is_kept_and_gets_on(rolled: bool) -> None:
    """Never more rows than asked for over all shards; always some while there are any; in the end everything was given."""
    with served(n_shards=2) as broker, caller(broker) as reader:
        clients = [next(c for c in (b"c%d" % n for n in range(99)) if broker.shards.table.shard_of(c) == shard) for shard in (0, 1)]
        for client, sizes in zip(clients, ((17, 0, 40), (1, 1, 0, 0)), strict=True):
            for number, size in enumerate(sizes):
                broker.publish(*[said(b"t/%d" % (n % 3), b"", client) for n in range(size)])
                if rolled and number == 1:
                    broker.roll()
        cuts = {str(shard): found["cut"] for shard, found in reader.cuts().items()}
        for rows in (1, 7, 58, 1000):
            place = dict.fromkeys(cuts, 0)
            given = 0
            while place != cuts:
                reached = reader.ask("LIMIT", from_=place, to=cuts, rows=rows, bytes=None)["to"]
                got = _between(broker, reader, place, reached)
                assert got <= rows and reached != place and all(place[s] <= reached[s] <= cuts[s] for s in cuts)
                given, place = given + got, reached
            assert given == 59


def _between(broker: Served, reader: Any, begin: dict[str, int], end: dict[str, int]) -> int:
    units = reader.ask("PLAN", from_=begin, to=end, filters=["#"], rows_per_unit=10**9)["units"]
    return sum(len(reader.scan(broker, unit, "#").rows) for unit in units)


def test_a_limit_in_bytes_is_about_kept_and_one_row_is_never_too_large() -> None:
    """Admission control must not stand still before a message that is larger than its bound."""
    with served(*[said(b"t", bytes(10_000)) for _ in range(20)]) as broker, caller(broker) as reader:
        cut = reader.cut()
        place, steps = 0, []
        while place != cut:
            reached = reader.ask("LIMIT", from_={"0": place}, to={"0": cut}, rows=None, bytes=25_000)["to"]["0"]
            steps.append(_between(broker, reader, {"0": place}, {"0": reached}))
            assert reached > place
            place = reached
        assert sum(steps) == 20 and max(steps) <= 2
        assert _between(broker, reader, {"0": 0}, reader.ask("LIMIT", from_={"0": 0}, to={"0": cut}, rows=None, bytes=1)["to"]) == 1
        assert reader.ask("LIMIT", from_={"0": 0}, to={"0": cut}, rows=None, bytes=None)["to"] == {"0": cut}
