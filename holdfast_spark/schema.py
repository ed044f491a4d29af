"""The columns of the source: their names, order and types, for Spark and for Arrow, and which of them somebody asked for.

The order and the names are part of what users write down; they are never changed, only added to at the end (docs/reader.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa

TYPES: Final[dict[str, str]] = {
    "topic": "string",
    "payload": "binary",
    "client_id": "string",
    "qos": "tinyint",
    "retain": "boolean",
    "ts": "timestamp",
    "shard": "int",
    "generation": "bigint",
    "stream": "bigint",
    "offset": "bigint",
    "message_id": "binary",
    "expiry_ms": "bigint",
    "content_type": "string",
    "response_topic": "string",
    "correlation_data": "binary",
    "payload_format": "tinyint",
    "user_properties": "array<struct<key:string,value:string>>",
}
"""Column -> Spark's type, in the order of the schema."""

FROM_PROPERTIES: Final = frozenset({"expiry_ms", "content_type", "response_topic", "correlation_data", "payload_format", "user_properties"})
"""Columns that are null where a message has no such property; the others never are."""

PAIR: Final = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.string())])

_ARROW: Final[dict[str, Any]] = {
    "string": pa.string(),
    "binary": pa.binary(),
    "tinyint": pa.int8(),
    "boolean": pa.bool_(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "array<struct<key:string,value:string>>": pa.list_(pa.field("element", PAIR)),
}


class UnknownColumn(ValueError):
    """A column that is not of this source, or with another type."""


def check_columns(names: Sequence[str]) -> tuple[str, ...]:
    """The names, if all are columns, each once."""
    for name in names:
        if name not in TYPES:
            raise UnknownColumn(f"column {name!r} is not one of {', '.join(TYPES)}")
    if len(set(names)) != len(names) or not names:
        raise UnknownColumn(f"columns {', '.join(names) or 'none'}: at least one is needed, and each once")
    return tuple(names)


def check_types(found: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    """The names of a schema that a user gave, if its types are those of the source."""
    names = check_columns([name for name, _ in found])
    for name, spelled in found:
        if spelled.replace(" ", "") != TYPES[name]:
            raise UnknownColumn(f"column {name} has type {spelled} in the schema that was given; here it is {TYPES[name]}")
    return names


def ddl(names: Sequence[str]) -> str:
    """The schema as Spark's DDL."""
    return ", ".join(f"{name} {TYPES[name]}" for name in names)


def strict_ddl(names: Sequence[str]) -> str:
    """As ``ddl``, and says what is never null: then Spark does not ask whether it is, twice for each value."""
    return ", ".join(f"{name} {TYPES[name]}{'' if name in FROM_PROPERTIES else ' NOT NULL'}" for name in names)


def arrow_schema(names: Sequence[str] = tuple(TYPES)) -> pa.Schema:
    """As Spark makes it of ``ddl(names)``; it compares the first batch with it field by field."""
    return pa.schema([pa.field(name, _ARROW[TYPES[name]]) for name in names])
