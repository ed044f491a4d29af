"""Many PUBLISH packets and many acknowledgements at a time, as numpy views: what keeps the generator at about a microsecond per message.

A publisher's frames all have one length, so they live in one matrix; a batch is stamped with a few column stores and sent with one call.
What arrives is cut into runs: neighbouring packets with the same fixed header. A packet that differs only ends a run, so every legal
stream is read, whatever mixture it is; only the speed depends on the mixture.

Payload: publisher u32, sequence u32, time of sending i64 (CLOCK_MONOTONIC, ns), all little endian, then padding. A topic name ends with
its number in `TOPIC_DIGITS` digits, so that a message that arrives under the wrong name is seen.
Holds: the rows of a run are views of the receive buffer and are good only until the next receive into it.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks import wire

Bytes = NDArray[np.uint8]
Ints = NDArray[np.int64]

PAYLOAD_BYTES_MIN = 16
TOPIC_DIGITS = 6
_STAMP, _ID = struct.Struct("<Iq"), struct.Struct(">H")
_POWERS = 10 ** np.arange(TOPIC_DIGITS - 1, -1, -1, dtype=np.int64)


def topic_name(prefix: str, number: int) -> str:
    """The topic with this number; all topics of a prefix have names of one length."""
    return f"{prefix}/{number:0{TOPIC_DIGITS}d}"


class PublishBlock:
    """The PUBLISH frames of one publisher, made once and stamped before every send."""

    def __init__(
        self,
        version: wire.Version,
        qos: wire.QoS,
        prefix: str,
        topics: Sequence[int],
        payload_bytes: int,
        publisher: int,
        capacity: int,
        *,
        random_payload: bool = False,
        properties: bytes = b"",
    ) -> None:
        if payload_bytes < PAYLOAD_BYTES_MIN:
            raise ValueError(f"a payload of {payload_bytes} bytes has no room for the {PAYLOAD_BYTES_MIN} bytes that are checked")
        name = wire.text(topic_name(prefix, topics[0]))
        packet_id, lead = (b"\0\0" if qos else b""), (wire.encode_length(len(properties)) + properties if version == 5 else b"")
        body = name + packet_id + lead + b"\0" * PAYLOAD_BYTES_MIN + b"." * (payload_bytes - PAYLOAD_BYTES_MIN)
        head = bytes([wire.PUBLISH | qos << 1]) + wire.encode_length(len(body))
        frame = np.frombuffer(head + body, np.uint8)
        self.frame_bytes = len(frame)
        self.capacity = capacity
        self._rows: Bytes = np.tile(frame, (capacity, 1))
        payload_at = len(head) + len(body) - payload_bytes
        if random_payload:
            padding = self._rows[:, payload_at + PAYLOAD_BYTES_MIN :]
            padding[:] = np.random.default_rng(publisher).integers(0, 256, padding.shape, np.uint8)
        fields: dict[str, tuple[str, int]] = {
            "publisher": ("<u4", payload_at),
            "sequence": ("<u4", payload_at + 4),
            "sent_ns": ("<i8", payload_at + 8),
        }
        if qos:
            fields["packet_id"] = (">u2", len(head) + len(name))
        layout = np.dtype(
            {
                "names": list(fields),
                "formats": [kind for kind, _ in fields.values()],
                "offsets": [at for _, at in fields.values()],
                "itemsize": self.frame_bytes,
            }
        )
        self._id_at, self._payload_at = len(head) + len(name), payload_at
        stamps = self._rows.view(layout)[:, 0]
        stamps["publisher"] = publisher
        self._sequence, self._sent_ns = stamps["sequence"], stamps["sent_ns"]
        self._packet_id = stamps["packet_id"] if qos else None
        digits_end = len(head) + len(name)
        self._digits = self._rows[:, digits_end - TOPIC_DIGITS : digits_end]
        self._topic_digits = np.array([list(f"{number:0{TOPIC_DIGITS}d}".encode()) for number in topics], np.uint8)
        self._bytes = self._rows.reshape(-1).data

    def stamp(self, sequences: Ints, packet_ids: Ints, now_ns: int) -> memoryview:
        """The frames of these sequence numbers, good until the next call."""
        count = len(sequences)
        self._sequence[:count] = sequences
        self._sent_ns[:count] = now_ns
        if self._packet_id is not None:
            self._packet_id[:count] = packet_ids
        if len(self._topic_digits) > 1:
            self._digits[:count] = self._topic_digits[sequences % len(self._topic_digits)]
        return self._bytes[: count * self.frame_bytes]

    def stamp_one(self, sequence: int, packet_id: int, now_ns: int) -> memoryview:
        """The frame of one sequence number; with one message outstanding the array stores would be most of what we measure."""
        _STAMP.pack_into(self._bytes, self._payload_at + 4, sequence, now_ns)
        if self._packet_id is not None:
            _ID.pack_into(self._bytes, self._id_at, packet_id)
        if len(self._topic_digits) > 1:
            self._digits[0] = self._topic_digits[sequence % len(self._topic_digits)]
        return self._bytes[: self.frame_bytes]


@dataclass(frozen=True, slots=True)
class Run:
    """Neighbouring packets with the same first byte and the same length, one a row."""

    kind: int
    head_bytes: int
    rows: Bytes


def split_runs(data: Bytes, end: int) -> tuple[list[Run], int]:
    """The runs of `data[:end]` and where the first packet that is not whole begins."""
    view = data.data
    runs: list[Run] = []
    at, reach = 0, 1 << 20
    while end - at >= 2:
        length = wire.decode_length(view, at + 1, end)
        if length is None:
            break
        head = 1 + length[1]
        size = head + length[0]
        whole = (end - at) // size
        if not whole:
            break
        # After a short run we look only a little ahead; packets of changing length would otherwise cost a look at all the rest each.
        looked = min(whole, reach)
        rows = data[at : at + looked * size].reshape(looked, size)
        count = looked
        if looked > 1:
            # Two bytes at a time as one number; columns of bytes with a reduction over them cost four times as much.
            for byte in range(head - 1):
                count = min(count, _alike(_pairs(rows, byte)))
        reach = max(32, 4 * count)
        runs.append(Run(view[at], head, rows[:count]))
        at += count * size
    return runs, at


def _pairs(rows: Bytes, at: int) -> NDArray[np.uint16]:
    """The big-endian number in two neighbouring columns."""
    return rows[:, at : at + 2].view(">u2")[:, 0]


def _alike(column: NDArray[np.uint16]) -> int:
    """How many from the start have the first one's value."""
    same = column == column[0]
    first_other = int(same.argmin())
    return len(column) if same[first_other] else first_other


def packet_ids(run: Run) -> Ints:
    """The packet identifiers of a run of acknowledgements."""
    return _pairs(run.rows, run.head_bytes).astype(np.int64)


def refusals(run: Run) -> NDArray[np.bool_] | None:
    """Which acknowledgements of the run carry a reason code that means no; None, the usual case, when none does."""
    at = run.head_bytes + 2
    if run.rows.shape[1] <= at:
        return None  # MQTT 3.1.1, or the short form of MQTT 5, which means success
    no = run.rows[:, at] >= 0x80
    return no if no.any() else None


def acknowledge(kind: int, ids: Bytes) -> bytes:
    """Acknowledgements of one kind for packet identifiers given as two bytes each, the shortest form of both versions."""
    out = np.empty((len(ids), 4), np.uint8)
    out[:, 0], out[:, 1] = kind, 2
    out[:, 2:] = ids
    return out.tobytes()


def id_bytes(run: Run) -> Bytes:
    """The packet identifiers of a run of acknowledgements, as the two bytes on the wire."""
    return run.rows[:, run.head_bytes : run.head_bytes + 2]


@dataclass(frozen=True, slots=True)
class Deliveries:
    """A run of PUBLISH packets, as little of it as must be copied; `read_stamps` and `read_topics` understand it when there is time.

    `ids` views the receive buffer; the other arrays are copies.
    """

    qos: int
    marked_dup: int
    stamps: Bytes
    digits: Bytes
    ids: Bytes | None


def deliveries(run: Run, payload_bytes: int) -> list[Deliveries]:
    """Cuts a run of PUBLISH packets; into several parts where neighbours of one length have topic names of different length."""
    rows, out = run.rows, []
    qos = run.kind >> 1 & 3
    at = run.head_bytes
    payload_at = rows.shape[1] - payload_bytes
    while len(rows):
        lengths = _pairs(rows, at)
        count = _alike(lengths)
        topic_end = at + 2 + int(lengths[0])
        if topic_end + (2 if qos else 0) > payload_at:
            raise wire.Refused(f"a delivery of {rows.shape[1]} bytes with a topic of {int(lengths[0])} is none of this run's")
        part, rows = rows[:count], rows[count:]
        out.append(
            Deliveries(
                qos=qos,
                marked_dup=count if run.kind & 8 else 0,
                stamps=part[:, payload_at : payload_at + PAYLOAD_BYTES_MIN].copy(),
                digits=part[:, topic_end - TOPIC_DIGITS : topic_end].copy(),
                ids=part[:, topic_end : topic_end + 2] if qos else None,
            )
        )
    return out


@dataclass(frozen=True, slots=True)
class Stamps:
    """The columns of the stamped payloads."""

    publishers: NDArray[np.uint32]
    sequences: NDArray[np.uint32]
    sent_ns: Ints


def read_stamps(stamps: Bytes) -> Stamps:
    """Understands the first bytes of payloads, one a row."""
    words = stamps.view("<u4")
    return Stamps(words[:, 0], words[:, 1], stamps.view("<i8")[:, 1])


def read_topics(digits: Bytes) -> NDArray[np.int32]:
    """Understands the ends of topic names, one a row; one that is no number gives a number that no topic has."""
    values = digits.astype(np.int64) - ord("0")
    numbers = values @ _POWERS
    numbers[((values < 0) | (values > 9)).any(axis=1)] = -1
    return numbers.astype(np.int32)
