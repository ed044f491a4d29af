"""What clients sent, what was acknowledged to them and what arrived: the record, and the checks that a broker kept its word.

Knows no socket and no broker: drivers write into a ``History``, ``faults`` reads it.
A message is known by its publisher and its number; both are in its payload, and a
publisher numbers its messages in the order in which it publishes them.

What is checked, for each session:

* *missing*: every message that was acknowledged (PUBACK, or PUBREC at QoS 2), matches
  the session's filter and cannot have reached the broker before its SUBACK, arrived;
* *duplicate*: where publisher and subscription are both at QoS 2, it arrived once.
  At QoS 1 repeats are allowed; ``repeats`` counts them;
* *disorder*: among first arrivals, the numbers of one publisher on one topic only grow;
* *stranger*: nothing arrived that was never sent, on another topic than its own,
  with other bytes, or on a topic that the filter does not match.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["missing", "duplicate", "disorder", "stranger"]


@dataclass(slots=True)
class Sent:
    """One message of a publisher; ``seen_ns`` is the earliest moment at which the broker can have read it."""

    topic: str
    qos: int
    seen_ns: int
    acknowledged_ns: int | None = None
    writings: int = 0
    """How often its publisher wrote it to a connection; 0: nobody counted."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """One PUBLISH as a session's application got it; a QoS 2 repeat that the client itself filtered out is none."""

    topic: str
    payload: bytes
    qos: int
    dup: bool = False


@dataclass(slots=True)
class Subscribed:
    """A session with one subscription; what was seen by the broker from ``since_ns`` on is due."""

    filter: str
    qos: int
    since_ns: int
    deliveries: list[Delivery] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Fault:
    kind: Kind
    session: str
    text: str

    def __str__(self) -> str:
        return f"{self.kind} at {self.session}: {self.text}"


def payload_of(publisher: str, number: int, size: int = 0) -> bytes:
    """The bytes of a message: who, which, and padding up to ``size``."""
    return f"{publisher} {number} ".encode().ljust(size, b".")


def parse_payload(payload: bytes) -> tuple[str, int] | None:
    """(publisher, number), or None when this is not a payload of ours."""
    parts = payload.split(b" ", 2)
    if len(parts) != 3 or not parts[1].isdigit() or parts[2].strip(b"."):
        return None
    return parts[0].decode(errors="replace"), int(parts[1])


def matches(topic_filter: str, topic: str) -> bool:
    """Whether the filter matches, by the rules of MQTT; deliberately not the broker's own code."""
    levels = topic.split("/")
    if topic.startswith("$") and topic_filter[:1] in ("+", "#"):
        return False
    wanted = topic_filter.split("/")
    for at, level in enumerate(wanted):
        if level == "#":
            return True
        if at >= len(levels) or level not in ("+", levels[at]):
            return False
    return len(wanted) == len(levels)


class History:
    """Grows while clients run: published → acknowledged, subscribed → delivered."""

    def __init__(self) -> None:
        self.sent: dict[tuple[str, int], Sent] = {}
        self.sessions: dict[str, Subscribed] = {}
        self._next: Counter[str] = Counter()

    def publish(self, publisher: str, topic: str, qos: int, now_ns: int) -> int:
        """The next message of a publisher; returns its number."""
        number = self._next[publisher]
        self._next[publisher] += 1
        self.sent[publisher, number] = Sent(topic, qos, now_ns)
        return number

    def written(self, publisher: str, number: int) -> None:
        self.sent[publisher, number].writings += 1

    def acknowledged(self, publisher: str, number: int, now_ns: int) -> None:
        sent = self.sent[publisher, number]
        if sent.acknowledged_ns is None:
            sent.acknowledged_ns = now_ns

    def subscribed(self, session: str, topic_filter: str, qos: int, now_ns: int) -> None:
        self.sessions[session] = Subscribed(topic_filter, qos, now_ns)

    def delivered(self, session: str, delivery: Delivery) -> None:
        self.sessions[session].deliveries.append(delivery)

    def acknowledged_count(self) -> int:
        return sum(sent.acknowledged_ns is not None for sent in self.sent.values())

    def delivery_count(self) -> int:
        return sum(len(session.deliveries) for session in self.sessions.values())

    def due(self, session: str) -> set[tuple[str, int]]:
        """The messages that this session must get."""
        log = self.sessions[session]
        fits = {topic for topic in {sent.topic for sent in self.sent.values()} if matches(log.filter, topic)}
        return {
            key
            for key, sent in self.sent.items()
            if sent.acknowledged_ns is not None and sent.seen_ns >= log.since_ns and sent.topic in fits
        }

    def repeats(self, session: str) -> int:
        """Arrivals beyond the first of each message."""
        deliveries = self.sessions[session].deliveries
        return len(deliveries) - len({delivery.payload for delivery in deliveries})


def faults(history: History) -> list[Fault]:
    """Everything that must not have happened, session by session."""
    found: list[Fault] = []
    for name in history.sessions:
        found += _missing(history, name)
        found += _wrong_arrivals(history, name)
    return found


def summary(found: Iterable[Fault]) -> str:
    """One line: how many of each kind, and the first of each."""
    kinds: dict[Kind, list[Fault]] = defaultdict(list)
    for fault in found:
        kinds[fault.kind].append(fault)
    return "; ".join(f"{len(each)} x {kind} (first: {each[0]})" for kind, each in kinds.items())


def _missing(history: History, session: str) -> list[Fault]:
    arrived = {parse_payload(delivery.payload) for delivery in history.sessions[session].deliveries}
    lost = sorted(history.due(session) - arrived)
    return [
        Fault("missing", session, f"message {number} of {publisher} on {history.sent[publisher, number].topic}")
        for publisher, number in lost
    ]


def _wrong_arrivals(history: History, session: str) -> list[Fault]:
    log = history.sessions[session]
    found: list[Fault] = []
    newest: dict[tuple[str, str], int] = {}
    seen: set[tuple[str, int]] = set()
    for delivery in log.deliveries:
        key = parse_payload(delivery.payload)
        sent = history.sent.get(key) if key is not None else None
        if key is None or sent is None:
            found.append(Fault("stranger", session, f"{delivery.payload[:40]!r} on {delivery.topic} was never sent"))
            continue
        publisher, number = key
        if sent.topic != delivery.topic or not matches(log.filter, delivery.topic):
            found.append(Fault("stranger", session, f"message {number} of {publisher}, sent to {sent.topic}, came on {delivery.topic}"))
        if key in seen:
            if sent.qos == 2 and log.qos == 2:
                found.append(Fault("duplicate", session, f"message {number} of {publisher} on {delivery.topic}"))
            continue
        seen.add(key)
        before = newest.get((publisher, delivery.topic), -1)
        if number < before:
            found.append(Fault("disorder", session, f"message {number} of {publisher} on {delivery.topic} after {before}"))
        newest[publisher, delivery.topic] = max(number, before)
    return found
