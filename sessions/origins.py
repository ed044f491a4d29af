"""What a bridge is told of each message beside the message: which it is, for ever, and which delivery this is (docs/bridge.md).

A bridge is a durable session whose client id begins with `$bridge/`, of which no client from outside may take one.  Its messages carry one
more user property, before all others, on every sending, the first and each later one:

    session position.of.its.shard number published-at qos publisher      "17 3.1712345678 42 1764000000000 1 meter-7"

    session     the id of the session: numbers count within it
    shard, position     of the message in the store: the same for ever, also after a rewind
    number      of the delivery: it grows in the order of delivery, is the same on each sending, and another one after a rewind
    published-at        wall clock, in milliseconds, as its gateway noted it
    qos         as it was published: it is delivered at QoS 2 whatever that was, so that its number is committed before it leaves
    publisher   client id; empty: the broker itself
"""

from __future__ import annotations

from typing import Final, NamedTuple

PREFIX: Final = b"$bridge/"
ORIGINS: Final = 64
"""In the options of a subscription: its messages say what they are.  Beside those of sessions.bodies."""
ORIGIN: Final = b"holdfast-origin"
MARK: Final = "holdfast-bridge"
"""User property of a message: what bridges between brokers it has passed; of a CONNECT: that a bridge comes (bridge.targets.origins)."""
STORE: Final = "holdfast-store"
"""User property of the CONNACK that such a bridge gets: the id of this store, by which marks name it."""


class Origin(NamedTuple):
    session: int
    shard: int
    position: int
    number: int
    published_at_ms: int
    qos: int
    publisher: str


def is_bridge(client: bytes) -> bool:
    return client.startswith(PREFIX)


def write_origin(session: int, shard: int, position: int, number: int, published_at_ms: int, qos: int, publisher: bytes) -> bytes:
    return b"%d %d.%d %d %d %d %b" % (session, shard, position, number, published_at_ms, qos, publisher)


def read_origin(text: str) -> Origin:
    """Raises ValueError."""
    session, place, number, published_at_ms, qos, publisher = text.split(" ", 5)
    shard, _, position = place.partition(".")
    return Origin(int(session), int(shard), int(position), int(number), int(published_at_ms), int(qos), publisher)
