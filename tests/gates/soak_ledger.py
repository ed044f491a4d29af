"""What is checked while a soak runs: a History that forgets what everybody has, so that hours of traffic fit into memory.

A *stream* is what one publisher sends to one topic at its one QoS; the broker keeps its order. A *reader* is a subscription of
a session, and has in each stream a place: all messages before it have arrived, or did not have to. So each delivery is judged
when it comes:

* before the place: a repeat; at QoS 2 on both sides a *duplicate*;
* behind the place: what it leaps over, if it is acknowledged and due, is *missing*, as nothing may come behind it any more. What
  is acknowledged only later is missing then;
* on a topic that the session does not want, or wants no more: a *stranger*.

A message is due to a reader when the broker can have read it only after the SUBACK, and the reader has not sent UNSUBSCRIBE.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field

from tests.broker.history import Delivery, Fault, History, Kind, Subscribed, matches, parse_payload

FAULTS_KEPT = 20


@dataclass(slots=True)
class Message:
    """One of a stream. ``leapt``: readers that got a later one before this one was acknowledged."""

    number: int
    seen_ns: int
    acknowledged_ns: int = 0
    leapt: list[Reader] | None = None


@dataclass(slots=True)
class Stream:
    """``base`` messages were forgotten; message ``base + i`` is ``messages[i]``."""

    publisher: str
    topic: str
    qos: int
    base: int = 0
    messages: deque[Message] = field(default_factory=deque)
    readers: list[Reader] = field(default_factory=list)

    @property
    def end(self) -> int:
        return self.base + len(self.messages)


class Reader:
    """One subscription of a session: SUBSCRIBE → since → (UNSUBSCRIBE → gone) → ..."""

    def __init__(self, session: str, terms: Subscribed) -> None:
        self.session = session
        self.terms = terms
        self.leaving_ns = 0
        self.gone_ns = 0
        self.arrived = 0
        self.places: dict[int, int] = {}

    @property
    def wants(self) -> bool:
        return not self.leaving_ns

    def due(self, message: Message) -> bool:
        return message.acknowledged_ns != 0 and self.wants and message.seen_ns >= self.terms.since_ns

    def __str__(self) -> str:
        return f"{self.session} on {self.terms.filter}"


class Ledger(History):
    """Drivers write into it as into a History; what was wrong is in ``wrong``."""

    def __init__(self) -> None:
        super().__init__()
        self.wrong: list[Fault] = []
        self.wrong_count = 0
        self.published = self.acked = self.arrived = self.repeated = 0
        self._streams: dict[tuple[str, str], Stream] = {}
        self._where: dict[tuple[str, int], tuple[Stream, int]] = {}
        self._readers: dict[str, list[Reader]] = {}
        self._numbers: Counter[str] = Counter()

    # ------------------------------------------------------------------- as a History

    def publish(self, publisher: str, topic: str, qos: int, now_ns: int) -> int:
        stream = self._streams.get((publisher, topic))
        if stream is None:
            stream = self._streams[publisher, topic] = Stream(publisher, topic, qos)
            for readers in self._readers.values():
                stream.readers += [each for each in readers if matches(each.terms.filter, topic)]
        assert stream.qos == qos, "a publisher has one QoS for a topic"
        number = self._numbers[publisher]
        self._numbers[publisher] += 1
        self._where[publisher, number] = (stream, stream.end)
        stream.messages.append(Message(number, now_ns))
        self.published += 1
        return number

    def written(self, publisher: str, number: int) -> None:
        """What comes again is judged by what was sent, however often."""

    def acknowledged(self, publisher: str, number: int, now_ns: int) -> None:
        found = self._where.get((publisher, number))
        if found is None:
            return
        stream, at = found
        message = stream.messages[at - stream.base]
        if message.acknowledged_ns:
            return
        message.acknowledged_ns = now_ns
        self.acked += 1
        for reader in message.leapt or ():
            if reader.due(message):
                self._fault("missing", reader, f"message {number} of {publisher} on {stream.topic}, acknowledged after later ones had come")
        message.leapt = None

    def subscribed(self, session: str, topic_filter: str, qos: int, now_ns: int) -> None:
        self.add(session, topic_filter, qos, now_ns)

    def delivered(self, session: str, delivery: Delivery) -> None:
        self.arrived += 1
        key = parse_payload(delivery.payload)
        if key is None or key[1] >= self._numbers[key[0]]:
            self._fault("stranger", session, f"{delivery.payload[:40]!r} on {delivery.topic} was never sent")
            return
        reader = next((each for each in self._readers[session] if matches(each.terms.filter, delivery.topic)), None)
        stream = self._streams.get((key[0], delivery.topic))
        if reader is None or stream is None:
            self._fault("stranger", session, f"message {key[1]} of {key[0]} came on {delivery.topic}")
            return
        found = self._where.get(key)
        if found is None:
            self._repeat(reader, stream, key[1])  # everybody had it, so it is forgotten
        elif found[0] is not stream:
            self._fault("stranger", session, f"message {key[1]} of {key[0]}, sent to {found[0].topic}, came on {delivery.topic}")
        else:
            self._arrive(reader, stream, found[1])

    # ------------------------------------------------------------------- subscriptions

    def add(self, session: str, topic_filter: str, qos: int, now_ns: int) -> Reader:
        """A subscription; its filter overlaps with no other of the session. ``now_ns`` may be put right at its SUBACK."""
        readers = self._readers.setdefault(session, [])
        for reader in readers:
            if reader.terms.filter == topic_filter:
                reader.terms.since_ns, reader.leaving_ns, reader.gone_ns = now_ns, 0, 0
                return reader
        terms = Subscribed(topic_filter, qos, now_ns)
        self.sessions.setdefault(session, terms)
        reader = Reader(session, terms)
        readers.append(reader)
        for stream in self._streams.values():
            if matches(topic_filter, stream.topic):
                stream.readers.append(reader)
        return reader

    # ------------------------------------------------------------------- judging

    def _arrive(self, reader: Reader, stream: Stream, at: int) -> None:
        place = reader.places.get(id(stream), 0)
        if at < place:
            self._repeat(reader, stream, stream.messages[at - stream.base].number)
            return
        message = stream.messages[at - stream.base]
        if reader.gone_ns and message.seen_ns > reader.gone_ns:
            self._fault("stranger", reader, f"message {message.number} of {stream.publisher} was sent after the UNSUBACK")
        for between in range(max(place, stream.base), at):
            leapt = stream.messages[between - stream.base]
            if reader.due(leapt):
                self._fault("missing", reader, f"message {leapt.number} of {stream.publisher} on {stream.topic}: {message.number} came")
            elif not leapt.acknowledged_ns:
                leapt.leapt = [*(leapt.leapt or ()), reader]
        reader.places[id(stream)] = at + 1
        reader.arrived += 1

    def _repeat(self, reader: Reader, stream: Stream, number: int) -> None:
        self.repeated += 1
        if stream.qos == 2 and reader.terms.qos == 2:
            self._fault("duplicate", reader, f"message {number} of {stream.publisher} on {stream.topic}")

    def _fault(self, kind: Kind, reader: Reader | str, text: str) -> None:
        self.wrong_count += 1
        if len(self.wrong) < FAULTS_KEPT:
            self.wrong.append(Fault(kind, str(reader), text))

    # ------------------------------------------------------------------- what is still to come

    def lagging(self) -> dict[Reader, int]:
        """Readers that something is due to, and when the oldest of that was acknowledged."""
        found: dict[Reader, int] = {}
        for stream in self._streams.values():
            for reader in stream.readers:
                if not reader.wants:
                    continue
                place = max(reader.places.get(id(stream), 0), stream.base)
                for at in range(place, stream.end):
                    message = stream.messages[at - stream.base]
                    if reader.due(message):
                        found[reader] = min(found.get(reader, message.acknowledged_ns), message.acknowledged_ns)
                        break
        return found

    def forget(self, before_ns: int) -> None:
        """Messages that everybody has and that were acknowledged before this.

        Some time has to be left for deliveries that are not due and come all the same, to a reader that is just coming or going.
        """
        for stream in self._streams.values():
            keep = stream.end
            for reader in stream.readers:
                if reader.wants:
                    keep = min(keep, self._first_wanted(reader, stream))
            while stream.base < keep and 0 < stream.messages[0].acknowledged_ns < before_ns:
                message = stream.messages.popleft()
                stream.base += 1
                del self._where[stream.publisher, message.number]

    def _first_wanted(self, reader: Reader, stream: Stream) -> int:
        at = max(reader.places.get(id(stream), 0), stream.base)
        while at < stream.end:
            message = stream.messages[at - stream.base]
            if message.seen_ns >= reader.terms.since_ns:
                break
            at += 1
        return at

    @property
    def remembered(self) -> int:
        return len(self._where)
