"""The topics that layouts are measured with: who publishes where, and how large the messages are.

A shape gives message number n its topic and body, from a source of randomness that is seeded alike for every layout: so all
layouts are given the same messages.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

Topics = Callable[[random.Random, int], bytes]
"""(randomness, number of the message) -> its topic."""


@dataclass(frozen=True, slots=True)
class Shape:
    """one: a filter for one device out of many, with its number.  plus_one, plus_two: filters with so many ``+``."""

    name: str
    what: str
    topic: Topics
    body_bytes: int = 230
    everything: bytes = b"#"
    plus_one: bytes = b""
    plus_two: bytes = b""
    one: Callable[[int], bytes] | None = None
    ones: int = 0


def _device(rng: random.Random, number: int) -> bytes:
    return b"devices/d%06d/%s" % (rng.randrange(100_000), (b"temperature", b"humidity", b"battery")[rng.randrange(3)])


def _deep(rng: random.Random, number: int) -> bytes:
    return b"site/%d/hall/%d/line/%d/robot/r%03d/axis/%d/%s" % (
        rng.randrange(4), rng.randrange(20), rng.randrange(5), rng.randrange(200), rng.randrange(6), (b"angle", b"force")[rng.randrange(2)],
    )  # fmt: skip


def _fleet(rng: random.Random, number: int) -> bytes:
    return b"fleet/v%04d/sensor/s%02d" % (rng.randrange(2000), rng.randrange(50))


SHAPES = {
    shape.name: shape
    for shape in (
        Shape("hot", "one hot topic", lambda rng, number: b"plant/line1/temperature"),
        Shape(
            "devices", "100,000 devices with 3 topics each", _device,
            plus_one=b"devices/+/temperature", plus_two=b"devices/+/+", one=lambda n: b"devices/d%06d/#" % (n % 100_000), ones=100_000,
        ),
        Shape(
            "deep", "trees of 11 levels, up to four of which vary", _deep,
            plus_one=b"site/1/hall/3/line/2/robot/r017/axis/+/angle", plus_two=b"site/+/hall/3/line/2/robot/+/axis/4/angle",
            one=lambda n: b"site/%d/hall/%d/line/%d/robot/r%03d/#" % (n % 4, n % 20, n % 5, n % 200), ones=200,
        ),
        Shape(
            "one-off", "topics that are used once", lambda rng, number: b"requests/%d-%06d/reply" % (number, rng.randrange(10**6)),
            plus_one=b"requests/+/reply",
        ),
        Shape(
            "large", "10 publishers of 32 KiB", lambda rng, number: b"cameras/%d/frame" % rng.randrange(10), 32 << 10,
            plus_one=b"cameras/+/frame",
        ),
        Shape(
            "literal", "2,000 topics, each a stream of its own",
            lambda rng, number: b"site%d/m%d/t%d" % (rng.randrange(20), rng.randrange(10), rng.randrange(10)),
            plus_one=b"site3/+/t4", plus_two=b"site3/+/+", ones=2000,
            one=lambda n: b"site%d/m%d/t%d" % (n % 20, n // 20 % 10, n // 200 % 10),
        ),
        Shape(
            "fleet", "2,000 vehicles with 50 sensors: two varying levels", _fleet,
            plus_one=b"fleet/v0017/sensor/+", plus_two=b"fleet/+/sensor/+", ones=2000,
            one=lambda n: b"fleet/v%04d/sensor/s%02d" % (n % 2000, n % 50),
        ),
    )
}  # fmt: skip


def bodies(rng: random.Random, size: int) -> list[bytes]:
    """Payloads as devices send them: JSON of about so many bytes; large ones are random, as pictures are."""
    if size > 4096:
        return [b"\0" + rng.randbytes(size - rng.randrange(size // 4)) for _ in range(16)]
    return [
        b'\0{"device":%d,"value":%d.%02d,"unit":"C","status":"ok","sequence":%d,"note":"%s"}'
        % (
            rng.randrange(10**6),
            rng.randrange(40),
            rng.randrange(100),
            rng.randrange(10**9),
            b"x" * rng.randrange(size // 2, size * 5 // 6),
        )
        for _ in range(1000)
    ]
