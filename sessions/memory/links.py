"""Gateways, as sessions in memory see them: what each was told of the wishes here, and what goes to it in a tick.

A link begins with the whole table; changes follow in numbered Interest frames, each confirmed by InterestSeen, which is what a
SUBACK waits for (PROTOCOLS 9).

Always holds: what a gateway was told is what MemoryTable.told says; numbers confirmed are at most numbers sent.
"""

from __future__ import annotations

from sessions.frames import Deliver, Frame, SendPubrel
from sessions.live_frames import Interest
from sessions.memory.message import Message
from sessions.memory.table import MemoryTable

_Column = tuple[int, list[int], list[int], bytearray, list[int]]


class GatewayLink:
    """One gateway.  A body is in a Deliver frame once, however many connections get it."""

    __slots__ = ("_at", "_bytes", "_bytes_max", "_frames", "_messages", "_pubrels", "_to", "_unknown", "seen", "sent")

    def __init__(self, bytes_max: int) -> None:
        self.sent = 0
        self.seen = 0
        self._bytes_max = bytes_max
        self._bytes = 0
        self._frames: list[Frame] = []
        self._messages: list[Message] = []
        self._at: dict[Message, int] = {}
        self._to: dict[int, _Column] = {}
        self._pubrels: dict[int, list[int]] = {}
        self._unknown: dict[int, list[int]] = {}

    def deliver(self, conn: int, message: Message, packet_id: int, first: int, identifier: int) -> None:
        at = self._at.get(message)
        if at is None:
            if self._bytes and self._bytes + message.size > self._bytes_max:
                self._close()
            at = self._at[message] = len(self._messages)
            self._messages.append(message)
            self._bytes += message.size
        column = self._to.get(conn)
        if column is None:
            column = self._to[conn] = (conn, [], [], bytearray(), [])
        _, indexes, packet_ids, firsts, identifiers = column
        indexes.append(at)
        packet_ids.append(packet_id)
        firsts.append(first)
        identifiers.append(identifier)

    def pubrel(self, conn: int, packet_ids: list[int]) -> None:
        self._pubrels.setdefault(conn, []).extend(packet_ids)

    def pubrel_unknown(self, conn: int, packet_ids: list[int]) -> None:
        """Nothing is under way under these identifiers."""
        self._unknown.setdefault(conn, []).extend(packet_ids)

    def take(self) -> list[Frame]:
        """The frames of this tick: PUBRELs first, as a client that comes back is to have them."""
        if not (self._pubrels or self._unknown or self._to or self._frames):
            return []
        self._close()
        frames: list[Frame] = [SendPubrel(conn, packet_ids) for conn, packet_ids in self._pubrels.items()]
        frames += [SendPubrel(conn, packet_ids, False) for conn, packet_ids in self._unknown.items()]
        frames += self._frames
        self._pubrels.clear()
        self._unknown.clear()
        self._frames = []
        return frames

    def _close(self) -> None:
        if self._to:
            to = [(conn, indexes, packet_ids, bytes(firsts), ids) for conn, indexes, packet_ids, firsts, ids in self._to.values()]
            self._frames.append(Deliver([message.row() for message in self._messages], to))
        self._to = {}
        self._messages = []
        self._at = {}
        self._bytes = 0


class GatewayLinks:
    def __init__(self, table: MemoryTable, bytes_max: int) -> None:
        self._table = table
        self._bytes_max = bytes_max
        self.links: dict[int, GatewayLink] = {}

    def linked(self, link: int) -> None:
        self.links[link] = GatewayLink(self._bytes_max)

    def lost(self, link: int) -> None:
        self.links.pop(link, None)

    def seen(self, link: int, number: int) -> None:
        gateway = self.links.get(link)
        if gateway is not None:
            gateway.seen = max(gateway.seen, number)

    def tell(self) -> list[tuple[int, Frame]]:
        """What every gateway is told at the end of a tick: changes, a new one everything."""
        add, remove, groups = self._table.changes()
        changed = bool(add or remove or groups)
        frames: list[tuple[int, Frame]] = []
        for link, gateway in self.links.items():
            if not gateway.sent:
                gateway.sent = 1
                filters, members = self._table.told()
                frames.append((link, Interest(1, True, filters, [], [], [], members)))
            elif changed:
                gateway.sent += 1
                frames.append((link, Interest(gateway.sent, False, add, [], remove, [], groups)))
        return frames

    def unconfirmed(self) -> dict[int, int]:
        """link -> the last Interest that it has still to confirm."""
        return {link: gateway.sent for link, gateway in self.links.items() if gateway.seen < gateway.sent}

    def confirmed(self, needs: dict[int, int]) -> bool:
        """Whether these have been confirmed, by all gateways that are still there."""
        return all(link not in self.links or self.links[link].seen >= number for link, number in needs.items())
