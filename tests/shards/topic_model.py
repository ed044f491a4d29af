"""The plain meaning of topic filters, and topics and filters that collide often: what tries and layouts are compared with."""

from __future__ import annotations

import random

LEVELS = (b"a", b"b", b"c", b"", b"$s", b"x" * 40, "é".encode(), b"0", b"00")


def matches(topic_filter: bytes, topic: bytes) -> bool:
    """[MQTT-4.7], word by word, with nothing clever in it."""
    if topic.startswith(b"$") and not topic_filter.startswith(b"$"):
        return False
    wanted, levels = topic_filter.split(b"/"), topic.split(b"/")
    for depth, level in enumerate(wanted):
        if level == b"#":
            return True
        if depth >= len(levels) or level not in (b"+", levels[depth]):
            return False
    return len(wanted) == len(levels)


def any_level(rng: random.Random) -> bytes:
    return rng.choice(LEVELS) if rng.random() < 0.6 else b"n%d" % rng.randrange(30)


def any_topic(rng: random.Random) -> bytes:
    return b"/".join(any_level(rng) for _ in range(rng.randint(1, 4)))


def any_filter(rng: random.Random) -> bytes:
    levels = [b"+" if rng.random() < 0.4 else any_level(rng) for _ in range(rng.randint(1, 4))]
    if rng.random() < 0.35:
        levels[-1] = b"#"
    return b"/".join(levels)
