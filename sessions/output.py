"""What goes to one gateway within a tick, joined into few frames.

The body of a message is in a Deliver frame once, however many connections get it; a frame is closed when the bodies in it
reach a bound, so a link never carries a frame of many megabytes.  Order per connection is the order of the calls.
"""

from __future__ import annotations

from sessions.bodies import Bodies
from sessions.events import Effect, ToGateway
from sessions.frames import Deliver, SendPubrel
from sessions.session import Session
from sessions.window import Batch

_Column = tuple[int, list[int], list[int], bytearray, list[int]]


class Output:
    """One gateway link.  conns: the sessions attached over it."""

    __slots__ = (
        "_bytes",
        "_bytes_max",
        "_effects",
        "_indexes",
        "_link",
        "_messages",
        "_pubrels",
        "_pubrels_unknown",
        "_to",
        "conns",
        "gateway",
    )

    def __init__(self, link: int, gateway: str, bytes_max: int) -> None:
        self.gateway = gateway
        self.conns: dict[int, Session] = {}
        self._link = link
        self._bytes_max = bytes_max
        self._effects: list[Effect] = []
        self._messages: list[tuple[bytes, bytes, int, int]] = []
        self._to: dict[int, _Column] = {}
        self._indexes: dict[Bodies, dict[int, int]] = {}
        self._bytes = 0
        self._pubrels: dict[int, list[int]] = {}
        self._pubrels_unknown: dict[int, list[int]] = {}

    @property
    def pending(self) -> bool:
        return bool(self._to or self._effects or self._pubrels or self._pubrels_unknown)

    def deliver(self, conn: int, batch: Batch, start: int, stop: int) -> None:
        bodies = batch.bodies
        per_message = bodies.bytes // len(bodies.messages)
        if self._bytes and self._bytes + per_message * (stop - start) > self._bytes_max:
            self._close()
        if per_message * (stop - start) > self._bytes_max:
            step = max(1, self._bytes_max // per_message)
            for at in range(start, stop, step):
                self._add(conn, batch, at, min(at + step, stop), per_message)
                self._close()
        else:
            self._add(conn, batch, start, stop, per_message)

    def _add(self, conn: int, batch: Batch, start: int, stop: int, per_message: int) -> None:
        bodies, indexes = batch.bodies, batch.indexes
        if start or stop < len(indexes):
            indexes = indexes[start:stop]
        column = self._to.get(conn)
        if column is None:
            column = self._to[conn] = (conn, [], [], bytearray(), [])
        messages = self._messages
        _, to_indexes, to_ids, to_firsts, to_identifiers = column
        count = stop - start
        if bodies.shared:
            known = self._indexes.get(bodies)
            if known is None:
                known = self._indexes[bodies] = {}
            for index in indexes:
                at = known.get(index)
                if at is None:
                    at = known[index] = len(messages)
                    messages.append(bodies.messages[index])
                    self._bytes += per_message
                to_indexes.append(at)
        else:
            to_indexes.extend(range(len(messages), len(messages) + count))
            if isinstance(indexes, range):
                messages.extend(bodies.messages[indexes.start : indexes.stop])
            else:
                messages.extend([bodies.messages[index] for index in indexes])
            self._bytes += per_message * count
        whole = count == len(batch.firsts)
        to_ids.extend(batch.packet_ids if whole else batch.packet_ids[start:stop])
        to_firsts += batch.firsts if whole else batch.firsts[start:stop]
        to_identifiers.extend([batch.identifier] * count)

    def pubrel(self, conn: int, packet_ids: list[int]) -> None:
        self._pubrels.setdefault(conn, []).extend(packet_ids)

    def pubrel_unknown(self, conn: int, packet_ids: list[int]) -> None:
        """PUBREL for what is not under way: the client must be able to end its exchange."""
        self._pubrels_unknown.setdefault(conn, []).extend(packet_ids)

    def forget(self, conn: int) -> None:
        """The connection is closed: PUBRELs of this tick are not sent any more; messages are joined only when it ends."""
        self._pubrels.pop(conn, None)
        self._pubrels_unknown.pop(conn, None)
        self.conns.pop(conn, None)

    def take(self) -> list[Effect]:
        """The frames of this tick."""
        self._close()
        effects, self._effects = self._effects, []
        for conn, packet_ids in self._pubrels.items():
            effects.append(ToGateway(self._link, SendPubrel(conn, packet_ids)))
        for conn, packet_ids in self._pubrels_unknown.items():
            effects.append(ToGateway(self._link, SendPubrel(conn, packet_ids, False)))
        self._pubrels.clear()
        self._pubrels_unknown.clear()
        return effects

    def _close(self) -> None:
        if self._to:
            to = [
                (conn, indexes, packet_ids, bytes(firsts), identifiers)
                for conn, indexes, packet_ids, firsts, identifiers in self._to.values()
            ]
            self._effects.append(ToGateway(self._link, Deliver(self._messages, to)))
            self._to = {}
        if self._messages:
            self._messages = []
        self._indexes.clear()
        self._bytes = 0
