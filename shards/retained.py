"""Retained messages at their homes, and the outbox of those whose home is another shard.

The publisher's home is the only writer: a retained message is an entry of the message's own record, either as the row of its
topic here, or as an outbox row that is forwarded in log order over a numbered link and applied once at the topic's home, by
(source shard, position).  The publisher's acknowledgement waits for that (PROTOCOLS 10).

Holds after every call (see check):
1. the outbox in RAM equals the outbox rows; positions per target grow;
2. `done` is the greatest position below which no outbox row is left.
"""

from __future__ import annotations

from collections import deque

from mqtt.topics import matches
from shards.draft import Draft
from shards.engine import HOME_FAMILY, Engine
from shards.frames import RetainedMessages
from shards.rows import APPLIED, OUTBOX, RETAINED, pack_row, successor, u64, unpack_row

_EXAMINED_PER_PAGE = 2000
_BYTES_PER_PAGE = 1 << 20
NOTHING_WAITS = 1 << 62


class RetainedHome:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._applied: dict[int, int] = {}
        for key, value in engine.scan(HOME_FAMILY, APPLIED, successor(APPLIED), 256):
            self._applied[key[1]] = unpack_row(value)[0]
        self._outbox: dict[int, deque[int]] = {}
        self.unsent: list[tuple[int, tuple[int, bytes, bytes]]] = []
        start, end = OUTBOX, successor(OUTBOX)
        while rows := engine.scan(HOME_FAMILY, start, end, 1000):
            for key, value in rows:
                target, position = key[1], int.from_bytes(key[2:], "big")
                topic, message = unpack_row(value)
                self._outbox.setdefault(target, deque()).append(position)
                self.unsent.append((target, (position, topic, message)))
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

    def put_here(self, draft: Draft, topic: bytes, message: bytes) -> None:
        """An empty message deletes [MQTT-3.3.1-6]."""
        if message:
            draft.put(RETAINED + topic, message)
        else:
            draft.delete(RETAINED + topic)

    def put_away(self, draft: Draft, target: int, position: int, topic: bytes, message: bytes) -> None:
        """On its way to its home: sent once the record is committed, kept until the home has it."""
        draft.put(OUTBOX + bytes((target,)) + u64(position), pack_row((topic, message)))
        self._outbox.setdefault(target, deque()).append(position)
        self.unsent.append((target, (position, topic, message)))

    def arrived(self, draft: Draft, target: int, upto: int) -> None:
        """The home has applied everything up to this position."""
        waiting = self._outbox.get(target)
        while waiting and waiting[0] <= upto:
            draft.delete(OUTBOX + bytes((target,)) + u64(waiting.popleft()))

    def apply(self, draft: Draft, source: int, items: list[tuple[int, bytes, bytes]]) -> int:
        """Items of another shard; what came before is skipped.  Returns how far its log is applied here."""
        applied = self._applied.get(source, 0)
        for position, topic, message in items:
            if position > applied:
                self.put_here(draft, topic, message)
                applied = position
        self._applied[source] = applied
        draft.put(APPLIED + bytes((source,)), pack_row((applied,)))
        return applied

    def page(self, draft: Draft, topic_filter: bytes, after: bytes, count_max: int) -> RetainedMessages:
        """Matching retained messages after a topic, bounded in count, bytes and rows looked at."""
        if b"+" not in topic_filter and not topic_filter.endswith(b"#"):
            value = draft.get(RETAINED + topic_filter)
            return RetainedMessages([value] if value and not after else [], b"")
        prefix = RETAINED + _literal_prefix(topic_filter)
        start = max(prefix, RETAINED + after + b"\x00") if after else prefix
        rows = draft.scan_range(start, successor(prefix), _EXAMINED_PER_PAGE)
        values: list[bytes] = []
        size = 0
        for key, value in rows:
            topic = key[1:]
            if matches(topic_filter, topic):
                values.append(value)
                size += len(value)
                if len(values) >= count_max or size >= _BYTES_PER_PAGE:
                    return RetainedMessages(values, topic)
        return RetainedMessages(values, rows[-1][0][1:] if len(rows) == _EXAMINED_PER_PAGE else b"")

    def check(self) -> None:
        for waiting in self._outbox.values():
            assert list(waiting) == sorted(set(waiting))


def _literal_prefix(topic_filter: bytes) -> bytes:
    """What every matching topic begins with.  `a/#` also matches `a`, so the separator before a # is not part of it."""
    levels: list[bytes] = []
    for level in topic_filter.split(b"/"):
        if level == b"#":
            return b"/".join(levels)
        if level == b"+":
            return b"/".join(levels) + (b"/" if levels else b"")
        levels.append(level)
    return topic_filter
