"""What is left of ended sessions, erased bit by bit.

A session ends at once: the record that ends it has no session row any more, and an *ended* row in its place when its other
rows are too many for one record.  Those are erased in later records, oldest end first, and with the last of them goes the
ended row.  A subscription with a route leaves a work row behind, in the record that erases it.

    session row -> ended row -> nothing

Until then the client has no session and can begin none (homes answers BUSY): its new rows would lie among the old ones.

Holds after every call (see check): `clients` are exactly those that have an ended row.
"""

from __future__ import annotations

from itertools import islice

from mqtt.topics import is_shared
from shards.draft import Draft
from shards.engine import HOME_FAMILY, Engine
from shards.rows import (
    ADDING,
    ENDED,
    INCOMING,
    LOSS,
    PLACE,
    PROGRESS,
    RANGE,
    SUBSCRIPTION,
    TO_COPY,
    WORK,
    client_key,
    pack_row,
    read_u64,
    split_client_key,
    successor,
    unpack_row,
)  # fmt: skip

ROWS_OF_SESSION = (SUBSCRIPTION, PLACE, RANGE, PROGRESS, INCOMING, LOSS, TO_COPY)

Work = tuple[bytes, int, bytes]
"""(client, subscription id, filter) of a route that is to be removed from every shard."""


class Ending:
    def __init__(self, engine: Engine) -> None:
        self.clients: dict[bytes, bytes] = {}
        """With the key from which to go on: seeking over rows that are just erased gets slower with each of them."""
        self.rows_erased = 0
        """Since the start; only grows."""
        start, end = ENDED, successor(ENDED)
        while rows := engine.scan(HOME_FAMILY, start, end, 2000):
            for key, _ in rows:
                self.clients[split_client_key(key)[0]] = b""
            start = rows[-1][0] + b"\x00"

    def mark(self, draft: Draft, client: bytes) -> None:
        """Everything of this client that belongs to a session is to go."""
        if client not in self.clients:
            self.clients[client] = b""
            draft.put(client_key(ENDED, client), b"")

    def begin(self, draft: Draft, client: bytes, rows_max: int, work: list[Work]) -> None:
        """The session row goes in this record; up to `rows_max` other rows go with it."""
        if client in self.clients:
            # Rows that nothing accounts for were found earlier and are being erased.
            self.go_on(draft, client, rows_max, work)
            return
        reached = self._erase(draft, client, b"", rows_max, work)
        if reached:
            self.mark(draft, client)
            self.clients[client] = reached

    def go_on(self, draft: Draft, client: bytes, rows_max: int, work: list[Work]) -> None:
        reached = self._erase(draft, client, self.clients[client], rows_max, work)
        if reached:
            self.clients[client] = reached
        else:
            del self.clients[client]
            draft.delete(client_key(ENDED, client))

    def turn(self, draft: Draft, rows_max: int, work: list[Work]) -> None:
        """Erase for those who wait, up to `rows_max` rows."""
        upto = self.rows_erased + rows_max
        for client in list(islice(self.clients, rows_max)):
            if self.rows_erased >= upto:
                return
            self.go_on(draft, client, upto - self.rows_erased, work)

    def _erase(self, draft: Draft, client: bytes, start: bytes, rows_max: int, work: list[Work]) -> bytes:
        """Where to go on, empty when no row is left."""
        left = rows_max
        for family in ROWS_OF_SESSION[ROWS_OF_SESSION.index(start[:1]) if start else 0 :]:
            prefix = client_key(family, client)
            rows = draft.scan(prefix, left + 1, start if start.startswith(prefix) else prefix)
            for key, value in rows[:left]:
                if family == SUBSCRIPTION:
                    topic_filter, qos, _, _, state, starts, *_ = unpack_row(value)
                    # One of QoS 0 has a route where store_qos0 is, or was, in force, or for a shared group.
                    if qos or starts or state == ADDING or is_shared(topic_filter):
                        suffix = key[len(prefix) :]
                        draft.put(client_key(WORK, client, suffix), pack_row((topic_filter,)))
                        work.append((client, read_u64(suffix), topic_filter))
                draft.delete(key)
                self.rows_erased += 1
            if len(rows) > left:
                return rows[left][0]
            left -= len(rows)
        return b""

    def check(self, draft: Draft) -> None:
        stored = {split_client_key(key)[0] for key, _ in draft.scan(ENDED, len(self.clients) + 1)}
        assert stored == set(self.clients), (stored, self.clients)
