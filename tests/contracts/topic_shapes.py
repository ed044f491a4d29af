"""What a history publishes and asks for: the shapes of topics that the benchmarks know, and small ones that collide in every way.

A shape gives a topic when it is asked for one. Filters are made from topics, so that most of them have something to find, and some are
made of nothing in particular.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from tests.shards.topic_model import any_filter, any_topic

Shape = Callable[[random.Random], bytes]


def hot(rng: random.Random) -> Shape:
    """Nearly everything is of one topic."""
    return lambda rng: b"hot" if rng.random() < 0.95 else b"cold/%d" % rng.randrange(3)


def devices(rng: random.Random) -> Shape:
    """Many devices with three topics each."""
    count = rng.choice((5, 60))
    return lambda rng: b"d/%d/%s" % (rng.randrange(count), rng.choice((b"t", b"rpm", b"state")))


def deep(rng: random.Random) -> Shape:
    """Trees of many levels, several of which vary."""
    return lambda rng: b"/".join(b"%d" % rng.randrange(width) for width in (1, 3, 2, 9, 1, 4, 2))


def one_off(rng: random.Random) -> Shape:
    """Topics that are never seen again."""
    start = rng.randrange(1 << 30)
    return lambda rng: b"req/%d/%s" % (start + rng.randrange(1 << 20), rng.choice((b"in", b"out")))


def alike(rng: random.Random) -> Shape:
    """Twenty levels of one length, below each of which something varies: what a generation begins with has many rows of one length too,
    with 1 and 4 bytes that of the keys of messages (of pagestream, and of record_batch)."""
    size = rng.choice((1, 4, rng.randint(2, 12)))
    below = rng.choice((4, 15))
    return lambda rng: b"%c" % (97 + rng.randrange(20)) * size + b"/%d" % rng.randrange(below)


def colliding(rng: random.Random) -> Shape:
    """Few topics, with empty levels, `$` in front, and many equal ones."""
    pool = [any_topic(rng) for _ in range(rng.choice((3, 10, 40)))]
    hottest = pool[: rng.choice((1, 2, len(pool)))]
    return lambda rng: rng.choice(hottest) if rng.random() < 0.4 else rng.choice(pool) if rng.random() < 0.9 else any_topic(rng)


SHAPES: tuple[Callable[[random.Random], Shape], ...] = (colliding, colliding, colliding, devices, devices, alike, alike, hot, deep, one_off)
"""The colliding ones find most."""


def filter_of(topic: bytes, rng: random.Random) -> bytes:
    """A filter that matches the topic, unless its first level begins with ``$`` and became a wildcard."""
    levels = [b"+" if rng.random() < 0.45 else level for level in topic.split(b"/")]
    if rng.random() < 0.3:
        return b"/".join([*levels[: rng.randint(0, len(levels))], b"#"])
    return b"/".join(levels)


def some_filter(topics: list[bytes], rng: random.Random) -> bytes:
    what = rng.random()
    if what < 0.15:
        return b"#"
    if what < 0.35 or not topics:
        return any_filter(rng)
    return filter_of(rng.choice(topics), rng) if what < 0.85 else rng.choice(topics)
