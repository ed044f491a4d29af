"""One publishing and one subscribing connection over a non-blocking socket, without a loop of their own.

A client is asked by its worker (`benchmarks.workers`) to read, to send what fits its window, and to say how far it is. It measures when
something was sent, acknowledged and delivered; the worker decides when to call and when to stop.
Holds for a publisher: unacknowledged <= window, and a packet identifier is used again only after its acknowledgement.
Holds for both: what `pending` keeps is whole packets behind the rest of one that was cut by a full socket, so packets never interleave.
"""

from __future__ import annotations

import socket
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from benchmarks import runs, wire
from benchmarks.ledger import Ledger
from benchmarks.runs import Ints
from benchmarks.tls import TlsSocket
from benchmarks.websocket import WebSocket

SEND_BYTES_MAX: Final = 1 << 18
PACKET_IDS: Final = 65535
WINDOW_MAX: Final = 32768
WAITING, ACKNOWLEDGED, REFUSED = 0, 1, 2


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where the broker listens and how clients speak to it."""

    host: str
    port: int
    version: wire.Version
    user: str = ""
    timeout_s: float = 20.0
    web: bool = False
    """By WebSocket."""
    ca: str = ""
    """By TLS, with a broker whose certificate is signed by one of those in this file."""


Socket = socket.socket | WebSocket | TlsSocket


class Arena:
    """The receive buffer that all clients of one process share; filled and read out again within one call."""

    def __init__(self, payload_bytes: int) -> None:
        self.data = np.zeros(max(1 << 18, 8 * (payload_bytes + 512)), np.uint8)
        self.view = self.data.data


def dial(endpoint: Endpoint) -> Socket:
    """A connected socket that blocks for at most the endpoint's timeout."""
    sock = socket.create_connection((endpoint.host, endpoint.port), endpoint.timeout_s)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if endpoint.ca:
        return TlsSocket(sock, endpoint.host, endpoint.ca)
    return WebSocket(sock, endpoint.host) if endpoint.web else sock


def await_packet(sock: Socket, data: bytes = b"") -> tuple[wire.Packet, bytes]:
    """The next whole packet on a blocking socket and the bytes that came behind it."""
    while (found := wire.read_packet(data)) is None:
        more = sock.recv(65536)
        if not more:
            raise wire.Refused("the broker closed the connection")
        data += more
    return found


class Connection:
    """A connected client: bytes out in order, runs of packets in."""

    def __init__(self, endpoint: Endpoint, arena: Arena, client_id: str, *, clean: bool) -> None:
        self._arena = arena
        self._sock = dial(endpoint)
        self._sock.sendall(wire.connect(endpoint.version, client_id, clean=clean, user=endpoint.user))
        packet, self._rest = await_packet(self._sock)
        self.accepted = wire.accepted(endpoint.version, packet)
        self._sock.setblocking(False)
        self._pending: deque[memoryview] = deque()
        self.story: str | None = None

    def fileno(self) -> int:
        return self._sock.fileno()

    @property
    def open(self) -> bool:
        return self.story is None

    @property
    def pending(self) -> bool:
        """Whether bytes wait for room in the socket."""
        return bool(self._pending)

    def send(self, data: bytes | memoryview) -> None:
        """Sends as much as the socket takes; `data` must stay as it is while `pending`."""
        self._pending.append(memoryview(data))
        self.flush()

    def flush(self) -> None:
        while self._pending and self.open:
            data = self._pending[0]
            try:
                taken = self._sock.send(data)
            except BlockingIOError:
                return
            except OSError as error:
                self.fail(str(error))
                return
            if taken == len(data):
                self._pending.popleft()
            else:
                self._pending[0] = data[taken:]

    def receive(self, *, kept_only: bool = False) -> list[runs.Run]:
        """What has arrived, cut into runs; with `kept_only` what an earlier blocking read had taken too much."""
        view, kept = self._arena.view, len(self._rest)
        view[:kept] = self._rest
        taken = 0
        if not kept_only:
            try:
                taken = self._sock.recv_into(view[kept:])
            except BlockingIOError:
                return []
            except OSError as error:
                self.fail(str(error))
                return []
            if not taken:
                self.fail("the broker closed the connection")
                return []
        found, used = runs.split_runs(self._arena.data, kept + taken)
        self._rest = bytes(view[used : kept + taken])
        return found

    def fail(self, story: str) -> None:
        """The connection is over; the first reason is the one that is told."""
        self.story = self.story or story

    def unexpected(self, run: runs.Run) -> None:
        """Notes a packet that ends the connection; others that we did not ask for (a ping response) mean nothing here."""
        if run.kind == wire.DISCONNECT:
            code = int(run.rows[0, run.head_bytes]) if run.rows.shape[1] > run.head_bytes else 0
            self.fail(f"DISCONNECT from the broker with reason 0x{code:02x}")

    def leave(self) -> None:
        """DISCONNECT and close."""
        try:
            if self.open and not self._pending:
                self._sock.setblocking(True)
                self._sock.sendall(wire.BYE)
        except OSError:
            pass  # the broker was faster, which is all the same at this point
        self._sock.close()


@dataclass(frozen=True, slots=True)
class PublisherPlan:
    """What one publisher does."""

    number: int
    client_id: str
    prefix: str
    topics: tuple[int, ...]
    qos: wire.QoS
    payload_bytes: int
    window: int
    messages_max: int
    rate_per_s: float
    random_payload: bool = False
    properties: bool = False


class Publisher:
    """Publishes as fast as its window, or at a fixed rate, and notes each acknowledgement."""

    def __init__(self, endpoint: Endpoint, arena: Arena, plan: PublisherPlan) -> None:
        self.plan = plan
        self.connection = Connection(endpoint, arena, plan.client_id, clean=True)
        self.window = max(1, min(plan.window, self.connection.accepted.receive_maximum, WINDOW_MAX))
        capacity = max(1, min(self.window, SEND_BYTES_MAX // (plan.payload_bytes + 64)))
        self._block = runs.PublishBlock(
            endpoint.version,
            plan.qos,
            plan.prefix,
            plan.topics,
            plan.payload_bytes,
            plan.number,
            capacity,
            random_payload=plan.random_payload,
            properties=wire.PROPERTIES if plan.properties and endpoint.version == 5 else b"",
        )
        # A refill per acknowledgement would send many small writes; brokers with a fast loop would then be measured at a batch of one.
        # Never more than goes out at a time: with large payloads it would be waited for in vain.
        self._refill = 1 if plan.rate_per_s else max(1, min(self.window // 4, capacity))
        self._steps: Ints = np.arange(capacity, dtype=np.int64)
        self._sent_ns: Ints = np.zeros(PACKET_IDS + 1, np.int64)
        self._states = np.zeros(0, np.uint8)
        self._oldest = 0
        self.sent = self.answered = self.refused = self.ack_disorder = 0
        self._last_acked = -1
        self.latencies_ns: list[Ints] = []

    @property
    def unanswered(self) -> int:
        return self.sent - self.answered if self.plan.qos else 0

    @property
    def finished(self) -> bool:
        return self.sent >= self.plan.messages_max

    def pump(self, now_ns: int, began_ns: int) -> None:
        """Sends what window, rate and socket allow."""
        self.connection.flush()
        while self.connection.open and not self.connection.pending:
            left = self.plan.messages_max - self.sent
            if self.plan.rate_per_s:
                left = min(left, int((now_ns - began_ns) * self.plan.rate_per_s / 1e9) + 1 - self.sent)
            count = min(left, self.window - self.unanswered, len(self._steps))
            if count <= 0 or (count < self._refill and count < left) or not self._ids_free(count):
                return
            self._grow(self.sent + count)
            if count == 1:
                packet_id = self.sent % PACKET_IDS + 1
                self._sent_ns[packet_id] = now_ns
                frames = self._block.stamp_one(self.sent, packet_id, now_ns)
            else:
                sequences = self.sent + self._steps[:count]
                ids = sequences % PACKET_IDS + 1
                self._sent_ns[ids] = now_ns
                frames = self._block.stamp(sequences, ids, now_ns)
            self.sent += count
            self.connection.send(frames)
            if not self.plan.qos:
                return  # nothing but the socket holds QoS 0 back; the loop wants a turn too
            now_ns = time.monotonic_ns()

    def _ids_free(self, count: int) -> bool:
        """Whether the next identifiers are out of use; only an acknowledgement that is overtaken by 65,535 others makes this false."""
        if not self.plan.qos or self.sent + count - self._oldest <= PACKET_IDS:
            return True
        waiting = self._states[self._oldest : self.sent] == WAITING
        self._oldest = self._oldest + int(waiting.argmax()) if waiting.any() else self.sent
        return self.sent + count - self._oldest <= PACKET_IDS

    def _grow(self, count: int) -> None:
        have = len(self._states)
        if count > have:
            self._states = np.concatenate([self._states, np.zeros(max(count, 2 * have, 4096) - have, np.uint8)])

    def read(self) -> None:
        """Takes in acknowledgements, and answers PUBREC."""
        found = self.connection.receive()
        now_ns = time.monotonic_ns()
        for run in found:
            if run.kind == wire.PUBACK or run.kind == wire.PUBCOMP:
                if run.rows.shape == (1, 4):
                    self._answer(int(run.rows[0, 2]) << 8 | int(run.rows[0, 3]), now_ns)
                else:
                    self._answers(runs.packet_ids(run), runs.refusals(run), now_ns)
            elif run.kind == wire.PUBREC:
                no = runs.refusals(run)
                if no is not None:
                    self._answers(runs.packet_ids(run)[no], no[no], now_ns)
                self.connection.send(runs.acknowledge(wire.PUBREL, runs.id_bytes(run) if no is None else runs.id_bytes(run)[~no]))
            else:
                self.connection.unexpected(run)

    def _answer(self, packet_id: int, now_ns: int) -> None:
        """One acknowledgement without a reason code: `_answers` at a tenth of its cost."""
        newest = self.sent - 1
        sequence = newest - (newest % PACKET_IDS + 1 - packet_id) % PACKET_IDS
        if sequence < 0 or self._states[sequence] != WAITING:
            self.connection.fail(f"an acknowledgement for packet identifier {packet_id}, which is not in use")
            return
        self.answered += 1
        self._states[sequence] = ACKNOWLEDGED
        self.latencies_ns.append(now_ns - self._sent_ns[packet_id : packet_id + 1])
        self.ack_disorder += sequence < self._last_acked
        self._last_acked = sequence

    def _answers(self, ids: Ints, no: NDArray[np.bool_] | None, now_ns: int) -> None:
        newest = self.sent - 1
        sequences = newest - (newest % PACKET_IDS + 1 - ids) % PACKET_IDS
        if newest < PACKET_IDS and sequences.min() < 0:
            self.connection.fail(f"an acknowledgement among {ids[:3].tolist()}... for a packet identifier that is not in use")
            return
        self.answered += len(sequences)
        if no is not None:
            self._states[sequences[no]] = REFUSED
            self.refused += int(no.sum())
            ids, sequences = ids[~no], sequences[~no]
        if len(sequences):
            self._states[sequences] = ACKNOWLEDGED
            self.latencies_ns.append(now_ns - self._sent_ns[ids])
            self.ack_disorder += int(sequences[0] < self._last_acked)
            if len(sequences) > 1:
                self.ack_disorder += int((sequences[1:] < sequences[:-1]).sum())
            self._last_acked = int(sequences[-1])

    def acknowledged(self) -> NDArray[np.uint8]:
        """One bit per sequence number; at QoS 0 all that was sent counts, since nobody promises anything."""
        if not self.plan.qos:
            return np.packbits(np.ones(self.sent, np.uint8))
        known = int(np.count_nonzero(self._states))
        if known != self.answered:  # found here, all at once, because a look at every acknowledgement costs more than taking it in
            self.connection.fail(f"{self.answered} acknowledgements for {known} messages")
        return np.packbits(self._states[: self.sent] == ACKNOWLEDGED)


@dataclass(frozen=True, slots=True)
class SessionPlan:
    """One subscribing session; `wanted` are the topic numbers its filter matches, None for all of the run."""

    client_id: str
    topic_filter: str
    qos: wire.QoS
    payload_bytes: int
    wanted: frozenset[int] | None = None
    durable: bool = True


class Subscriber:
    """Resumes or makes a session, acknowledges everything and keeps account of it."""

    def __init__(self, endpoint: Endpoint, arena: Arena, plan: SessionPlan, *, subscribe: bool) -> None:
        self.plan = plan
        self.connection = Connection(endpoint, arena, plan.client_id, clean=not plan.durable)
        self.ledger = Ledger()
        self.marked_dup = 0
        self.ready = not subscribe
        if subscribe:
            self.connection.send(wire.subscribe(endpoint.version, 1, plan.topic_filter, plan.qos))

    def read(self, *, kept_only: bool = False) -> None:
        """Takes in deliveries and acknowledges them with one write."""
        found = self.connection.receive(kept_only=kept_only)
        now_ns = time.monotonic_ns()
        replies: list[bytes] = []
        for run in found:
            if run.kind & 0xF0 == wire.PUBLISH:
                for part in runs.deliveries(run, self.plan.payload_bytes):
                    self.ledger.add(part.stamps, part.digits, now_ns)
                    self.marked_dup += part.marked_dup
                    if part.ids is not None:
                        replies.append(runs.acknowledge(wire.PUBACK if part.qos == 1 else wire.PUBREC, part.ids))
            elif run.kind == wire.PUBREL:
                replies.append(runs.acknowledge(wire.PUBCOMP, runs.id_bytes(run)))
            elif run.kind == wire.SUBACK:
                wire.granted(wire.Packet(run.kind, run.rows[0, run.head_bytes :].tobytes()), self.plan.qos)
                self.ready = True
            else:
                self.connection.unexpected(run)
        if replies:
            self.connection.send(b"".join(replies))


def spread_of(parts: Sequence[Ints]) -> NDArray[np.float32]:
    """All latencies of several clients in milliseconds, small enough to hand to another process."""
    return (np.concatenate(parts) / 1e6).astype(np.float32) if parts else np.zeros(0, np.float32)
