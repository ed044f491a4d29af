"""Retained messages at their homes, and the outbox of those whose home is another shard.

The publisher's home is the only writer: a retained message is an entry of the message's own record, either as the row of its
topic here, or as an outbox row that is forwarded in log order over a numbered link and applied once at the topic's home, by
(source shard, position).  The publisher's acknowledgement waits for that (PROTOCOLS 10).

Holds after every call (see check):
1. the outbox in RAM equals the outbox rows; positions per target grow;
2. `done` is the greatest position below which no outbox row is left.

Who has published a message travels with it (shards.sources), and it is given out only while that one may still publish it.
"""

from __future__ import annotations

from collections import deque

from mqtt.body import message_expiry
from mqtt.topics import matches
from shards.draft import Draft
from shards.engine import HOME_FAMILY, Engine
from shards.frames import RetainedMessages
from shards.judging import Judging
from shards.messages import HAS_EXPIRY, header
from shards.row_count import RowCount
from shards.rows import APPLIED, OUTBOX, RETAINED, pack_row, successor, u64, unpack_row
from shards.sources import ANONYMOUS, Sources

_EXAMINED_PER_PAGE = 2000
_READ_AT_LEAST = 100
_BYTES_PER_PAGE = 1 << 20
NOTHING_WAITS = 1 << 62


Item = tuple[int, bytes, bytes, bytes | None]
"""Position at the source, topic, stored message or empty to delete, and who has published it (shards.sources)."""


class RetainedHome:
    def __init__(self, engine: Engine, judging: Judging) -> None:
        self._engine = engine
        self._judging = judging
        self._sources = Sources(engine)
        self.held = RowCount(engine, RETAINED, b"retained")
        self.expired = 0
        """Erased because of their age, since the start."""
        self._applied: dict[int, int] = {}
        for key, value in engine.scan(HOME_FAMILY, APPLIED, successor(APPLIED), 256):
            self._applied[key[1]] = unpack_row(value)[0]
        self._outbox: dict[int, deque[int]] = {}
        self._unsent: list[tuple[int, Item]] = []
        start, end = OUTBOX, successor(OUTBOX)
        while rows := engine.scan(HOME_FAMILY, start, end, 1000):
            for key, value in rows:
                target, position = key[1], int.from_bytes(key[2:], "big")
                topic, message, *identity = unpack_row(value)
                self._outbox.setdefault(target, deque()).append(position)
                self._unsent.append((target, (position, topic, message, identity[0] if identity else ANONYMOUS)))
            start = rows[-1][0] + b"\x00"

    @property
    def done(self) -> int:
        """Answers that wait for an outbox position up to this one may leave."""
        heads = [waiting[0] for waiting in self._outbox.values() if waiting]
        return min(heads) - 1 if heads else NOTHING_WAITS

    @property
    def newest_waiting(self) -> int:
        """The greatest position in the outbox, 0 when it is empty: who waits for it waits for all of it."""
        return max((waiting[-1] for waiting in self._outbox.values() if waiting), default=0)

    def put_here(self, draft: Draft, topic: bytes, message: bytes, identity: bytes | None) -> None:
        """An empty message deletes [MQTT-3.3.1-6]."""
        there = draft.get(RETAINED + topic) is not None
        if there is not bool(message):
            self.held.add(draft, 1 if message else -1)
        if message:
            draft.put(RETAINED + topic, message)
            self._sources.put(draft, topic, identity)
        else:
            draft.delete(RETAINED + topic)
            self._sources.erase(draft, topic)

    def put_away(self, draft: Draft, target: int, position: int, topic: bytes, message: bytes, identity: bytes | None) -> None:
        """On its way to its home: sent once the record is committed, kept until the home has it."""
        row = (topic, message) if identity == ANONYMOUS else (topic, message, identity)
        draft.put(OUTBOX + bytes((target,)) + u64(position), pack_row(row))
        self._outbox.setdefault(target, deque()).append(position)
        self._unsent.append((target, (position, topic, message, identity)))

    def set_out(self, watermark: int) -> dict[int, list[Item]]:
        """Those whose records are committed by now and that have not been sent, by the shard where they are at home."""
        found: dict[int, list[Item]] = {}
        ready = [row for row in self._unsent if row[1][0] <= watermark]
        self._unsent = self._unsent[len(ready) :]
        for target, item in ready:
            found.setdefault(target, []).append(item)
        return found

    def arrived(self, draft: Draft, target: int, upto: int) -> None:
        """The home has applied everything up to this position."""
        waiting = self._outbox.get(target)
        while waiting and waiting[0] <= upto:
            draft.delete(OUTBOX + bytes((target,)) + u64(waiting.popleft()))

    def apply(self, draft: Draft, source: int, items: list[Item]) -> int:
        """Items of another shard; what came before is skipped.  Returns how far its log is applied here."""
        applied = self._applied.get(source, 0)
        for position, topic, message, identity in items:
            if position > applied:
                self.put_here(draft, topic, message, identity)
                applied = position
        self._applied[source] = applied
        draft.put(APPLIED + bytes((source,)), pack_row((applied,)))
        return applied

    def page(self, draft: Draft, topic_filter: bytes, after: bytes, count_max: int) -> RetainedMessages:
        """Matching retained messages after a topic, bounded in count, bytes and rows looked at.  Those whose publisher may not publish
        them any more count, and are left out."""
        if b"+" not in topic_filter and not topic_filter.endswith(b"#"):
            value = draft.get(RETAINED + topic_filter)
            given = value and not after and self._may_be_given(draft, topic_filter, value)
            return RetainedMessages([value] if value and given else [], b"")
        prefix = RETAINED + literal_prefix(topic_filter)
        start, end = max(prefix, RETAINED + after + b"\x00") if after else prefix, successor(prefix)
        values: list[bytes] = []
        topic = b""
        size = matching = examined = 0
        while examined < _EXAMINED_PER_PAGE:
            # Where most topics match, what is read is what is given out.
            wanted = min(max(count_max - matching, _READ_AT_LEAST), _EXAMINED_PER_PAGE - examined)
            rows = draft.scan_range(start, end, wanted)
            for key, value in rows:
                topic = key[1:]
                if matches(topic_filter, topic):
                    matching += 1
                    if self._may_be_given(draft, topic, value):
                        values.append(value)
                        size += len(value)
                    if matching >= count_max or size >= _BYTES_PER_PAGE:
                        return RetainedMessages(values, topic)
            if len(rows) < wanted:
                return RetainedMessages(values, b"")
            examined += wanted
            start = rows[-1][0] + b"\x00"
        return RetainedMessages(values, topic)

    def erase_expired(self, draft: Draft, rows: list[tuple[bytes, bytes]], wall_ms: int) -> None:
        """Of these rows.  Nobody is given one that has expired, erased or not; this is for the disk."""
        for key, value in rows:
            flags, published_at_ms, _, _, body = header(value)
            if not flags & HAS_EXPIRY:
                continue
            expiry_s = message_expiry(body)
            if expiry_s is not None and published_at_ms + expiry_s * 1000 <= wall_ms:
                self.put_here(draft, key[1:], b"", None)
                self.expired += 1

    def _may_be_given(self, draft: Draft, topic: bytes, value: bytes) -> bool:
        judging = self._judging
        return not judging.judges or judging.may_be_kept(header(value)[2], self._sources.of(draft, topic), topic)

    def check(self) -> None:
        for waiting in self._outbox.values():
            assert list(waiting) == sorted(set(waiting))


def literal_prefix(topic_filter: bytes) -> bytes:
    """What every matching topic begins with.  `a/#` also matches `a`, so the separator before a # is not part of it."""
    levels: list[bytes] = []
    for level in topic_filter.split(b"/"):
        if level == b"#":
            return b"/".join(levels)
        if level == b"+":
            return b"/".join(levels) + (b"/" if levels else b"")
        levels.append(level)
    return topic_filter
