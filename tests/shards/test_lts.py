"""The learned topic structure (shards/lts.py) against the plain meaning of topic filters."""

from __future__ import annotations

import random

import pytest

from shards.lts import BadStructure, Leaf, Row, StructureMismatch, TopicStructure
from tests.shards.topic_model import any_filter, any_topic, matches

GOLDEN_A_B = "f7c62a895291b5f8"
GOLDEN_X = ["3dc68b4f9b17b58c", "1a6d64a067863615"]
THRESHOLDS: tuple[tuple[int | None, ...], ...] = ((100, 10), (2, 1), (0,), (1, 0, 3), (None,), (None, 2), (5,))


def taught(topics: list[bytes], thresholds: tuple[int | None, ...]) -> TopicStructure:
    structure = TopicStructure(thresholds)
    for topic in topics:
        structure.learn(topic)
    return structure


def test_the_value_past_the_threshold_is_the_first_that_varies() -> None:
    # Property: with threshold N below a state, N values get streams of their own and every further one shares the + stream.
    structure = TopicStructure((1000, 4))
    before = [structure.learn(b"1/%d/1" % n) for n in range(4)]
    assert [varying for _, varying in before] == [[], [], [], []]
    assert len({leaf.static for leaf, _ in before}) == 4
    after = [structure.learn(b"1/%d/1" % n) for n in range(4, 40)]
    assert [varying for _, varying in after] == [[b"%d" % n] for n in range(4, 40)]
    assert {leaf for leaf, _ in after} == {Leaf(after[0][0].static, (b"1", None, b"1"), False)}
    assert [structure.learn(b"2/%d/1" % n)[1] for n in range(4)] == [[], [], [], []], "another prefix is not concerned"
    assert [structure.learn(b"1/%d/1" % n) for n in range(4)] == before, "what had a stream keeps it"


def test_the_last_threshold_holds_for_all_deeper_levels() -> None:
    # Property: depth beyond the tuple uses its last element; None never generalises; 0 always does.
    structure = TopicStructure((None, 0, 1))
    topics = [b"%d/x/%d/%d" % (n, n % 3, n) for n in range(200)]
    shapes = {structure.learn(topic)[0].levels[:2] for topic in topics}
    assert shapes == {(b"%d" % n, None) for n in range(200)}
    assert structure.learn(b"7/y/1/9")[1] == [b"y", b"9"]
    assert structure.learn(b"7/z/2/9")[1] == [b"z", b"2"]


def test_the_end_of_a_topic_is_never_generalised() -> None:
    # Property: all topics of a stream have the same number of levels.
    structure = taught([b"a/%d%s" % (n, b"/c" * (n % 3)) for n in range(300)], (2, 2))
    for leaf in structure.leaves():
        lengths = {len(leaf.levels)}
        assert lengths == {len(structure.decompress(leaf.static, [b"v"] * leaf.levels.count(None)).split(b"/"))}
    assert len({structure.learn(b"a/77" + b"/c" * n)[0].static for n in range(3)}) == 3


@pytest.mark.parametrize("thresholds", THRESHOLDS)
@pytest.mark.parametrize("seed", range(3))
def test_streams_of_a_filter_hold_exactly_the_topics_that_match(seed: int, thresholds: tuple[int | None, ...]) -> None:
    # Property: for any topics learned in any order, match + constraints select what [MQTT-4.7] selects, each topic once.
    rng = random.Random(f"{seed} {thresholds}")
    topics = sorted({any_topic(rng) for _ in range(500)})
    rng.shuffle(topics)
    structure = TopicStructure(thresholds)
    first = {topic: structure.learn(topic) for topic in topics}
    assert {topic: structure.learn(topic) for topic in topics} == first, "a topic's stream never changes"
    by_stream: dict[bytes, list[bytes]] = {}
    for topic, (leaf, varying) in first.items():
        assert structure.lookup(topic) == (leaf, varying)
        assert structure.leaf(leaf.static) == leaf
        assert structure.decompress(leaf.static, varying) == topic
        by_stream.setdefault(leaf.static, []).append(topic)
    assert len(structure) == len(by_stream)
    for _ in range(80):
        topic_filter = any_filter(rng)
        found = structure.match(topic_filter)
        statics = [leaf.static for leaf, _ in found]
        assert statics == sorted(set(statics)), "sorted, each stream once"
        selected = []
        for leaf, wanted in found:
            assert structure.compress(leaf.static, topic_filter) == wanted
            assert len(wanted) == leaf.levels.count(None)
            for topic in by_stream[leaf.static]:
                if all(value is None or value == has for value, has in zip(wanted, first[topic][1], strict=True)):
                    selected.append(topic)
        assert sorted(selected) == [topic for topic in sorted(topics) if matches(topic_filter, topic)], topic_filter
        for static in sorted(by_stream.keys() - set(statics))[:20]:
            with pytest.raises(StructureMismatch):
                structure.compress(static, topic_filter)


@pytest.mark.slow
def test_a_hundred_thousand_topics_are_found_by_their_filters() -> None:
    # Property: the same at the size of a fleet: no topic is moved, missed or found twice, and the structure stays small.
    rng = random.Random(1)
    topics = [b"fleet/%d/%s/%s" % (n % 33_000, rng.choice((b"temp", b"rpm")), rng.choice((b"now", b"hour"))) for n in range(90_000)]
    topics += [b"site/%d/line/%d/cell/%d" % (rng.randrange(40), rng.randrange(30), rng.randrange(500)) for _ in range(8_000)]
    topics += [any_topic(rng) for _ in range(2_000)]
    structure = TopicStructure((100, 10))
    first = {topic: structure.learn(topic) for topic in topics}
    assert all(structure.lookup(topic) == found for topic, found in first.items()), "nothing was moved by what came later"
    assert all(structure.decompress(leaf.static, varying) == topic for topic, (leaf, varying) in first.items())
    assert len(structure) < 5_000
    by_stream: dict[bytes, list[tuple[bytes, list[bytes]]]] = {}
    for topic, (leaf, varying) in first.items():
        by_stream.setdefault(leaf.static, []).append((topic, varying))
    filters = [b"fleet/+/temp/now", b"fleet/32999/#", b"fleet/+/+/hour", b"site/7/line/+/cell/12", b"+/+/line/#", b"#", any_filter(rng)]
    for topic_filter in filters:
        selected = [
            topic
            for leaf, wanted in structure.match(topic_filter)
            for topic, varying in by_stream[leaf.static]
            if all(value in (None, has) for value, has in zip(wanted, varying, strict=True))
        ]
        assert len(selected) == len(set(selected))
        assert set(selected) == {topic for topic in first if matches(topic_filter, topic)}, topic_filter


@pytest.mark.parametrize("seed", range(4))
def test_restored_from_its_growth_it_goes_on_as_if_never_stopped(seed: int) -> None:
    # Property: growth rows, in any order and however often taken, rebuild the same structure.
    rng = random.Random(seed)
    thresholds = rng.choice(THRESHOLDS)
    original = TopicStructure(thresholds)
    rows: list[Row] = []
    for _ in range(5):
        for _ in range(80):
            original.learn(any_topic(rng))
        rows += original.take_growth()
        assert original.take_growth() == []
    assert len({key for key, _ in rows}) == len(rows), "no row is written twice"
    rng.shuffle(rows)
    again = TopicStructure.restore(rows, thresholds)
    assert again.take_growth() == []
    assert again.leaves() == original.leaves()
    for _ in range(300):
        topic, topic_filter = any_topic(rng), any_filter(rng)
        assert again.lookup(topic) == original.lookup(topic)
        assert again.match(topic_filter) == original.match(topic_filter)
        assert again.learn(topic) == original.learn(topic)
    assert sorted(again.take_growth()) == sorted(original.take_growth())


def test_every_prefix_of_the_growth_can_be_restored() -> None:
    # Property: a crash between two records leaves a structure, as parents come before children in the growth.
    structure = taught([b"a/b/c", b"a/d", b"$SYS/x", b"a/e/f", b"a/g/h"], (2, 1))
    rows = structure.take_growth()
    for count in range(len(rows) + 1):
        TopicStructure.restore(rows[:count], (2, 1))


def test_the_same_topics_in_the_same_order_give_the_same_static_keys() -> None:
    # Property: static keys depend on the topics, not on the process: these must stay as they are for ever.
    structure = TopicStructure((2, 1))
    assert structure.learn(b"a/b")[0].static.hex() == GOLDEN_A_B
    assert [structure.learn(b"x/%d" % n)[0].static.hex() for n in (1, 2)] == GOLDEN_X


def test_rows_that_hang_in_the_air_are_refused() -> None:
    # Property: damaged structure is loud, never a smaller structure.
    rows = taught([b"a/b"], (9,)).take_growth()
    with pytest.raises(BadStructure):
        TopicStructure.restore(rows[1:])
    with pytest.raises(BadStructure):
        TopicStructure.restore([(b"Z" + rows[0][0][1:], rows[0][1])])
    with pytest.raises(BadStructure):
        TopicStructure.restore([(rows[0][0], b"short")])


def test_wildcards_at_the_first_level_do_not_meet_dollar_topics() -> None:
    # Property: [MQTT-4.7.2-1], structurally, also when the level has become varying.
    topics = [b"$%d/x" % n for n in range(20)] + [b"%d/x" % n for n in range(20)]
    structure = taught(topics, (3, 3))
    for topic_filter in (b"#", b"+/x", b"+/#", b"+/+"):
        assert all(leaf.levels[0] is None or leaf.levels[0][:1] != b"$" for leaf, _ in structure.match(topic_filter))
        reached = {leaf.static for leaf, _ in structure.match(topic_filter)}
        assert not reached & {structure.learn(b"$%d/x" % n)[0].static for n in range(20)}
    assert structure.match(b"$7/#") == [(structure.learn(b"$7/x")[0], (b"$7",))]


def test_hash_also_matches_the_level_above() -> None:
    # Property: a/# matches a [MQTT-4.7.1-2], with and without varying levels.
    structure = taught([b"a", b"a/b", b"a/b/c"], (9,))
    assert [leaf.levels for leaf, _ in sorted(structure.match(b"a/#"), key=lambda found: len(found[0].levels))] == [
        (b"a",),
        (b"a", b"b"),
        (b"a", b"b", b"c"),
    ]
    varying = taught([b"a", b"a/b"], (0,))
    assert {wanted for _, wanted in varying.match(b"a/#")} == {(b"a",), (b"a", None)}


@pytest.mark.parametrize("seed", range(4))
def test_the_next_generation_inherits_what_varies_and_nothing_else(seed: int) -> None:
    # Property: a topic with a varying level needs no growth in the heir and keeps its shape; a purely literal one is forgotten.
    rng = random.Random(seed)
    thresholds = rng.choice([t for t in THRESHOLDS if t != (None,)])
    old = TopicStructure(thresholds)
    topics = sorted({any_topic(rng) for _ in range(500)})
    rng.shuffle(topics)
    shapes = {topic: old.learn(topic) for topic in topics}
    old.take_growth()
    heir = old.inherit(thresholds)
    growth = heir.take_growth()
    for topic, (leaf, varying) in shapes.items():
        if varying:
            assert heir.lookup(topic) == (leaf, varying)
        else:
            known = heir.lookup(topic)
            assert known is None or known[1], f"{topic!r} had a literal stream and has one again"
    assert TopicStructure.restore(growth, thresholds).leaves() == heir.leaves()
    assert heir.inherit(thresholds).leaves() == heir.leaves()
    assert old.take_growth() == [], "the old generation is not touched"


def test_a_topic_of_many_levels_needs_no_recursion() -> None:
    # Property: depth is bounded by the topic's length only.
    topic = b"/" * 5_000
    structure = TopicStructure((1,))
    leaf, varying = structure.learn(topic)
    assert len(leaf.levels) == 5_001 and varying == []
    assert structure.match(b"#") == [(leaf, ())]
    assert structure.inherit((1,)).lookup(topic) is None
    assert TopicStructure.restore(structure.take_growth(), (1,)).learn(topic)[0] == leaf


def test_two_states_never_get_the_same_id() -> None:
    # Property: should the hash of a new state be in use, it gets another, which is found again after a restart.
    expected = TopicStructure((9,)).learn(b"a")[0].static
    structure = TopicStructure((9,))
    structure._states.add(expected)
    leaf, _ = structure.learn(b"a")
    assert leaf.static != expected
    assert TopicStructure.restore(structure.take_growth(), (9,)).learn(b"a")[0] == leaf


@pytest.mark.parametrize("thresholds", [(), (-1,), (3, -2)])
def test_thresholds_that_mean_nothing_are_refused(thresholds: tuple[int, ...]) -> None:
    # Property: a wrong configuration is met at once.
    with pytest.raises(ValueError, match="thresholds"):
        TopicStructure(thresholds)
