"""Stored messages and blocks, made and taken apart byte by byte: what the shipped code is compared with.

Written from docs/formats.md and docs/reader.md alone; slow, and plain enough to be read.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from holdfast_spark.schema import TYPES

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Message:
    """One stored message as somebody published it, and where it lies."""

    stream: int
    position: int
    topic: str
    client: str
    payload: bytes
    qos: int = 1
    retain: bool = False
    at_ms: int = 1_700_000_000_000
    properties: tuple[tuple[int, Any], ...] = ()
    """(identifier, value), in order: int, str, bytes or a pair of str."""

    def value(self) -> bytes:
        block = b"".join(_property(which, value) for which, value in self.properties)
        flags = (
            self.qos | (4 if self.retain else 0) | (0x10 if block else 0) | (0x20 if any(which == 2 for which, _ in self.properties) else 0)
        )
        client, topic = self.client.encode(), self.topic.encode()
        head = struct.pack("<BBHQHH", 1, 0, flags, self.at_ms, len(client), len(topic))
        return head + client + topic + _varint(len(block)) + block + self.payload

    def row(self, shard: int, generation: int, incarnation: int, wall_offset_ms: int = 0) -> dict[str, Any]:
        """All columns, as Arrow's to_pylist gives them."""
        one = {which: value for which, value in self.properties if which != 0x26}
        user = [{"key": value[0], "value": value[1]} for which, value in self.properties if which == 0x26]
        return {
            "topic": self.topic,
            "payload": self.payload,
            "client_id": self.client,
            "qos": self.qos,
            "retain": self.retain,
            "ts": EPOCH + timedelta(milliseconds=self.at_ms + wall_offset_ms),
            "shard": shard,
            "generation": generation,
            "stream": self.stream - (1 << 64) if self.stream >= 1 << 63 else self.stream,
            "offset": self.position,
            "message_id": struct.pack(">IIQ", incarnation, shard, self.position),
            "expiry_ms": one[2] * 1000 if 2 in one else None,
            "content_type": one.get(3),
            "response_topic": one.get(8),
            "correlation_data": one.get(9),
            "payload_format": one.get(1),
            "user_properties": user or None,
        }


def _varint(value: int) -> bytes:
    found = bytearray()
    while True:
        value, low = value >> 7, value & 0x7F
        found.append(low | (0x80 if value else 0))
        if not value:
            return bytes(found)


def _binary(value: bytes) -> bytes:
    return struct.pack(">H", len(value)) + value


def _property(which: int, value: Any) -> bytes:
    match which:
        case 0x01:
            return bytes((1, value))
        case 0x02:
            return b"\x02" + struct.pack(">I", value)
        case 0x03 | 0x08:
            return bytes((which,)) + _binary(value.encode())
        case 0x09:
            return b"\x09" + _binary(value)
        case 0x0B:
            return b"\x0b" + _varint(value)
        case 0x26:
            return b"\x26" + _binary(value[0].encode()) + _binary(value[1].encode())
    raise AssertionError(which)


def block_of(messages: Sequence[Message]) -> bytes:
    """The body of a block frame."""
    runs: list[list[int]] = []
    for each in messages:
        if runs and runs[-1][0] == each.stream:
            runs[-1][1] += 1
        else:
            runs.append([each.stream, 1])
    values = [each.value() for each in messages]
    rest = b"".join(struct.pack("<QI", stream, count) for stream, count in runs)
    rest += b"".join(struct.pack("<Q", each.position) for each in messages)
    rest += b"".join(struct.pack("<I", len(value)) for value in values)
    rest += b"".join(values)
    return struct.pack("<IIII", len(messages), len(runs), sum(map(len, values)), zlib.crc32(rest)) + rest


def spark_schema(names: Sequence[str] = tuple(TYPES)) -> StructType:
    """As Spark makes it of the DDL of these columns, without a JVM to parse it."""
    pairs = ArrayType(StructType([StructField("key", StringType()), StructField("value", StringType())]))
    kinds: dict[str, DataType] = {
        "string": StringType(), "binary": BinaryType(), "tinyint": ByteType(), "boolean": BooleanType(), "timestamp": TimestampType(),
        "int": IntegerType(), "bigint": LongType(), "array<struct<key:string,value:string>>": pairs,
    }  # fmt: skip
    return StructType([StructField(name, kinds[TYPES[name]]) for name in names])
