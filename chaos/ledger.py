"""What was sent, acknowledged and received, and every promise that this says was broken.

Knows no socket and no clock: clients tell it what happened, and when.  A message is known by its publisher and its number, and both are
in its payload; a publisher numbers its messages in the order in which it sends them.

    sent -> acknowledged (PUBACK or PUBREC without an error) -> received by every reader and by one member of every group
         -> refused (an error): nobody is owed it any more

What is judged, by kind:

* *lost*: it was acknowledged, and a durable reader, or all of a group, never got it;
* *repeated*: at QoS 1 a reader got it anew more often than there are copies of it, without DUP [MQTT-3.3.1-1]. A publisher that gets no
  answer sends again, and each sending may be a copy; at QoS 2 there is one;
* *twice*: published and delivered at QoS 2, and a reader, or a group as a whole, got it more than once;
* *disorder*: of what one publisher sends to one topic at one QoS, a reader got an earlier one for the first time after a later one
  [MQTT-4.6.0-5].  Not judged in groups, whose members share;
* *stranger*: nobody sent it, or it was sent to another topic, or changed on its way;
* *stale*: who subscribed to a retained topic got less than the newest that was acknowledged before;
* *forgotten*: a client came back and its session was not there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

Kind = Literal["lost", "repeated", "twice", "disorder", "stranger", "stale", "forgotten"]
KINDS: tuple[Kind, ...] = get_args(Kind)
EXAMPLES_MAX = 10
"""Faults of each kind that are told in full; the others are counted."""


@dataclass(frozen=True, slots=True)
class Fault:
    kind: Kind
    who: str
    text: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.who}: {self.text}"


@dataclass(slots=True)
class Sent:
    topic: str
    qos: int
    copies: int = 1
    """How many of it the broker may rightly have."""
    acknowledged: bool = False
    refused: bool = False


@dataclass(slots=True)
class Got:
    """Of one message by one reader."""

    times: int = 0
    anew: int = 0
    """Without DUP."""


@dataclass(slots=True)
class Reader:
    """A durable session with one subscription to all that is sent; group: its share name, or none."""

    name: str
    qos: int
    group: str = ""
    got: dict[tuple[str, int], Got] = field(default_factory=dict)
    newest: dict[tuple[str, str, int], int] = field(default_factory=dict)
    """By publisher, topic, QoS: the highest number."""


@dataclass(slots=True)
class Silence:
    """How long a publisher that waits for answers got none."""

    waiting: int = 0
    since_s: float = 0.0
    longest_s: float = 0.0

    def sent(self, now_s: float) -> None:
        if not self.waiting:
            self.since_s = now_s
        self.waiting += 1

    def answered(self, now_s: float) -> None:
        self.longest_s = max(self.longest_s, now_s - self.since_s)
        self.since_s = now_s
        self.waiting -= 1


def payload_of(publisher: str, number: int, size: int = 0) -> bytes:
    """who, which, and padding up to `size` bytes."""
    return f"{publisher} {number} ".encode().ljust(size, b".")


def read_payload(payload: bytes) -> tuple[str, int] | None:
    """(publisher, number); None when it is none of ours."""
    parts = payload.split(b" ", 2)
    if len(parts) != 3 or not parts[1].isdigit() or parts[2].strip(b"."):
        return None
    return parts[0].decode(errors="replace"), int(parts[1])


class Ledger:
    def __init__(self) -> None:
        self.sent: dict[tuple[str, int], Sent] = {}
        self.readers: dict[str, Reader] = {}
        self.silences: dict[str, Silence] = {}
        self.faults: list[Fault] = []
        self.counts: Counter[Kind] = Counter()
        self.completed = 0
        """QoS 2, to its PUBCOMP."""
        self.received = 0
        self.again = 0
        """Arrivals of what the reader had already, whether that is right or not."""
        self.looks = 0
        """Retained values that were looked at."""
        self.retained_topics: frozenset[str] = frozenset()
        """What is sent there is owed to whoever looks, and to no reader."""
        self._numbers: Counter[str] = Counter()
        self._owed: dict[str, dict[tuple[str, int], None]] = {}
        """By reader, or by group: what was acknowledged and has not come, in order."""

    # ------------------------------------------------------------------ publishers

    def publish(self, publisher: str, topic: str, qos: int, now_s: float) -> int:
        """Its number."""
        number = self._numbers[publisher]
        self._numbers[publisher] += 1
        self.sent[publisher, number] = Sent(topic, qos)
        self.silences.setdefault(publisher, Silence()).sent(now_s)
        return number

    def sent_again(self, publisher: str, number: int, *, as_new: bool) -> None:
        """as_new: the session that had it under way was not there any more."""
        sent = self.sent[publisher, number]
        if sent.qos == 1 or as_new:
            sent.copies += 1

    def acknowledged(self, publisher: str, number: int, now_s: float) -> None:
        sent = self.sent[publisher, number]
        if sent.acknowledged or sent.refused:
            return
        sent.acknowledged = True
        self.silences[publisher].answered(now_s)
        key = publisher, number
        if sent.topic not in self.retained_topics:
            for reader in self.readers.values():
                if not self._all_of(reader, key):
                    self._owed[_debt(reader)][key] = None

    def refused(self, publisher: str, number: int, now_s: float) -> None:
        sent = self.sent[publisher, number]
        if not (sent.acknowledged or sent.refused):
            sent.refused = True
            self.silences[publisher].answered(now_s)

    def forgotten(self, client: str) -> None:
        self._fault("forgotten", client, "its session was not there when it came back")

    # ------------------------------------------------------------------ readers

    def subscribed(self, reader: Reader) -> None:
        """Before anything is published."""
        self.readers[reader.name] = reader
        self._owed.setdefault(_debt(reader), {})

    def arrived(self, name: str, topic: str, payload: bytes, qos: int, dup: bool) -> None:
        """What the application of a client gets: at QoS 2 what comes under a packet id that is not released yet is no arrival."""
        self.received += 1
        reader = self.readers[name]
        key = read_payload(payload)
        sent = None if key is None else self.sent.get(key)
        if key is None or sent is None:
            self._fault("stranger", name, f"{payload[:40]!r} came on {topic}, and nobody had sent it")
            return
        told = f"message {key[1]} of {key[0]} on {topic}"
        if topic != sent.topic:
            self._fault("stranger", name, f"{told} was sent to {sent.topic}")
            return
        got = reader.got.setdefault(key, Got())
        got.times += 1
        got.anew += not dup
        self._owed[_debt(reader)].pop(key, None)
        self.again += got.times > 1
        if qos == 2:
            if self._all_of(reader, key) > sent.copies:
                self._fault("twice", name, told)
        elif got.anew > sent.copies and not reader.group:
            self._fault("repeated", name, f"{told} came {got.anew} times without DUP, and was sent {sent.copies} times")
        if got.times == 1 and not reader.group:
            self._in_order(reader, (key[0], topic, sent.qos), key[1])

    def looked(self, who: str, topic: str, payload: bytes | None, owed: int) -> None:
        """What a new subscriber of a retained topic got, None for nothing; owed: the newest number acknowledged before; -1: none."""
        self.looks += 1
        key = None if payload is None else read_payload(payload)
        if payload is not None and (key is None or key not in self.sent):
            self._fault("stranger", who, f"{payload[:40]!r} is retained at {topic}, and nobody had sent it")
        elif (key[1] if key else -1) < owed:
            self._fault(
                "stale", who, f"{f'message {key[1]}' if key else 'nothing'} is retained at {topic}, and {owed} was acknowledged before"
            )

    def _all_of(self, reader: Reader, key: tuple[str, int]) -> int:
        """How often its group has got it, or this reader alone."""
        return sum([each.got[key].times for each in self._fellows(reader) if key in each.got])

    def _fellows(self, reader: Reader) -> Sequence[Reader]:
        return [each for each in self.readers.values() if each.group == reader.group] if reader.group else [reader]

    def _in_order(self, reader: Reader, flow: tuple[str, str, int], number: int) -> None:
        before = reader.newest.get(flow, -1)
        if number < before:
            self._fault("disorder", reader.name, f"message {number} of {flow[0]} on {flow[1]} came first after {before}")
        reader.newest[flow] = max(before, number)

    # ------------------------------------------------------------------ at the end

    def owed(self) -> dict[str, int]:
        """How much was acknowledged and has not come: by reader, or by group under the name `group NAME`."""
        return {name: len(keys) for name, keys in self._owed.items() if keys}

    def lose(self, names: Iterable[str]) -> None:
        """What these are owed will not come any more."""
        for name in names:
            for publisher, number in self._owed[name]:
                sent = self.sent[publisher, number]
                self._fault("lost", name, f"message {number} of {publisher} on {sent.topic} was acknowledged at QoS {sent.qos}")

    def unanswered(self) -> int:
        return sum([not (sent.acknowledged or sent.refused) for sent in self.sent.values()])

    def count(self, *, acknowledged: bool) -> int:
        """Acknowledged messages, or refused ones."""
        return sum([sent.acknowledged if acknowledged else sent.refused for sent in self.sent.values()])

    def longest_silence(self, now_s: float) -> tuple[float, str]:
        """Seconds, and whose."""
        found = [(max(each.longest_s, now_s - each.since_s if each.waiting else 0.0), name) for name, each in self.silences.items()]
        return max(found, default=(0.0, ""))

    def _fault(self, kind: Kind, who: str, text: str) -> None:
        self.counts[kind] += 1
        if self.counts[kind] <= EXAMPLES_MAX:
            self.faults.append(Fault(kind, who, text))


def _debt(reader: Reader) -> str:
    return f"group {reader.group}" if reader.group else reader.name
