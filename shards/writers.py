"""Writers: those who put messages in without being a client, each block of them once.

A writer (a pipeline, a replay) has a name and numbers what it writes by (batch, block), which only grows. The row of the writer says what
was taken last, in the same record as its messages, so whoever does not know whether a block has arrived sends it again. Each message goes
the way of a will: it enters here, since its client is at home here, is stored when somebody wants it, and is told to live subscribers.

    first block -> row -> ... -> not used for 30 days: gone; the row of a single write after a day, when room is needed

Holds after every call (see check):
1. the table in RAM equals the rows as of everything submitted, in the order in which they were used; there are at most WRITERS_MAX;
2. a block is taken whole or not at all, and only when it is above the row of its writer;
3. what is refused changes nothing of what was taken, so the same block may come again.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import NamedTuple

from mqtt.body import message_expiry, properties_of, with_message_expiry
from mqtt.reason import ProtocolError
from mqtt.topics import check_topic_name
from mqtt.wire import check_utf8
from shards.draft import Draft
from shards.engine import HOME_FAMILY, Engine
from shards.entries import APPEND_FORBIDDEN, APPEND_FULL, APPEND_REPEATED, APPEND_SENSELESS, APPEND_TAKEN, Append, Appended
from shards.frames import Live
from shards.publishing import Publishing
from shards.rows import WRITER, pack_row, successor, unpack_as
from shards.slots import SlotTable

WRITERS_MAX = 10_000
NAME_BYTES_MAX = 256
MESSAGES_MAX = 4096
"""Of one block."""
UNUSED_KEPT_MS = 30 * 86_400_000
ONCE = b"once-"
"""So begin the names of writers that nobody names again: of one write, and of no other."""
ONCE_KEPT_MS = 86_400_000
"""How long they stay though others need their room."""
FORGOTTEN_PER_RECORD = 500
ROLES = ("reader", "admin")
"""Whose links may write so."""
_NUMBER_MAX = 1 << 62
_CLIENT_BYTES_MAX = 65_535
_FLAGS_MAX = 15
_NO_QOS = 6
_OF_THE_BROKER = (b"$SYS/", b"$share/", b"$delayed/")
"""No client may publish under these."""
_SENSELESS = Appended(APPEND_SENSELESS, 0)


class WriterRow(NamedTuple):
    """What was taken last; used_ms: age of the shard then."""

    batch: int
    block: int
    used_ms: int


class Writers:
    def __init__(
        self, engine: Engine, shard: int, slots: SlotTable, publishing: Publishing, tell_subscribers: Callable[[Live], None]
    ) -> None:  # fmt: skip
        self._shard = shard
        self._slots = slots
        self._publishing = publishing
        self._tell = tell_subscribers
        self._rows: dict[bytes, WriterRow] = {}
        """The one that was not used for the longest time comes first."""
        self.appended = 0
        """Messages taken since the start."""
        self.repeated = 0
        """Blocks that had been taken before, since the start."""
        found = engine.scan(HOME_FAMILY, WRITER, successor(WRITER), WRITERS_MAX + 1)
        for key, row in sorted(((key, unpack_as(WriterRow, value)) for key, value in found), key=lambda each: each[1].used_ms):
            self._rows[key[1:]] = row

    def __len__(self) -> int:
        return len(self._rows)

    def take(self, draft: Draft, entry: Append, role: str, age_ms: int, wall_ms: int) -> tuple[Appended, int]:
        """The reply, and the outbox position that it has to wait for (0: none). role: of the link."""
        if role not in ROLES:
            return Appended(APPEND_FORBIDDEN, 0), 0
        if not self._makes_sense(entry):
            return _SENSELESS, 0
        row = self._rows.get(entry.writer)
        if row is not None and (entry.batch, entry.block) <= (row.batch, row.block):
            self.repeated += 1
            return Appended(APPEND_REPEATED, 0), 0
        if not self._publishing.room or (row is None and not self._has_room(draft, age_ms)):
            return Appended(APPEND_FULL, 0), 0
        self._publishing.taken += len(entry.topics)
        self.appended += len(entry.topics)
        outbox = stored = 0
        # Nothing is younger than now: a reading by time begins where the newest messages from before that time are.
        at_ms = min(entry.published_at_ms or wall_ms, wall_ms)
        enter = self._publishing.enter
        for client, sent, topic, body in zip(entry.clients, entry.flags, entry.topics, entry.bodies, strict=True):
            flags = self._publishing.entering_flags(sent >> 1 & 3, sent & 1, topic)
            there, waits = enter(draft, client, entry.identity, flags, topic, body, at_ms)
            stored += there
            outbox = max(outbox, waits)
            left = _left(body, at_ms, wall_ms)
            if left is not None:
                self._tell(Live(client, flags, topic, left))
        self._rows.pop(entry.writer, None)
        row = self._rows[entry.writer] = WriterRow(entry.batch, entry.block, age_ms)
        draft.put(WRITER + entry.writer, pack_row(row))
        return Appended(APPEND_TAKEN, stored), outbox

    def forget_unused(self, draft: Draft, age_ms: int) -> None:
        """Rows of writers that have written nothing for so long go, some in a record."""
        for name, row in list(islice(self._rows.items(), FORGOTTEN_PER_RECORD)):
            if age_ms - row.used_ms <= UNUSED_KEPT_MS:
                return
            del self._rows[name]
            draft.delete(WRITER + name)

    def _has_room(self, draft: Draft, age_ms: int) -> bool:
        """For one more. Where there is none, writes that are over make it, some in a record."""
        if len(self._rows) < WRITERS_MAX:
            return True
        over = (name for name, row in self._rows.items() if name.startswith(ONCE) and age_ms - row.used_ms > ONCE_KEPT_MS)
        for name in list(islice(over, FORGOTTEN_PER_RECORD)):
            del self._rows[name]
            draft.delete(WRITER + name)
        return len(self._rows) < WRITERS_MAX

    def check(self, draft: Draft) -> None:
        rows = {key[1:]: unpack_as(WriterRow, value) for key, value in draft.scan(WRITER, WRITERS_MAX + 1)}
        assert rows == self._rows, (rows, self._rows)
        used = [row.used_ms for row in self._rows.values()]
        assert used == sorted(used) and len(used) <= WRITERS_MAX

    def _makes_sense(self, entry: Append) -> bool:
        """Nothing that was not looked at by a gateway goes into the store: the same rules as for a PUBLISH."""
        count = len(entry.topics)
        if not len(entry.clients) == len(entry.flags) == len(entry.bodies) == count <= MESSAGES_MAX:
            return False
        if not 0 < len(entry.writer) <= NAME_BYTES_MAX:
            return False
        if not all(0 <= number <= _NUMBER_MAX for number in (entry.batch, entry.block, entry.published_at_ms)):
            return False
        if any(flags > _FLAGS_MAX or flags & _NO_QOS == _NO_QOS for flags in entry.flags):
            return False
        try:
            for topic in set(entry.topics):
                check_topic_name(topic)
                if topic.startswith(_OF_THE_BROKER):
                    return False
            for client in set(entry.clients):
                check_utf8(client, "client id")
                if len(client) > _CLIENT_BYTES_MAX or self._slots.shard_of(client) != self._shard:
                    return False
            return all(_is_body(body) for body in entry.bodies)
        except ProtocolError:
            return False


def _is_body(body: bytes) -> bool:
    """Raises ProtocolError, too."""
    if not body or body[0] == 0:
        return bool(body)
    properties = properties_of(body)
    # Of a connection and of a subscription, not of a message.
    return properties.topic_alias is None and not properties.subscription_identifiers


def _left(body: bytes, at_ms: int, now_ms: int) -> bytes | None:
    """What live subscribers get now of a message that was published then; None: it has expired."""
    expiry_s = message_expiry(body)
    if expiry_s is None or at_ms == now_ms:
        return body
    left_ms = expiry_s * 1000 - (now_ms - at_ms)
    return with_message_expiry(body, -(-left_ms // 1000)) if left_ms > 0 else None


__all__ = ["WRITERS_MAX", "WriterRow", "Writers"]
