"""The write path of messages: what is stored, under which position, and what the publisher is told.

One call per connection and frame, or one for a frame of many connections, with columns; the loop over its messages is the hottest of
the shard.  A topic's route and key are remembered per topic, stamped with the generations they depend on.

Holds: a message is stored when a route before it in the log matches it, or its publisher says so, exactly once per acknowledgement;
a QoS 2 id of a session that outlives its connection is put in the same record as its message.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import repeat
from operator import attrgetter

from mqtt.body import common_block, message_expiry, payload_bytes, strip_properties
from shards.clock import PositionClock
from shards.draft import Draft
from shards.frames import (
    NOBODY,
    NOT_PERMITTED,
    REFUSED_QUOTA,
    REFUSED_RULES,
    REPEATED,
    STORED,
    Entry,
    Publish,
    Published,
    Release,
    Released,
)
from shards.homes import Homes
from shards.incoming import Incoming
from shards.messages import HAS_EXPIRY, HAS_PROPERTIES, RETAIN, encode_message, encode_messages, message_start
from shards.persistence import NOT_STORED, PERSIST, Persistence, stored_flags
from shards.retained import RetainedHome
from shards.routes import Routes
from shards.slots import SlotTable
from shards.store import Store, TopicKey
from shards.tail import StreamRef, Tail

TOPICS_REMEMBERED_MAX = 327_680
"""Then the one that was met first is forgotten for each that is new. A topic takes some 300 bytes, and one that is not remembered 3 us,
which one that is published to all the time pays as well, once for so many new ones. To tell which came again costs more: with two tables,
of which the older went when the newer was full, 31 % of 300,000 topics published to at random were not there, and 38 % had to be moved."""
STREAMS_SHARED_MAX = 65_536
"""Then the next topics have new objects for the streams that they are of, which costs memory and nothing else."""
_STALE = Published(True, b"")
_ALL_STORED = Published(False, b"")


class Ready:
    """One for all topics that are wanted as of some routes, and have keys of one generation as of some rolls."""

    __slots__ = ()


@dataclass(slots=True)
class Topic(TopicKey):
    """What is known of one topic: wanted as of routes.generation `stamp`, its key as of store.rolls `rolls`; -1: it has none yet.
    ready: nothing of it has to be looked at while that is the newest of its generation.

    It is a key itself, as each thing that is looked at of very many topics lies elsewhere in memory, and takes a quarter of a us."""

    name: bytes = b""
    wanted: bool = False
    stamp: int = 0
    rolls: int = -1
    stream: StreamRef = (0, b"")
    ready: Ready | None = None


_UNKNOWN = repeat(Topic(0, b"", b""))
_ready_of, _stream_of, _name_of = attrgetter("ready"), attrgetter("stream"), attrgetter("name")


@dataclass(slots=True)
class Counters:
    nobody: int = 0
    repeated: int = 0
    stale: int = 0
    refused: int = 0


class Publishing:
    def __init__(
        self, shard: int, slots: SlotTable, store: Store, tail: Tail, routes: Routes, homes: Homes, retained: RetainedHome,
        clock: PositionClock, store_qos0: bool = False, persistence: Persistence | None = None, incoming: Incoming | None = None,
        run_min: int = 1,
    ) -> None:  # fmt: skip
        """run_min: frames with fewer messages are taken one by one."""
        self._shard = shard
        self._slots = slots
        self._store = store
        self._tail = tail
        self._routes = routes
        self._homes = homes
        self._retained = retained
        self._clock = clock
        self._stored = stored_flags(store_qos0)
        self._in_runs = bytes([stored and not flags & 1 and flags >> 1 & 3 != 2 for flags, stored in enumerate(self._stored)])
        """By the flags of a message: 1 if it may be taken together with others, that is stored, not retained, and not of QoS 2."""
        self._persistence = persistence
        self._run_min = run_min
        self._topics: dict[bytes, Topic] = {}
        self._met: deque[bytes] = deque()
        """Their names, as they were met."""
        self._as_of = (-1, -1)
        self._ready: dict[int, Ready] = {}
        """By generation, as of these routes and rolls."""
        self._streams: dict[StreamRef, StreamRef] = {}
        """So that all topics of a stream have the same object."""
        self.incoming = incoming if incoming is not None else Incoming()
        self.counters = Counters()
        self.room = True
        self.taken = 0
        """Messages taken since the caller last set this to 0: what bounds a record."""
        self.publisher = b""
        """Whose messages were taken last."""

    def publish_all(self, draft: Draft, entries: Sequence[Entry]) -> list[Published]:
        """As `publish` of each, where they are many of few messages, and nothing of any message has to be looked at by itself: a reply for
        each, which waits for nothing. Otherwise none, and nothing was done."""
        publishes = [entry for entry in entries if type(entry) is Publish]
        if not self._run_min <= len(publishes) == len(entries):
            return []
        flags = b"".join([entry.flags for entry in publishes])
        if not len(publishes) <= len(flags) < len(publishes) * self._run_min or not self._of_one_kind(flags):
            return []
        live = self._homes.live
        for entry in publishes:
            state = live.get(entry.client)
            if state is None or state.conn != entry.conn:
                return []
        bodies = [body for entry in publishes for body in entry.bodies]
        block = common_block(bodies)
        ready = self._all_ready([topic for entry in publishes for topic in entry.topics]) if block else None
        if not ready:
            return []
        self.taken += len(flags)
        self.publisher = publishes[-1].client
        self._append_all(draft, publishes, ready, bodies, len(block))
        return [_ALL_STORED] * len(publishes)

    def publish(self, draft: Draft, entry: Publish) -> tuple[Published, int]:
        """The reply, and the outbox position it has to wait for (0: none)."""
        client = entry.client
        state = self._homes.live.get(client)
        if state is None or state.conn != entry.conn:
            self.counters.stale += len(entry.topics)
            return _STALE, 0
        self.taken += len(entry.topics)
        self.publisher = client
        if len(entry.flags) >= self._run_min and self._of_one_kind(entry.flags) and (block := common_block(entry.bodies)):
            ready = self._all_ready(entry.topics)
            if ready:
                self._append_all(draft, [entry], ready, entry.bodies, len(block))
                return _ALL_STORED, 0
        codes = bytearray(len(entry.topics))
        plain = True
        outbox = 0
        wanted, stamp = self._routes.wanted, self._routes.generation
        store = self._store
        rolls = store.rolls
        published_at_ms = entry.published_at_ms
        clock = self._clock
        tail_append, ops, stored = self._tail.append, draft.ops, self._stored
        counters = self.counters
        payload, last = 0, -1
        # One call less for each message.
        generation = store.main
        put, count = store.writing_to(generation)
        start, of_qos, of_bytes = b"", -1, -1
        # All at once: of very many topics each lies elsewhere in memory, and the processor looks for several at a time.
        known = list(map(self._topics.get, entry.topics))
        columns = zip(entry.flags, entry.packet_ids, entry.topics, entry.bodies, known, strict=True)
        for index, (flags, packet_id, name, body, topic) in enumerate(columns):
            if topic is None:
                topic = self._remember(name)
            elif topic.stamp != stamp:
                topic.wanted, topic.stamp = wanted(name), stamp
            qos = flags >> 1 & 3
            if qos == 2 and entry.keep_ids and self.incoming.holds(draft, client, state, packet_id):
                codes[index] = REPEATED
                counters.repeated += 1
                plain = False
                continue
            if qos == 2 and flags & NOT_PERMITTED:
                codes[index] = REFUSED_RULES
                plain = False
                continue
            stores = (topic.wanted or flags & PERSIST) and stored[flags]
            if not stores and not flags & 1:
                codes[index] = NOBODY
                counters.nobody += 1
                plain = False
                if qos == 2 and entry.keep_ids:
                    self.incoming.take(draft, client, state, packet_id)
                continue
            if not self.room:
                codes[index] = REFUSED_QUOTA
                counters.refused += 1
                plain = False
                continue
            position = clock.take()
            if not flags & 1 and body[0] == 0:
                # The next one is often of the same kind, and begins with the same bytes.
                topic_bytes = len(name)
                if topic_bytes != of_bytes or qos != of_qos:
                    of_qos, of_bytes = qos, topic_bytes
                    start = message_start(qos, published_at_ms, client, topic_bytes)
                value = b"".join((start, name, body))
            else:
                value = encode_message(_flags(qos, flags & 1, body), published_at_ms, client, name, body)
                if stores:
                    payload -= body[0] if body[0] < 0x80 else len(body) - payload_bytes(body) - 1
            if stores:
                if topic.rolls != rolls:
                    self._find_key(name, topic)
                if topic.generation != generation:
                    generation = topic.generation
                    put, count = store.writing_to(generation)
                put(ops, topic, position, value)
                count(value)
                last = position
                tail_append(position, topic.name, value, topic.stream)
                payload += len(body) - 1
            elif qos:
                codes[index] = NOBODY
                plain = False
            if qos == 2 and entry.keep_ids:
                self.incoming.take(draft, client, state, packet_id)
            if flags & 1:
                outbox = self._retain(draft, name, position, value, body, state.identity) or outbox
        if last >= 0:
            store.appended(last)
            store.counting.payload_bytes += payload
        return (_ALL_STORED if plain else Published(False, bytes(codes))), outbox

    def _of_one_kind(self, flags: bytes) -> bool:
        """Whether all of them have the same, and are neither retained nor of QoS 2, and there is room."""
        first = flags[0]
        return self._in_runs[first] == 1 and flags.count(first) == len(flags) and self.room

    def _all_ready(self, topics: list[bytes]) -> list[Topic] | None:
        """What is known of these; None: one of them is not wanted, or they are of several generations."""
        as_of = self._routes.generation, self._store.rolls
        if as_of != self._as_of:
            self._as_of, self._ready = as_of, {}
        # All at once: of very many topics each lies elsewhere in memory, and the processor looks for several at a time.
        known: list[Topic] = list(map(self._topics.get, topics, _UNKNOWN))
        ready = known[0].ready
        if ready is None or ready is not self._ready.get(known[0].generation) or list(map(_ready_of, known)).count(ready) < len(known):
            if set(map(_ready_of, known)).issubset(self._ready.values()):
                return None
            for index, name in enumerate(topics):
                known[index] = topic = self._remember(name)
                if not topic.wanted:
                    return None
                if topic.rolls != self._store.rolls:
                    self._find_key(name, topic)
                topic.ready = self._ready.setdefault(topic.generation, Ready())
            if list(map(_ready_of, known)).count(known[0].ready) < len(known):
                return None
        return known

    def _append_all(
        self, draft: Draft, entries: Sequence[Publish], known: list[Topic], bodies: Sequence[bytes], block_bytes: int
    ) -> None:  # fmt: skip
        """known, bodies: of all their messages.  block_bytes: of the properties that each body begins with, their length too."""
        flags = _flags(entries[0].flags[0] >> 1 & 3, 0, bodies[0])
        values: list[bytes] = []
        for entry in entries:
            values += encode_messages(flags, entry.published_at_ms, entry.client, entry.topics, entry.bodies)
        positions = self._clock.take_all(len(values))
        self._store.append_all(draft.ops, known, positions, values)
        self._tail.extend(positions, map(_name_of, known), values, map(_stream_of, known))
        self._store.counting.payload_bytes += sum(map(len, bodies)) - len(bodies) * block_bytes

    def enter(
        self, draft: Draft, client: bytes, identity: bytes | None, flags: int, name: bytes, body: bytes, at_ms: int, kept: bool = False
    ) -> tuple[bool, int]:  # fmt: skip
        """A message that comes over no connection of its client (a will, or one of a writer) enters the log.

        identity: who is responsible for it (shards.sources).  flags: entering_flags.  kept: it is stored in any case.  Returns whether it
        is stored, and the outbox position of its retained copy, or 0.
        """
        topic = self._topics.get(name)
        if topic is None or topic.stamp != self._routes.generation:
            topic = self._remember(name)
        store = self._store
        position = self._clock.take()
        retain = flags & 1
        value = encode_message(_flags(flags >> 1 & 3, retain, body), at_ms, client, name, body)
        stores = kept or bool(topic.wanted and self._stored[flags])
        if stores:
            if topic.rolls != store.rolls:
                self._find_key(name, topic)
            store.append(draft.ops, topic, position, value)
            self._tail.append(position, topic.name, value, topic.stream)
            store.counting.payload_bytes += payload_bytes(body)
        return stores, self._retain(draft, name, position, value, body, identity) if retain else 0

    def entering_flags(self, qos: int, retain: int | bool, topic: bytes) -> int:
        """The flags of a message on its way that no gateway has marked."""
        flags = qos << 1 | int(retain)
        if self._persistence is not None and self._persistence.excludes(qos, topic):
            flags |= NOT_STORED
        return flags

    def release(self, draft: Draft, entry: Release) -> Released:
        """PUBREL: the ids are free again, in this record; unknown ones are answered as not found [MQTT-4.3.3]."""
        state = self._homes.live.get(entry.client)
        if state is None or state.conn != entry.conn:
            return Released(True, b"")
        release = self.incoming.release
        return Released(False, bytes([release(draft, entry.client, state, packet_id) for packet_id in entry.packet_ids]))

    def _retain(self, draft: Draft, name: bytes, position: int, value: bytes, body: bytes, identity: bytes | None) -> int:
        message = value if strip_properties(body) else b""
        home = self._slots.shard_of(name)
        if home == self._shard:
            self._retained.put_here(draft, name, message, identity)
            return 0
        self._retained.put_away(draft, home, position, name, message, identity)
        return position

    def _remember(self, name: bytes) -> Topic:
        topic = self._topics.get(name)
        if topic is None:
            if len(self._topics) >= TOPICS_REMEMBERED_MAX:
                del self._topics[self._met.popleft()]
            self._topics[name] = topic = Topic(0, b"", b"", name=name)
            self._met.append(name)
        stamp = self._routes.generation
        if topic.stamp != stamp:
            topic.wanted, topic.stamp = self._routes.wanted(name), stamp
        return topic

    def _find_key(self, name: bytes, topic: Topic) -> None:
        store, streams = self._store, self._streams
        key = store.key_of(name)
        if len(streams) >= STREAMS_SHARED_MAX:
            streams.clear()
        stream = key.generation, key.static
        topic.generation, topic.static, topic.data, topic.indexes, topic.number = *stream, key.data, key.indexes, key.number
        topic.stream = streams.setdefault(stream, stream)
        topic.rolls = store.rolls


def _flags(qos: int, retain: int | bool, body: bytes) -> int:
    flags = qos | (RETAIN if retain else 0)
    if body[0]:
        flags |= HAS_PROPERTIES
        if message_expiry(body) is not None:
            flags |= HAS_EXPIRY
    return flags


__all__ = ["NOBODY", "REPEATED", "STORED", "Counters", "Publishing"]
