"""When generations roll (shards/housekeeping.py): by time, by size, by another map of classes; and what is captured (shards/routes.py)."""

from __future__ import annotations

from collections import Counter
from itertools import groupby, pairwise

import pytest

from shards.classes import NO_CLASSES, ClassMap, RetentionClass
from shards.engine import index_of
from shards.engine_memory import MemoryEngine
from shards.events import SettingsChanged
from shards.frames import NOBODY, Place, Published, Route
from shards.housekeeping import PREPARED_AT
from shards.layouts.registry import LAYOUTS
from shards.options import GENERATIONS_MAX_BY_SIZE, ShardOptions, StoreOptions
from shards.routes import Routes
from tests.shards.harness import G, Harness, S, connect, linked, poll, publish, route, topics
from tests.shards.test_cutoff import all_of

HOUR_MS = 3_600_000
GOLD = RetentionClass("gold", b"gold/#", 100 * HOUR_MS)
DUST = RetentionClass("dust", b"dust/#", 2_000)
BOTH = ClassMap((GOLD, DUST))
STORED = Published(False, b"")
FOR_NOBODY = Published(False, bytes((NOBODY,)))


def shard(classes: ClassMap = NO_CLASSES, **options: object) -> Harness:
    made = Harness(options=ShardOptions(**options), store=StoreOptions(thresholds=(100, 2), classes=classes))  # type: ignore[arg-type]
    made.link(G, "gateway", "g0:a")
    made.link(S, "session", "s0:a")
    return made


def classes_of(h: Harness) -> list[tuple[int, str, bool]]:
    """(id, class, whether it is current)."""
    return [(info.id, info.klass, info.until is None) for info in h.core._store.generations()]


# ------------------------------------------------------------------ by layout


def test_a_generation_whose_index_is_never_written_is_sealed_at_once() -> None:
    # Property: of several sites, as of a backup of one site, whose layout has such an index; and none that follows, again and again.
    h = Harness(store=StoreOptions("pagestream"))
    h.link(G, "gateway", "g0:a")
    h.link(S, "session", "s0:a")
    conn = connect(h, b"p").conn
    route(h, b"t")
    h.ask(G, publish(b"p", conn, *[b"t"] * 10))
    for store, replicated in ((StoreOptions("pagestream"), True), (StoreOptions("skipstream"), False)):
        h.store, h.replicated = store, replicated
        reopened(h)
        h.tick(2_000)
        assert layouts_of(h) == ["pagestream"], "the next one would be no better, or it is written after all"
    h.replicated = True
    reopened(h)
    for _ in range(5):
        h.tick(2_000)
    assert layouts_of(h) == ["pagestream", "skipstream"]
    assert len(topics(poll(h, b"t", Place(0), count=1000))) == 10


def layouts_of(h: Harness) -> list[str]:
    return [info.layout for info in h.core._store.generations()]


def reopened(h: Harness) -> None:
    h.reopen()
    h.link(G, "gateway", "g0:a")
    h.link(S, "session", "s0:a")


@pytest.mark.parametrize("layout", sorted(LAYOUTS))
@pytest.mark.parametrize("level_bytes", range(1, 12))
def test_what_was_learned_goes_with_a_roll_whatever_it_is_long(layout: str, level_bytes: int) -> None:
    # Property: rows of the topic structure stand in the record of the roll; of none of them the key is taken for that of a message.
    h = Harness(store=StoreOptions(layout, (100, 2)))
    h.link(G, "gateway", "g0:a")
    h.link(S, "session", "s0:a")
    conn = connect(h, b"p").conn
    route(h, b"#")
    # What varies below each of twenty levels is what the next generation begins with.
    names = [b"%c" % (97 + number) * level_bytes + b"/%d" % below for number in range(20) for below in range(4)]
    h.ask(G, publish(b"p", conn, *names))
    h.core._draft.ops.extend(h.core._store.roll(h.core._clock.take(), 0, 0))
    h.ask(G, publish(b"p", conn, *names))
    h.tick()
    assert layouts_of(h) == [layout, layout]
    reopened(h)
    found, _ = all_of(h, b"#", Place(0))
    assert Counter(found) == dict.fromkeys(names, 2)


@pytest.mark.parametrize("full", [False, True])
def test_a_generation_that_was_dropped_is_erased_one_family_at_a_time(full: bool) -> None:
    # Property: RocksDB takes long for each, so an index and its messages do not go at once; and all of it is gone in the end, also when
    # the disk is full from then on, and nothing is written.
    h = Harness(options=ShardOptions(generation_ms=1_000, retention_ms=10_000), store=StoreOptions("pagestream", (0,)))
    h.link(G, "gateway", "g0:a")
    h.link(S, "session", "s0:a")
    conn = connect(h, b"p").conn
    route(h, b"#")
    for _ in range(3):
        h.ask(G, publish(b"p", conn, *[b"a/%d" % number for number in range(9_000)]))
        while h.core._store.idle_work(h.core.watermark):
            pass
        h.tick(1_100)
    first = h.core._store.generations()[0].id
    assert h.engine.has_family(index_of(first))
    seen = []
    for _ in range(40):
        h.tick(500)
        if full and not h.engine.has_family(index_of(first)):
            h.space(2)
        seen.append((h.engine.has_family(index_of(first)), h.engine.has_family(first)))
    assert [states for states, _ in groupby(seen)] == [(True, True), (False, True), (False, False)]


# ------------------------------------------------------------------ by size


def test_a_generation_that_is_full_is_sealed_whatever_its_age() -> None:
    # Property: within a second of the publish that fills it, and not before.
    h = shard(generation_bytes=2_000)
    conn = connect(h, b"p").conn
    route(h, b"t")
    sizes = []
    for _ in range(200):
        h.ask(G, publish(b"p", conn, b"t"))
        sizes.append(h.core._store.bytes_put[h.core._store.currents()[0].id])
        h.tick(1_000)
    rolled = [before for before, after in pairwise(sizes) if after < before]
    assert rolled and all(2_000 <= size < 2_100 for size in rolled)
    assert len(h.core._store.generations()) == len(rolled) + 1
    assert len(topics(poll(h, b"t", Place(0), count=1000))) == 200


def test_what_a_generation_holds_counts_over_a_restart() -> None:
    # Property: a shard that restarts often does not fill one generation without end.
    h = shard(generation_bytes=5_000)
    for _ in range(40):
        conn = connect(h, b"p").conn
        route(h, b"t")
        h.ask(G, publish(b"p", conn, *[b"t"] * 10))
        h.tick(1_000)
        h.reopen()
        h.link(G, "gateway", "g0:a")
        h.link(S, "session", "s0:a")
    assert len(h.core._store.generations()) > 1


def test_size_makes_only_so_many_generations_and_time_goes_on() -> None:
    # Property: beyond GENERATIONS_MAX_BY_SIZE only time rolls.
    h = shard(generation_bytes=1, generation_ms=HOUR_MS)
    conn = connect(h, b"p").conn
    route(h, b"t")
    for _ in range(GENERATIONS_MAX_BY_SIZE + 20):
        h.ask(G, publish(b"p", conn, b"t"))
        h.tick(1_000)
    assert len(h.core._store.generations()) == GENERATIONS_MAX_BY_SIZE
    h.pass_time(HOUR_MS)
    conn = connect(h, b"p").conn
    h.ask(G, publish(b"p", conn, b"t"))
    h.tick(1_000)
    assert len(h.core._store.generations()) == GENERATIONS_MAX_BY_SIZE + 1


# ------------------------------------------------------------------ by time


def test_a_class_with_a_short_period_has_short_generations() -> None:
    # Property: generation_length, or the period of the class when that is shorter; each class by itself, and they go by it.
    h = shard(BOTH, generation_ms=10_000, retention_ms=HOUR_MS)
    connect(h, b"p")
    made = {"default": 1, "gold": 1, "dust": 1}
    for _ in range(60):
        h.tick(1_000)
        for _, klass, _ in classes_of(h):
            made[klass] = max(made[klass], sum(1 for info in h.core._store.generations() if info.klass == klass))
    rolls = h.core._store.generations()[-1].id - 3
    assert made["default"] >= 5 and made["gold"] >= 5
    assert made["dust"] <= 3, "what is sealed goes after two seconds"
    assert rolls > 25, "dust rolls every two or three seconds"


def test_one_class_rolls_in_a_turn_and_all_come_to_it() -> None:
    # Property: classes that are due together do not make the loop wait for all their families, and none is left out for ever.
    h = shard(BOTH, generation_ms=1_000, retention_ms=HOUR_MS)
    connect(h, b"p")
    before = len(h.core._store.generations())
    seen: list[str] = []
    for _ in range(12):
        h.tick(1_000)
        now = h.core._store.generations()
        assert now[-1].id - before <= 1
        if now[-1].id > before:
            seen.append(now[-1].klass)
        before = now[-1].id
    assert set(seen) == {"default", "gold", "dust"} and len(seen) >= 11


def test_the_next_family_is_made_before_it_is_wanted() -> None:
    # Property: near the end of a generation, by time or by size, the roll finds its family made.
    h = shard(generation_ms=100_000)
    connect(h, b"p")
    h.tick(int(100_000 * PREPARED_AT) - 2_000)
    assert h.engine.families() == [0, 1]
    h.tick(3_000)
    assert h.engine.families() == [0, 1, 2] and classes_of(h) == [(1, "default", True)]
    h.tick(10_000)
    assert classes_of(h) == [(1, "default", False), (2, "default", True)] and h.engine.families() == [0, 1, 2]


# ------------------------------------------------------------------ by another map


def test_another_map_in_the_settings_rolls_all_classes_at_one_position() -> None:
    # Property: live and at a start; messages of a topic that changes its class come in order.
    h = shard()
    conn = connect(h, b"p", expiry_s=600).conn
    position = route(h, b"#")
    h.ask(G, publish(b"p", conn, b"gold/a", b"x"))
    h.core.handle(SettingsChanged(h.options, StoreOptions(classes=BOTH)))
    h.ask(G, publish(b"p", conn, b"gold/a", b"dust/a"))
    for _ in range(5):
        h.tick(20)
    assert classes_of(h) == [(1, "default", False), (2, "default", True), (3, "gold", True), (4, "dust", True)]
    assert {info.since for info in h.core._store.currents()} == {h.core._store.generations()[0].until}
    h.ask(G, publish(b"p", conn, b"gold/a", b"dust/a"))
    h.store = StoreOptions(classes=ClassMap((DUST,)))
    h.reopen()
    h.link(G, "gateway", "g0:a")
    h.link(S, "session", "s0:a")
    for _ in range(5):
        h.tick(20)
    assert [(klass, current) for _, klass, current in classes_of(h) if current] == [("default", True), ("dust", True)]
    conn = connect(h, b"p", expiry_s=600).conn
    assert h.ask(G, publish(b"p", conn, b"gold/a")) == [STORED]
    polled = poll(h, b"gold/#", Place(position))
    positions = [at for segment in polled.segments for at in segment.positions]
    assert topics(polled) == [b"gold/a"] * 4 and positions == sorted(positions)


def test_a_class_that_has_gone_is_kept_for_the_period_it_had() -> None:
    # Property: taking a class out of the map shortens and lengthens nothing of what was stored under it.
    h = shard(BOTH, generation_ms=HOUR_MS, retention_ms=4_000)
    h.core.handle(SettingsChanged(h.options, StoreOptions(classes=NO_CLASSES)))
    for _ in range(5):
        h.tick(20)
    h.pass_time(60_000)
    assert {klass for _, klass, _ in classes_of(h)} == {"default", "gold"}
    h.pass_time(101 * HOUR_MS)
    assert {klass for _, klass, _ in classes_of(h)} == {"default"}


def test_no_map_comes_into_force_on_a_full_disk() -> None:
    # Property: families are made outside of records, so all that waits until there is room.
    h = shard()
    h.space(2)
    h.core.handle(SettingsChanged(h.options, StoreOptions(classes=BOTH)))
    for _ in range(5):
        h.tick(1_000)
    assert classes_of(h) == [(1, "default", True)] and h.engine.families() == [0, 1]
    h.space(0)
    for _ in range(5):
        h.tick(20)
    assert len(classes_of(h)) == 4


def test_a_publish_goes_on_with_new_keys_after_a_roll_of_another_class() -> None:
    # Property: what was remembered of a topic is looked up anew after any roll, and only then.
    h = shard(BOTH)
    conn = connect(h, b"p").conn
    position = route(h, b"#")
    for turn in range(6):
        assert h.ask(G, publish(b"p", conn, b"x", b"gold/x", b"dust/x")) == [STORED]
        klass = ("default", "gold", "dust")[turn % 3]
        h.core._draft.ops.extend(h.core._store.roll(h.core._clock.take(), 0, 0, klass))
        h.tick()
    for topic_filter in (b"x", b"gold/x", b"dust/x"):
        assert topics(poll(h, topic_filter, Place(position))) == [topic_filter] * 6


def test_wills_and_messages_count_for_their_class() -> None:
    # Property: bytes_put is the bytes of the stored messages of that class.
    h = shard(BOTH)
    conn = connect(h, b"p").conn
    position = route(h, b"#")
    h.ask(G, publish(b"p", conn, b"x", b"gold/x", b"gold/y"))
    values = [value for segment in poll(h, b"gold/#", Place(position)).segments for value in segment.values]
    assert h.core._store.bytes_put[2] == sum(len(value) for value in values) > 0
    assert h.core._store.bytes_put[3] == 0


# ------------------------------------------------------------------ captured


def test_a_captured_topic_is_stored_though_nobody_wants_it() -> None:
    # Property: answered as stored, and there for whoever comes later; other topics are not.
    h = linked()
    conn = connect(h, b"p").conn
    before = h.core.watermark
    assert h.ask(G, publish(b"p", conn, b"a/b", b"x")) == [Published(False, bytes((NOBODY, NOBODY)))]
    h.core.handle(SettingsChanged(ShardOptions(capture=(b"a/+", b"lit")), StoreOptions()))
    assert h.ask(G, publish(b"p", conn, b"a/b", b"x", b"lit")) == [Published(False, bytes((0, NOBODY, 0)))]
    h.core.handle(SettingsChanged(ShardOptions(), StoreOptions()))
    assert h.ask(G, publish(b"p", conn, b"a/b")) == [FOR_NOBODY]
    assert sorted(topics(poll(h, b"#", Place(before)))) == [b"a/b", b"lit"]


def test_what_is_captured_is_captured_again_after_a_restart_and_never_on_disk() -> None:
    # Property: the settings say it, not the store.
    h = shard(capture=(b"a",))
    conn = connect(h, b"p").conn
    assert h.ask(G, publish(b"p", conn, b"a")) == [STORED]
    assert h.core.counters["routes"] == 0
    h.reopen()
    h.link(G, "gateway", "g0:a")
    conn = connect(h, b"p").conn
    assert h.ask(G, publish(b"p", conn, b"a")) == [STORED]
    assert len(Routes(h.engine)) == 0 and not Routes(h.engine).wanted(b"a")


@pytest.mark.parametrize("topic_filter", [b"a", b"+", b"#"])
def test_a_captured_filter_and_a_route_do_not_end_each_other(topic_filter: bytes) -> None:
    # Property: a topic is wanted as long as one of them wants it.
    h = shard(capture=(topic_filter, topic_filter))
    conn = connect(h, b"p").conn
    route(h, topic_filter)
    h.core.handle(SettingsChanged(ShardOptions(), StoreOptions()))
    assert h.ask(G, publish(b"p", conn, b"a")) == [STORED]
    h.core.handle(SettingsChanged(ShardOptions(capture=(topic_filter,)), StoreOptions()))
    h.ask(S, Route([], [(7, topic_filter)]))
    assert h.ask(G, publish(b"p", conn, b"a")) == [STORED]
    h.core.handle(SettingsChanged(ShardOptions(), StoreOptions()))
    assert h.ask(G, publish(b"p", conn, b"a")) == [FOR_NOBODY]


def test_owners_of_captured_filters_do_not_disturb_each_other() -> None:
    # Property: each names its own; what changes no answer is not a change.
    routes = Routes(MemoryEngine(), [b"a"])
    routes.capture("lease x", [b"a", b"b/#"])
    stamp = routes.generation
    routes.capture("lease x", [b"a", b"b/#"])
    routes.capture("lease y", [])
    assert routes.generation == stamp
    routes.capture("", [])
    assert routes.wanted(b"a") and routes.wanted(b"b/c") and routes.generation == stamp
    routes.capture("lease x", [b"c"])
    assert routes.generation > stamp
    assert [routes.wanted(topic) for topic in (b"a", b"b/c", b"c")] == [False, False, True]
    routes.capture("lease x", [])
    assert not routes.wanted(b"c") and not routes._literal and not len(routes._wild)
