"""A world small enough to look at every topic: what filters do to each other is seen, not worked out."""

from __future__ import annotations

from functools import cache
from itertools import product

from mqtt.topics import matches

NAMED = (b"a", b"", b"$s")
FRESH = b"nobody names it"
LEVELS_MAX = 3


def _paths(levels: tuple[bytes, ...], count_max: int) -> list[bytes]:
    found = [b"/".join(path) for count in range(1, count_max + 1) for path in product(levels, repeat=count)]
    return [path for path in found if path]


FILTERS = [
    *_paths((*NAMED, b"+"), LEVELS_MAX),
    b"#",
    *[b"/".join((*path, b"#")) for count in range(1, LEVELS_MAX) for path in product((*NAMED, b"+"), repeat=count)],
]
# One level more than filters have, so that those with # are seen to go on.
TOPICS = _paths((*NAMED, FRESH), LEVELS_MAX + 1)


@cache
def matched(topic_filter: bytes) -> int:
    """The topics that it matches, as bits by their place in TOPICS."""
    return sum([1 << place for place, topic in enumerate(TOPICS) if matches(topic_filter, topic)])
