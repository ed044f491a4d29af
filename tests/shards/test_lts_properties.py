"""The learned topic structure over 10^5 generated topics: lives of learning, restarts and generations, against a plain matcher.

Twenty seeds of five rounds of a thousand topics, of the shapes that histories publish.
"""

from __future__ import annotations

import random

import pytest

from shards.lts import Row, StructureMismatch, TopicStructure
from tests.contracts.topic_shapes import SHAPES, some_filter
from tests.shards.topic_model import any_topic, matches

SEEDS, ROUNDS, TOPICS_PER_ROUND = 20, 5, 1000
THRESHOLDS: tuple[tuple[int | None, ...], ...] = ((100, 10), (2, 1), (0,), (1, 0, 3), (None,), (None, 2), (5,), (3, 0))


class Life:
    """One structure and what it was taught: topic -> (static key, levels, varying values)."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(f"lives {seed}")
        self.thresholds = self.rng.choice(THRESHOLDS)
        self.varying_max = self.rng.choice((None, None, 1, 2))
        self.structure = TopicStructure(self.thresholds, self.varying_max)
        self.rows: list[Row] = []
        self.known: dict[bytes, tuple[bytes, tuple[bytes | None, ...], list[bytes]]] = {}
        self.shapes = [self.rng.choice(SHAPES)(self.rng) for _ in range(3)]

    def learn(self) -> None:
        """Growth is taken at any point between two topics, as records end there."""
        rng = self.rng
        for _ in range(TOPICS_PER_ROUND):
            topic = rng.choice(self.shapes)(rng) if rng.random() < 0.8 else any_topic(rng)
            leaf, varying = self.structure.learn(topic)
            assert self.known.setdefault(topic, (leaf.static, leaf.levels, varying)) == (leaf.static, leaf.levels, varying), topic
            if rng.random() < 0.05:
                self.rows += self.structure.take_growth()
        self.rows += self.structure.take_growth()

    def restart(self) -> None:
        self.rng.shuffle(self.rows)
        again = TopicStructure.restore(self.rows, self.thresholds, self.varying_max)
        assert again.leaves() == self.structure.leaves() and again.take_growth() == []
        self.structure = again

    def inherit(self) -> None:
        """The next generation: what had a varying level is known to it, with the same values; nothing else is."""
        self.thresholds = self.rng.choice(THRESHOLDS)
        heir = self.structure.inherit(self.thresholds)
        for topic, (static, levels, varying) in self.known.items():
            found = heir.lookup(topic)
            if varying:
                assert found is not None and (found[0].static, found[0].levels, found[1]) == (static, levels, varying), topic
        assert all(None in leaf.levels for leaf in heir.leaves())
        assert {leaf.static for leaf in heir.leaves()} <= {leaf.static for leaf in self.structure.leaves()}
        self.structure, self.rows, self.known = heir, heir.take_growth(), {}

    def check(self) -> None:
        """Look-ups in both directions, and filters against the plain matcher."""
        structure, rng = self.structure, self.rng
        by_stream: dict[bytes, list[bytes]] = {}
        for topic, (static, levels, varying) in self.known.items():
            leaf = structure.leaf(static)
            assert leaf.levels == levels and structure.lookup(topic) == (leaf, varying)
            assert structure.decompress(static, varying) == topic
            assert structure.compress(static, topic) == tuple(varying), "a topic is a filter, too"
            assert self.varying_max is None or len(varying) <= self.varying_max
            by_stream.setdefault(static, []).append(topic)
        topics = rng.sample(sorted(self.known), min(20, len(self.known)))
        for topic_filter in [some_filter(topics, rng) for _ in range(4)]:
            found = structure.match(topic_filter)
            assert [leaf.static for leaf, _ in found] == sorted({leaf.static for leaf, _ in found})
            selected: list[bytes] = []
            for leaf, wanted in found:
                assert structure.compress(leaf.static, topic_filter) == wanted
                for topic in by_stream.get(leaf.static, ()):
                    if all(value in (None, has) for value, has in zip(wanted, self.known[topic][2], strict=True)):
                        selected.append(topic)
            assert sorted(selected) == sorted(topic for topic in self.known if matches(topic_filter, topic)), topic_filter
            for static in sorted(by_stream.keys() - {leaf.static for leaf, _ in found})[:10]:
                with pytest.raises(StructureMismatch):
                    structure.compress(static, topic_filter)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_structure_means_what_its_topics_mean_over_any_life(seed: int) -> None:
    # Property: through learning, restarts and generations a topic keeps its stream while its generation lives, is given back by it, and
    # is selected by exactly the filters that match it; an heir knows what varied, and nothing else.
    life = Life(seed)
    for _ in range(ROUNDS):
        life.learn()
        life.check()
        if life.rng.random() < 0.4:
            life.restart()
            life.check()
        if life.rng.random() < 0.3:
            life.inherit()
