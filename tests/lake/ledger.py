"""What publishers sent and what was acknowledged to them: the oracle of everything that has to reach the lake.

A *stream* is what one publisher sends to one topic at its one QoS. Its messages are numbered 0, 1, 2, ... in the order in which they are
published, and client, topic and number are in the payload, so a row of the lake says by itself what it is. A million messages are a
few megabytes here.

What always holds: a message is acknowledged only after it was sent, and what may be stored of it is known. At QoS 2, from a session that
outlives its connections, once. At QoS 1 as often as it was written to a socket: a PUBLISH that is sent again after a connection was lost
is, by the specification, one that the broker may take for new.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.broker.history import Delivery, History

PAYLOAD_BYTES = 130
UNKNOWN = 0
ACKNOWLEDGED = 1


def lake_payload(client: str, topic: str, number: int, size: int = PAYLOAD_BYTES) -> bytes:
    """JSON, padded to ``size``, as telemetry is."""
    text = json.dumps({"client": client, "topic": topic, "n": number, "pad": ""}, separators=(",", ":"))
    return (text[:-2] + "x" * (size - len(text)) + text[-2:]).encode()


def parse_lake_payload(payload: bytes) -> tuple[str, str, int] | None:
    """(client, topic, number), or None when this is not a payload of ours."""
    try:
        found = json.loads(payload)
        return str(found["client"]), str(found["topic"]), int(found["n"])
    except (ValueError, KeyError, TypeError):
        return None


@dataclass(slots=True)
class Sent:
    """One stream. ``state[n]``: UNKNOWN or ACKNOWLEDGED; ``again[n]``: how often message n was sent beyond the first time."""

    client: str
    topic: str
    qos: int
    state: bytearray = field(default_factory=bytearray)
    again: Counter[int] = field(default_factory=Counter)

    def times_max(self, number: int) -> int:
        """How often it may be in the store."""
        return 1 if self.qos == 2 else 1 + self.again[number]


class LakeLedger(History):
    """Clients write into it as into a History. Each publisher goes round its topics."""

    def __init__(self) -> None:
        super().__init__()
        self.streams: dict[tuple[str, str], Sent] = {}
        self.published = self.acked = 0
        self._topics: dict[str, list[str]] = {}
        self._next: Counter[str] = Counter()

    def enrol(self, client: str, topics: list[str], qos: int) -> None:
        self._topics[client] = topics
        for topic in topics:
            self.streams[client, topic] = Sent(client, topic, qos)

    def next_of(self, client: str) -> tuple[str, int]:
        """(topic, number in its stream) of what this publisher sends next."""
        topics = self._topics[client]
        number = self._next[client]
        return topics[number % len(topics)], number // len(topics)

    # ---- as a History: numbers are those of the publisher, over all its topics

    def publish(self, publisher: str, topic: str, qos: int, now_ns: int) -> int:
        wanted, _ = self.next_of(publisher)
        stream = self.streams[publisher, topic]
        assert topic == wanted and qos == stream.qos, "a publisher goes round its topics, at one QoS"
        number = self._next[publisher]
        self._next[publisher] += 1
        stream.state.append(UNKNOWN)
        self.published += 1
        return number

    def written(self, publisher: str, number: int) -> None:
        """Counted by `sent_again`."""

    def acknowledged(self, publisher: str, number: int, now_ns: int) -> None:
        stream, at = self._where(publisher, number)
        if stream.state[at] == UNKNOWN:
            stream.state[at] = ACKNOWLEDGED
            self.acked += 1

    def sent_again(self, publisher: str, number: int) -> None:
        stream, at = self._where(publisher, number)
        stream.again[at] += 1

    def delivered(self, session: str, delivery: Delivery) -> None:
        raise AssertionError("nobody subscribes here")

    def acknowledged_keys(self) -> Iterator[tuple[str, str, int]]:
        """(client, topic, number) of everything that was acknowledged."""
        for stream in self.streams.values():
            for number, state in enumerate(stream.state):
                if state == ACKNOWLEDGED:
                    yield stream.client, stream.topic, number

    @property
    def sent_again_count(self) -> int:
        return sum(stream.again.total() for stream in self.streams.values())

    def _where(self, publisher: str, number: int) -> tuple[Sent, int]:
        topics = self._topics[publisher]
        return self.streams[publisher, topics[number % len(topics)]], number // len(topics)
