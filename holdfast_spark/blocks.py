"""Raw blocks to Arrow: the columns of a RecordBatch, cut out of stored messages many at a time.

The stored message has a fixed head (docs/formats.md, "Stored message"), so heads are gathered by one numpy index, and topic, client and
payload are every so-many-th piece of one Arrow array laid over the block. Only rows that say they have properties cost a Python call each,
and only when a column, or the question whether they have expired, needs their properties. Columns that nobody wants are not built.

Holds: every value of a batch is a copy; the block may go. A block whose values do not fit their own heads is DamagedValue, never a
shorter batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from holdfast_spark.properties import NONE, DamagedValue, Properties, parse, varint
from holdfast_spark.protocol import BLOCK_ROWS_MAX, Block
from holdfast_spark.schema import FROM_PROPERTIES, PAIR

HEAD_BYTES: Final = 16
_HEAD: Final = np.dtype([("version", "u1"), ("reserved", "u1"), ("flags", "<u2"), ("at", "<u8"), ("client", "<u2"), ("topic", "<u2")])
_VERSION: Final = 1
_QOS: Final = 0x0003
_RETAIN: Final = 0x0004
_HAS_PROPERTIES: Final = 0x0010
_HAS_EXPIRY: Final = 0x0020

_CLIENT, _TOPIC, _PAYLOAD = 1, 2, 4
_PIECES: Final = 5
"""Head, client, topic, properties with their length, payload."""

STEPS_KEPT: Final = 100
"""A wall list of this length has forgotten its beginning: then what lies before it is shown with the oldest that is known."""

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to make of the rows of one unit."""

    schema: pa.Schema
    shard: int
    generation: int
    incarnation: int
    wall: Sequence[tuple[int, int]] = ()
    """(from this position on, wall clock less steady time in ms), ascending."""
    ts_from_ms: int | None = None
    ts_before_ms: int | None = None
    """Rows outside are left out; compared with ts."""
    expired_at_ms: int | None = None
    """Rows whose expiry had passed at this time of the wall clock are left out."""


class Decoder:
    """Blocks of one unit to record batches."""

    def __init__(self, wanted: Wanted) -> None:
        self._wanted = wanted
        self._names: tuple[str, ...] = tuple(wanted.schema.names)

    def batch(self, block: Block) -> pa.RecordBatch:
        """The rows of the block that are wanted, in its order."""
        rows = _Rows(block)
        wanted = self._wanted
        need_ts = (
            "ts" in self._names or wanted.ts_from_ms is not None or wanted.ts_before_ms is not None or wanted.expired_at_ms is not None
        )
        ts_ms = rows.wall_ms(wanted.wall) if need_ts else None
        keep: npt.NDArray[np.bool_] | None = None
        if ts_ms is not None:
            keep = self._keep(rows, ts_ms)
        arrays = [self._column(name, rows, ts_ms) for name in self._names]
        batch = pa.RecordBatch.from_arrays(arrays, schema=wanted.schema)
        return batch if keep is None or keep.all() else batch.filter(pa.array(keep))

    def _keep(self, rows: _Rows, ts_ms: Ints) -> npt.NDArray[np.bool_] | None:
        wanted = self._wanted
        keep: npt.NDArray[np.bool_] | None = None
        if wanted.ts_from_ms is not None:
            keep = ts_ms >= wanted.ts_from_ms
        if wanted.ts_before_ms is not None:
            before = ts_ms < wanted.ts_before_ms
            keep = before if keep is None else keep & before
        if wanted.expired_at_ms is not None and (rows.flags & _HAS_EXPIRY).any():
            alive = np.ones(rows.count, np.bool_)
            for row, each in rows.properties().items():
                if each.expiry_s is not None:
                    alive[row] = int(ts_ms[row]) + 1000 * each.expiry_s > wanted.expired_at_ms
            keep = alive if keep is None else keep & alive
        return keep

    def _column(self, name: str, rows: _Rows, ts_ms: Ints | None) -> Any:
        count = rows.count
        match name:
            case "topic":
                return rows.piece(_TOPIC, pa.string())
            case "client_id":
                return rows.piece(_CLIENT, pa.string())
            case "payload":
                return rows.piece(_PAYLOAD, pa.binary())
            case "qos":
                return pa.array((rows.flags & _QOS).astype(np.int8))
            case "retain":
                return pa.array((rows.flags & _RETAIN) != 0)
            case "ts":
                assert ts_ms is not None
                return _over(ts_ms * 1000, pa.timestamp("us", tz="UTC"))
            case "shard":
                return pa.array(np.full(count, self._wanted.shard, np.int32))
            case "generation":
                return pa.array(np.full(count, self._wanted.generation, np.int64))
            case "stream":
                return _over(rows.streams(), pa.int64())
            case "offset":
                return _over(rows.positions.view(np.int64), pa.int64())
            case "message_id":
                return self._message_ids(rows)
            case _ if name in FROM_PROPERTIES:
                return _property_column(name, rows.properties(), count)
            case _:
                raise AssertionError(f"column {name} is checked by holdfast_spark.schema")

    def _message_ids(self, rows: _Rows) -> Any:
        """incarnation u32, shard u32, offset u64, big-endian."""
        ids = np.empty(rows.count, np.dtype([("incarnation", ">u4"), ("shard", ">u4"), ("offset", ">u8")]))
        ids["incarnation"] = self._wanted.incarnation
        ids["shard"] = self._wanted.shard
        ids["offset"] = rows.positions
        offsets = np.arange(0, 16 * rows.count + 1, 16, dtype=np.int32)
        return pa.Array.from_buffers(pa.binary(), rows.count, [None, pa.py_buffer(offsets), pa.py_buffer(ids.tobytes())])


class _Rows:
    """One block, taken apart as far as somebody asks."""

    __slots__ = ("_block", "_ends", "_head", "_offsets", "_properties", "count", "flags", "positions")

    def __init__(self, block: Block) -> None:
        self._block = block
        count = self.count = block.rows
        lengths = np.frombuffer(block.lengths, "<u4")
        if count and int(lengths.min()) < HEAD_BYTES + 1:
            raise DamagedValue(f"a stored message of {int(lengths.min())} bytes; its head alone has {HEAD_BYTES}")
        self._ends: npt.NDArray[np.int32] = np.cumsum(lengths, dtype=np.int32)
        starts = self._starts()
        # Every place of the block seen as the beginning of a head; then one index fetches those that are.
        windows = np.ndarray((max(0, len(block.values) - HEAD_BYTES + 1),), "V16", block.values, strides=(1,))
        head = self._head = windows[starts].view(_HEAD)
        self.flags: npt.NDArray[np.uint16] = np.ascontiguousarray(head["flags"])
        if count and (int(head["version"].max()) != _VERSION or int(head["version"].min()) != _VERSION or head["reserved"].any()):
            raise DamagedValue(f"a stored message of version {int(head['version'].max())}; this program reads version {_VERSION}")
        self.positions: npt.NDArray[np.uint64] = np.frombuffer(block.positions, "<u8")
        self._offsets: npt.NDArray[np.int32] | None = None
        self._properties: dict[int, Properties] | None = None

    def _starts(self) -> npt.NDArray[np.int32]:
        starts = np.zeros(self.count, np.int32)
        starts[1:] = self._ends[:-1]
        return starts

    def wall_ms(self, wall: Sequence[tuple[int, int]]) -> Ints:
        ms = self._head["at"].astype(np.int64)
        if not wall:
            return ms
        steps = np.array([position for position, _ in wall], np.uint64)
        before = wall[0][1] if len(wall) >= STEPS_KEPT else 0
        offsets = np.array([before, *(offset for _, offset in wall)], np.int64)
        shifted: Ints = ms + offsets[np.searchsorted(steps, self.positions, side="right")]
        return shifted

    def streams(self) -> Ints:
        keys = np.array([stream for stream, _ in self._block.runs], np.uint64).view(np.int64)
        repeated: Ints = np.repeat(keys, [count for _, count in self._block.runs])
        return repeated

    def piece(self, which: int, kind: Any) -> Any:
        """One piece of every value: the array over all pieces, of which every fifth is copied out."""
        offsets = self._cut()
        pieces = pa.Array.from_buffers(kind, _PIECES * self.count, [None, pa.py_buffer(offsets), pa.py_buffer(self._block.values)])
        # The offsets were checked when they were made, and the index names pieces that there are.
        return pc.take(pieces, _every(which, self.count), boundscheck=False)

    def properties(self) -> dict[int, Properties]:
        """Row -> its properties, for those that have any."""
        if self._properties is None:
            found: dict[int, Properties] = {}
            having = np.flatnonzero(self.flags & _HAS_PROPERTIES)
            if len(having):
                offsets = self._cut()
                for row in having.tolist():
                    at = _PIECES * row + 3
                    whole = bytes(self._block.values[offsets[at] : offsets[at + 1]])
                    _, begin = varint(whole, 0)
                    found[row] = parse(whole[begin:])
            self._properties = found
        return self._properties

    def _cut(self) -> npt.NDArray[np.int32]:
        """Where each piece of each value begins; made once."""
        if self._offsets is not None:
            return self._offsets
        head = self._head
        offsets = np.empty(_PIECES * self.count + 1, np.int32)
        table = offsets[:-1].reshape(self.count, _PIECES)
        table[:, 0] = self._starts()
        np.add(table[:, 0], HEAD_BYTES, out=table[:, 1])
        np.add(table[:, 1], head["client"], out=table[:, 2], casting="unsafe")
        np.add(table[:, 2], head["topic"], out=table[:, 3], casting="unsafe")
        if (table[:, 3] >= self._ends).any():
            raise DamagedValue("a stored message is shorter than its own head says")
        np.add(table[:, 3], self._property_bytes(table[:, 3]), out=table[:, 4], casting="unsafe")
        if (table[:, 4] > self._ends).any():
            raise DamagedValue("the properties of a stored message end behind it")
        offsets[-1] = self._ends[-1] if self.count else 0
        self._offsets = offsets
        return offsets

    def _property_bytes(self, bodies: npt.NDArray[np.int32]) -> npt.NDArray[np.int32] | int:
        """Of each row, how long the properties are with their length: 1 for all when no row has any."""
        having = np.flatnonzero(self.flags & _HAS_PROPERTIES)
        if not len(having):
            return 1
        first = np.frombuffer(self._block.values, np.uint8)[bodies].astype(np.int32)
        lengths: npt.NDArray[np.int32] = first + 1
        # A length of 128 or more has further bytes; such rows are few, and a loop does.
        for row in np.flatnonzero(first >= 0x80).tolist():
            at = int(bodies[row])
            value, end = varint(bytes(self._block.values[at : at + 4]), 0)
            lengths[row] = value + end
        return lengths


def _picks(which: int, count: int) -> Any:
    return pa.array(np.arange(which, _PIECES * count, _PIECES, dtype=np.uint32))


_PICKS: Final = {which: _picks(which, BLOCK_ROWS_MAX) for which in (_CLIENT, _TOPIC, _PAYLOAD)}


def _every(which: int, count: int) -> Any:
    """The index of this piece of each of so many rows."""
    return _PICKS[which].slice(0, count) if count <= BLOCK_ROWS_MAX else _picks(which, count)


def _over(values: npt.NDArray[Any], kind: Any) -> Any:
    """An Arrow array over a copy-free buffer of 8-byte values. Its buffer must not be the block's: that may be gone."""
    if not values.flags.owndata:
        values = values.copy()
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])


def _property_column(name: str, properties: dict[int, Properties], count: int) -> Any:
    if name == "user_properties":
        return _user_properties(properties, count)
    kind, field = {
        "expiry_ms": (pa.int64(), "expiry_s"),
        "content_type": (pa.binary(), "content_type"),
        "response_topic": (pa.binary(), "response_topic"),
        "correlation_data": (pa.binary(), "correlation_data"),
        "payload_format": (pa.int8(), "payload_format"),
    }[name]
    wanted = pa.string() if name in ("content_type", "response_topic") else kind
    if not properties:
        return pa.nulls(count, wanted)
    values = [getattr(properties.get(row, NONE), field) for row in range(count)]
    if name == "expiry_ms":
        values = [None if value is None else 1000 * value for value in values]
    return pa.array(values, kind).view(wanted)


def _user_properties(properties: dict[int, Properties], count: int) -> Any:
    kind = pa.list_(pa.field("element", PAIR))
    if not properties:
        return pa.nulls(count, kind)
    offsets = np.zeros(count + 1, np.int32)
    missing = np.ones(count, np.bool_)
    keys: list[bytes] = []
    values: list[bytes] = []
    for row, each in properties.items():
        if each.user is not None:
            missing[row] = False
            offsets[row + 1] = len(each.user)
            keys.extend(key for key, _ in each.user)
            values.extend(value for _, value in each.user)
    np.cumsum(offsets, out=offsets)
    pairs = pa.StructArray.from_arrays(
        [pa.array(keys, pa.binary()).view(pa.string()), pa.array(values, pa.binary()).view(pa.string())], fields=list(PAIR)
    )
    return pa.ListArray.from_arrays(pa.array(offsets), pairs, type=kind, mask=pa.array(missing))
