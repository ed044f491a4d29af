"""From the rows of a DataFrame to messages to append: which columns, what is refused, MQTT 5 bodies, and blocks that come out alike.

Blocks are cut by what the rows are and never by how they came: the same rows in the same order make the same blocks, whatever the batches
that Arrow brings them in. By that a task that is tried again sends again what it had sent, and the shard knows it.

What is wrong with a row is BadMessage, one sentence. The shard checks all of it again; here it is found out before anything is on its way.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from holdfast_spark.schema import TYPES

BLOCK_ROWS: Final = 1024
BLOCK_BYTES: Final = 2 << 20
"""Both below what a frame may have. They are not for tuning: what a task had sent under others it would send again under these."""
STRING_BYTES_MAX: Final = 65_535
EXPIRY_S_MAX: Final = 2**32 - 1
QOS_DEFAULT: Final = 1

_WHOLE: Final = ("tinyint", "smallint", "int", "bigint")
_TAKEN: Final[Mapping[str, tuple[str, ...]]] = {
    "topic": ("string",),
    "payload": ("binary", "string"),
    "client_id": ("string",),
    "qos": _WHOLE,
    "retain": ("boolean",),
    "expiry_ms": _WHOLE,
    "content_type": ("string",),
    "response_topic": ("string",),
    "correlation_data": ("binary", "string"),
    "payload_format": _WHOLE,
    "user_properties": ("array<struct<key:string,value:string>>", "map<string,string>"),
}
"""Column -> which types of Spark's it may have."""
_PROPERTIES: Final = ("payload_format", "expiry_ms", "content_type", "response_topic", "correlation_data", "user_properties")


class BadMessage(ValueError):
    """A column or a row that cannot become messages."""


@dataclass(frozen=True, slots=True)
class Rules:
    """client: of messages whose row names none."""

    client: bytes
    topic_prefix: bytes = b""
    allow_retain: bool = False


@dataclass(slots=True)
class Outgoing:
    """One block: columns of equal length, as `Client.append` takes them."""

    flags: bytearray = field(default_factory=bytearray)
    clients: list[bytes] = field(default_factory=list)
    topics: list[bytes] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    size: int = 0
    complete: bool = False
    """A row has come that is not in it, so whatever comes it stays as it is."""

    def add(self, flag: int, client: bytes, topic: bytes, body: bytes) -> None:
        self.flags.append(flag)
        self.clients.append(client)
        self.topics.append(topic)
        self.bodies.append(body)
        self.size += len(client) + len(topic) + len(body)


def check_input(found: Sequence[tuple[str, str]]) -> dict[str, int]:
    """Which column is where, of (name, type in Spark's words). What the source has besides is passed over, so that what was read can be
    written; any other column is a misspelled one."""
    where: dict[str, int] = {}
    for index, (spelled, kind) in enumerate(found):
        name = spelled.lower()
        if name not in _TAKEN:
            if name in TYPES:
                continue
            raise BadMessage(f"column {spelled} is not one that messages are made of; these are {', '.join(_TAKEN)}")
        # Texts may be bounded in length, or say how they are compared.
        plain = "string" if kind.startswith(("string", "varchar", "char")) else kind.replace(" ", "")
        if plain not in _TAKEN[name]:
            raise BadMessage(f"column {name} has type {kind}; wanted is {' or '.join(_TAKEN[name])}")
        if name in where:
            raise BadMessage(f"column {name} is there twice")
        where[name] = index
    for name in ("topic", "payload"):
        if name not in where:
            raise BadMessage(f"there is no column {name}; a message is at least topic and payload")
    return where


def blocks(batches: Iterable[pa.RecordBatch], where: Mapping[str, int], rules: Rules) -> Iterator[Outgoing]:
    block = Outgoing()
    for batch in batches:
        for flag, client, topic, body in _messages(batch, where, rules):
            more = len(client) + len(topic) + len(body)
            if block.flags and (len(block.flags) == BLOCK_ROWS or block.size + more > BLOCK_BYTES):
                block.complete = True
                yield block
                block = Outgoing()
            block.add(flag, client, topic, body)
    if block.flags:
        yield block


def _messages(batch: pa.RecordBatch, where: Mapping[str, int], rules: Rules) -> Iterator[tuple[int, bytes, bytes, bytes]]:
    columns = {name: _values(batch.column(index)) for name, index in where.items()}
    if None in columns["topic"]:
        raise BadMessage("a row has no topic")
    named = {topic: checked_topic(rules.topic_prefix + topic) for topic in set(columns["topic"])}
    topics = [named[topic] for topic in columns["topic"]]
    clients = _clients(columns.get("client_id"), batch.num_rows, rules.client)
    return zip(_flags(columns, batch.num_rows, topics, rules), clients, topics, _bodies(columns, batch.num_rows, topics), strict=True)


def _values(column: Any) -> list[Any]:
    """Texts as the bytes that they are stored as."""
    if pa.types.is_string(column.type):
        column = column.cast(pa.binary())
    elif pa.types.is_large_string(column.type):
        column = column.cast(pa.large_binary())
    values: list[Any] = column.to_pylist()
    return values


def _flags(columns: Mapping[str, list[Any]], rows: int, topics: Sequence[bytes], rules: Rules) -> bytes:
    qos = columns.get("qos", [None] * rows)
    retain = columns.get("retain", [None] * rows)
    flags = bytearray(rows)
    for row in range(rows):
        level = QOS_DEFAULT if qos[row] is None else qos[row]
        if not 0 <= level <= 2:
            raise BadMessage(f"a message for {_shown(topics[row])} has qos {level}; wanted is 0, 1 or 2")
        if retain[row] and not rules.allow_retain:
            raise BadMessage(
                f"a message for {_shown(topics[row])} is to be retained, and would take the place of the one that is; "
                "option allowRetain=true lets it, a column retain without true leaves it alone"
            )
        flags[row] = level << 1 | bool(retain[row])
    return bytes(flags)


def _clients(column: list[bytes | None] | None, rows: int, default: bytes) -> list[bytes]:
    if column is None:
        return [default] * rows
    clients = [default if each is None else each for each in column]
    for client in set(clients):
        if not client or len(client) > STRING_BYTES_MAX or b"\0" in client:
            raise BadMessage(f"client_id {_shown(client)} is none: wanted are 1 to {STRING_BYTES_MAX} bytes without NUL")
    return clients


def checked_topic(topic: bytes) -> bytes:
    """The topic name, if a pipeline may write to it."""
    if not topic or len(topic) > STRING_BYTES_MAX:
        raise BadMessage(f"a topic of {len(topic)} bytes; wanted are 1 to {STRING_BYTES_MAX}")
    if b"+" in topic or b"#" in topic or b"\0" in topic:
        raise BadMessage(f"topic {_shown(topic)} has a wildcard or NUL in it; a message goes to one topic")
    if topic.startswith(b"$"):
        raise BadMessage(f"topic {_shown(topic)} begins with $; these are the broker's own")
    return topic


# ---------------------------------------------------------------------------------------------- bodies


def _bodies(columns: Mapping[str, list[Any]], rows: int, topics: Sequence[bytes]) -> list[bytes]:
    payloads = [payload or b"" for payload in columns["payload"]]
    used = {name: columns[name] for name in _PROPERTIES if name in columns and any(each is not None for each in columns[name])}
    if not used:
        return [b"\0" + payload for payload in payloads]
    bodies: list[bytes] = []
    for row in range(rows):
        try:
            block = property_block({name: values[row] for name, values in used.items() if values[row] is not None})
        except BadMessage as error:
            raise BadMessage(f"a message for {_shown(topics[row])}: {error}") from None
        bodies.append(block + payloads[row])
    return bodies


def property_block(values: Mapping[str, Any]) -> bytes:
    """Length and properties, in the order of their identifiers, as the broker itself lays them out. Texts are bytes."""
    out = bytearray()
    if (payload_format := values.get("payload_format")) is not None:
        if payload_format not in (0, 1):
            raise BadMessage(f"payload_format is {payload_format}; wanted is 0 or 1")
        out += bytes((0x01, payload_format))
    if (expiry_ms := values.get("expiry_ms")) is not None:
        # MQTT counts seconds. Rounded up: what was to live for a moment has not expired before it is there.
        seconds = -(-expiry_ms // 1000)
        if not 0 <= seconds <= EXPIRY_S_MAX:
            raise BadMessage(f"expiry_ms is {expiry_ms}; wanted is 0 to {EXPIRY_S_MAX}000")
        out += b"\x02" + seconds.to_bytes(4, "big")
    if (content_type := values.get("content_type")) is not None:
        out += b"\x03" + _text(content_type, "content_type")
    if (response_topic := values.get("response_topic")) is not None:
        if b"+" in response_topic or b"#" in response_topic or not response_topic:
            raise BadMessage(f"response_topic {_shown(response_topic)} is no topic name")
        out += b"\x08" + _text(response_topic, "response_topic")
    if (correlation_data := values.get("correlation_data")) is not None:
        out += b"\x09" + _sized(correlation_data, "correlation_data")
    for key, value in _pairs(values.get("user_properties")):
        out += b"\x26" + _text(key, "the key of a user property") + _text(value, "the value of a user property")
    return _varint(len(out)) + bytes(out)


def _pairs(value: Any) -> Iterator[tuple[bytes, bytes]]:
    """Of an array of structs or of a map: Arrow gives dictionaries for the one and pairs for the other."""
    for each in value or ():
        key, said = (each["key"], each["value"]) if isinstance(each, dict) else each
        if key is None or said is None:
            raise BadMessage("a user property has no key or no value; wanted are both")
        yield key.encode("utf-8"), said.encode("utf-8")


def _text(raw: bytes, what: str) -> bytes:
    if b"\0" in raw:
        raise BadMessage(f"{what} has a NUL in it, which MQTT does not allow in texts")
    return _sized(raw, what)


def _sized(raw: bytes, what: str) -> bytes:
    if len(raw) > STRING_BYTES_MAX:
        raise BadMessage(f"{what} has {len(raw)} bytes; {STRING_BYTES_MAX} is the most")
    return len(raw).to_bytes(2, "big") + raw


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    if len(out) > 4:
        raise BadMessage("properties of more bytes than MQTT can count")
    return bytes(out)


def _shown(raw: bytes) -> str:
    return repr(raw[:100].decode("utf-8", "replace"))
