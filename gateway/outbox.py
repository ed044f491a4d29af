"""What one turn of the loop wants to send: joined per shard and connection, per session actor, per gateway, per socket.

Entries of one connection leave in the order in which they were made, and their answers come back in that order: every
numbered request keeps its entries with the connections that caused them until its answer is here.  Deciding what to send
is the business of the other modules.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from gateway.connection import Connection
from gateway.events import CloseSocket, Effect, PauseReading, ToSession, ToShard, Write
from sessions.frames import Acked
from sessions.frames import Frame as SessionFrame
from shards.frames import Delay, Entry, Publish, Release, Reply


class PublishBatch:
    """The Publish entry of one connection while it may still grow: until another entry of that connection, or the turn's end.

    Its first run's lists are used as they are (nobody changes them once they are handed over); a second run makes copies.
    """

    __slots__ = ("_own", "bodies", "connection", "flags", "packet_ids", "topics")

    def __init__(self, connection: Connection, flags: list[int], packet_ids: list[int], topics: list[bytes], bodies: list[bytes]) -> None:
        self.connection = connection
        self.flags, self.packet_ids, self.topics, self.bodies = flags, packet_ids, topics, bodies
        self._own = False

    def extend(self, flags: list[int], packet_ids: list[int], topics: list[bytes], bodies: list[bytes]) -> None:
        if not self._own:
            self.flags, self.packet_ids = list(self.flags), list(self.packet_ids)
            self.topics, self.bodies = list(self.topics), list(self.bodies)
            self._own = True
        self.flags += flags
        self.packet_ids += packet_ids
        self.topics += topics
        self.bodies += bodies

    def entry(self, wall_ms: int) -> Publish:
        connection = self.connection
        return Publish(
            connection.client, connection.conn, connection.durable, wall_ms, bytes(self.flags), self.packet_ids, self.topics, self.bodies
        )  # fmt: skip


class ReleaseBatch:
    """The Release entry of one connection while it may still grow."""

    __slots__ = ("connection", "packet_ids")

    def __init__(self, connection: Connection, packet_ids: list[int]) -> None:
        self.connection = connection
        self.packet_ids = packet_ids

    def entry(self) -> Release:
        return Release(self.connection.client, self.connection.conn, self.packet_ids)


@dataclass(slots=True)
class ShardQueue:
    """One shard: what this turn adds, what has no answer yet, and who is not read because of it."""

    pending: list[tuple[Connection | None, PublishBatch | ReleaseBatch | Entry]] = field(default_factory=list)
    unanswered: dict[int, list[tuple[Connection | None, Entry]]] = field(default_factory=dict)
    next_id: int = 1
    messages: int = 0
    bytes: int = 0
    paused: dict[Connection, None] = field(default_factory=dict)


class Outbox:
    def __init__(self, frame_bytes_max: int) -> None:
        self._frame_bytes_max = frame_bytes_max
        self.shards: dict[int, ShardQueue] = {}
        self.dirty: list[Connection] = []
        """Connections with bytes to write; whoever appends to an empty `Connection.out` appends the connection here."""
        self.effects: list[Effect] = []
        """What goes out as it is, at the end of the turn, behind the writes."""
        self.others_sent = 0
        """Packets that are no PUBLISH, since the start; and bytes of all packets."""
        self.bytes_sent = 0
        self._sessions: dict[int, list[SessionFrame]] = {}
        self._acking: list[Connection] = []
        self._closing: list[CloseSocket] = []

    # ---------------------------------------------------------------- sockets
    def write(self, connection: Connection, data: bytes, others: int = 1) -> None:
        """others: how many packets that are no PUBLISH this is."""
        self.others_sent += others
        if not connection.out:
            self.dirty.append(connection)
        connection.out.append(data)

    def close(self, connection: Connection, why: str) -> None:
        self._closing.append(CloseSocket(connection.socket, why))

    def pause(self, connection: Connection, reason: int) -> None:
        if not connection.paused:
            self.effects.append(PauseReading(connection.socket, True))
        connection.paused |= reason

    def resume(self, connection: Connection, reason: int) -> bool:
        """Take one reason away; whether that was the last one."""
        if not connection.paused & reason:
            return False
        connection.paused &= ~reason
        if connection.paused:
            return False
        if not connection.gone:
            self.effects.append(PauseReading(connection.socket, False))
        return True

    # ---------------------------------------------------------------- shards
    def shard(self, shard: int) -> ShardQueue:
        queue = self.shards.get(shard)
        if queue is None:
            queue = self.shards[shard] = ShardQueue()
        return queue

    def entry(self, shard: int, connection: Connection | None, entry: Entry) -> None:
        """Add an entry behind all earlier ones of the connection.  Only its first and its last entry come this way, so
        no batch of the connection is open that could grow past it."""
        self.shard(shard).pending.append((connection, entry))

    def publish(
        self, connection: Connection, flags: list[int], packet_ids: list[int], topics: list[bytes], bodies: list[bytes]
    ) -> ShardQueue:
        queue = self.shard(connection.shard)
        batch = connection.batch
        if batch is not None:
            batch.extend(flags, packet_ids, topics, bodies)
        else:
            connection.release = None
            connection.batch = batch = PublishBatch(connection, flags, packet_ids, topics, bodies)
            queue.pending.append((connection, batch))
        queue.messages += len(flags)
        queue.bytes += sum(map(len, bodies))
        return queue

    def delay(
        self, connection: Connection, flags: list[int], packet_ids: list[int], seconds: list[int], topics: list[bytes], bodies: list[bytes]
    ) -> ShardQueue:
        """Messages that the shard keeps until they are due; they never grow."""
        queue = self.shard(connection.shard)
        connection.batch = connection.release = None
        entry = Delay(connection.client, connection.conn, connection.durable, bytes(flags), packet_ids, seconds, topics, bodies)
        queue.pending.append((connection, entry))
        queue.messages += len(flags)
        queue.bytes += sum(map(len, bodies))
        return queue

    def release(self, connection: Connection, packet_ids: list[int]) -> None:
        if connection.release is not None:
            connection.release.packet_ids = connection.release.packet_ids + packet_ids
            return
        connection.batch = None
        connection.release = ReleaseBatch(connection, packet_ids)
        self.shard(connection.shard).pending.append((connection, connection.release))

    def replied(self, shard: int, request: int, replies: list[Reply]) -> Iterator[tuple[Connection | None, Entry, Reply]]:
        """The entries of a request with their answers; the request is answered now."""
        queue = self.shard(shard)
        entries = queue.unanswered.pop(request)
        if len(entries) != len(replies):
            raise ValueError(f"shard {shard}: {len(replies)} replies to request {request} of {len(entries)} entries")
        for (connection, entry), reply in zip(entries, replies, strict=True):
            if type(entry) is Publish or type(entry) is Delay:
                queue.messages -= len(entry.flags)
                queue.bytes -= sum(map(len, entry.bodies))
            yield connection, entry, reply

    # ---------------------------------------------------------------- session actors
    def to_session(self, session: int, frame: SessionFrame) -> None:
        self._sessions.setdefault(session, []).append(frame)

    def acked(self, connection: Connection, kind: int, packet_ids: list[int]) -> None:
        """Successful acknowledgements of a durable connection, joined while the kind stays the same."""
        if connection.ack_kind == kind and connection.ack_ids is not None:
            connection.ack_ids += packet_ids
            return
        if connection.ack_ids is None:
            self._acking.append(connection)
        connection.ack_kind = kind
        connection.ack_ids = list(packet_ids)
        self.to_session(connection.session, Acked(connection.conn, kind, connection.ack_ids, False))

    # ---------------------------------------------------------------- the end of a turn
    def turn(self, wall_ms: int) -> list[Effect]:
        """Everything of this turn: writes, then closes, pauses and the like, then shards and session actors."""
        effects: list[Effect] = []
        for connection in self.dirty:
            if connection.out and not connection.gone:
                data = b"".join(connection.out)
                self.bytes_sent += len(data)
                effects.append(Write(connection.socket, data))
            connection.out = []
        self.dirty.clear()
        effects += self._closing
        self._closing.clear()
        effects += self.effects
        self.effects.clear()
        for shard, queue in self.shards.items():
            if queue.pending:
                effects += self._requests(shard, queue, wall_ms)
        for session, frames in self._sessions.items():
            effects += [ToSession(session, frame) for frame in frames]
        self._sessions.clear()
        for connection in self._acking:
            connection.ack_ids = None
        self._acking.clear()
        return effects

    def _requests(self, shard: int, queue: ShardQueue, wall_ms: int) -> list[ToShard]:
        """The pending entries as numbered requests, none much larger than a frame should be."""
        requests: list[ToShard] = []
        kept: list[tuple[Connection | None, Entry]] = []
        size = 0
        for connection, pending in queue.pending:
            if size >= self._frame_bytes_max:
                requests.append(self._request(shard, queue, kept))
                kept, size = [], 0
            if isinstance(pending, PublishBatch):
                pending.connection.batch = None
                size += sum(map(len, pending.bodies))
                kept.append((connection, pending.entry(wall_ms)))
            elif isinstance(pending, ReleaseBatch):
                pending.connection.release = None
                kept.append((connection, pending.entry()))
            else:
                if type(pending) is Delay:
                    size += sum(map(len, pending.bodies))
                kept.append((connection, pending))
        queue.pending = []
        requests.append(self._request(shard, queue, kept))
        return requests

    def _request(self, shard: int, queue: ShardQueue, kept: list[tuple[Connection | None, Entry]]) -> ToShard:
        request, queue.next_id = queue.next_id, queue.next_id + 1
        queue.unanswered[request] = kept
        return ToShard(shard, request, [entry for _, entry in kept])

    def check(self) -> None:
        for queue in self.shards.values():
            entries = [entry for kept in queue.unanswered.values() for _, entry in kept]
            pending = [batch for _, batch in queue.pending]
            publishes = [entry for entry in entries + pending if isinstance(entry, Publish | PublishBatch | Delay)]
            assert queue.messages == sum(len(entry.flags) for entry in publishes), "messages without an answer"
            assert queue.bytes == sum(len(body) for entry in publishes for body in entry.bodies), "bytes without an answer"
