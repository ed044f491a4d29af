"""QoS 2 ids of publishers that were taken and are not released: rows of the home, known until PUBREL (PROTOCOLS 12).

In RAM only for clients that are connected and have used one.  With an await_rel_timeout the row holds the age at which the id
was taken, and one that is older is released at the next QoS 2 message or PUBREL of its client; without, it is kept for ever
and the row is empty.  An id that was taken before there was a timeout counts from when its client uses it again.

    taken -> (repeated: known) -> released by PUBREL, by the timeout, or with its session

Holds: what is in RAM is what is in the rows; ids are in the order in which they were taken, as far as that is known.
"""

from __future__ import annotations

from shards.draft import Draft
from shards.homes import Client
from shards.rows import INCOMING, client_key, pack_row, unpack_row

FOR_EVER = 0


class Incoming:
    def __init__(self, timeout_ms: int = FOR_EVER) -> None:
        self._timeout_ms = timeout_ms
        self._age_ms = 0
        self._suspended = False
        self.timed_out = 0
        """Ids released without PUBREL."""

    def at(self, age_ms: int, suspended: bool) -> None:
        """The age of the shard now; suspended: nothing ends by age (shards.clock)."""
        self._age_ms = age_ms
        self._suspended = suspended

    def holds(self, draft: Draft, client: bytes, state: Client, packet_id: int) -> bool:
        """Whether a message was taken under this id: then this one is a repeat, whatever its DUP flag says [MQTT-4.3.3-10]."""
        return packet_id in self._ids(draft, client, state)

    def take(self, draft: Draft, client: bytes, state: Client, packet_id: int) -> None:
        """In the record that holds the message."""
        self._ids(draft, client, state)[packet_id] = self._age_ms
        draft.put(_key(client, packet_id), pack_row((self._age_ms,)) if self._timeout_ms else b"")

    def release(self, draft: Draft, client: bytes, state: Client, packet_id: int) -> bool:
        """PUBREL: the id is free; False when nothing was taken under it."""
        if self._ids(draft, client, state).pop(packet_id, None) is None:
            return False
        draft.delete(_key(client, packet_id))
        return True

    def _ids(self, draft: Draft, client: bytes, state: Client) -> dict[int, int]:
        """Those that have not timed out; age at which each was taken."""
        ids = state.incoming
        if ids is None:
            rows = draft.scan(client_key(INCOMING, client), 65_536)
            found = [(unpack_row(value)[0] if value else self._age_ms, int.from_bytes(key[-2:], "big")) for key, value in rows]
            ids = state.incoming = {packet_id: age_ms for age_ms, packet_id in sorted(found)}
        if self._timeout_ms and not self._suspended:
            while ids:
                packet_id, taken_ms = next(iter(ids.items()))
                if taken_ms + self._timeout_ms > self._age_ms:
                    break
                del ids[packet_id]
                draft.delete(_key(client, packet_id))
                self.timed_out += 1
        return ids


def _key(client: bytes, packet_id: int) -> bytes:
    return client_key(INCOMING, client, packet_id.to_bytes(2, "big"))
