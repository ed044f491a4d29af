"""Retained messages, as their homes have them: also those that are kept from subscribers, because their publisher may not publish them
any more."""

from __future__ import annotations

from dataclasses import dataclass

from actors.inquiry.asking import Asking, Page
from actors.inquiry.clients import shown
from actors.inquiry.homes import PAGE_MAX, Cursor, some
from mqtt.body import message_expiry
from mqtt.topics import matches
from shards.messages import HAS_EXPIRY, HEADER_BYTES, QOS_MASK, header
from shards.retained import literal_prefix
from shards.rows import RETAINED

_HEAD_BYTES = 4096
"""Enough for header, publisher, topic and properties of most; a payload is not shown."""
_QUESTIONS_MAX = 20


@dataclass(frozen=True, slots=True)
class RetainedMessage:
    """bytes: of the message with its properties, as it is stored.  expires_at_ms: None when it has no expiry, or when that is too far
    behind its beginning.  published_at_ms: steady time (docs/glossary.md)."""

    topic: str
    publisher: str
    qos: int
    bytes: int
    published_at_ms: int
    expires_at_ms: int | None
    home: int


async def page(asking: Asking, topic_filter: bytes = b"#", cursor: str = "", count_max: int = PAGE_MAX) -> Page[RetainedMessage]:
    """Those that match, also under `#` those that begin with $.  Raises BadCursor."""
    missing: dict[str, None] = {}
    at: Cursor | None = Cursor.parse(cursor)
    prefix = RETAINED + literal_prefix(topic_filter)
    found: list[RetainedMessage] = []
    for _ in range(_QUESTIONS_MAX):
        if at is None or at.shard >= asking.topology.n_shards or len(found) >= count_max:
            break
        home = at.shard
        rows, at = await some(asking, prefix, at, min(count_max - len(found), PAGE_MAX), missing, _HEAD_BYTES)
        for key, value, size in rows.rows[0] if rows is not None else ():
            topic = key[1:]
            if topic_filter == b"#" or matches(topic_filter, topic):
                found.append(_of(topic, value, size, home))
    return Page(tuple(found), str(at) if at is not None and at.shard < asking.topology.n_shards else "", tuple(missing))


def _of(topic: bytes, value: bytes, size: int, home: int) -> RetainedMessage:
    flags, published_at_ms, publisher, _, body = header(value)
    expires: int | None = None
    if flags & HAS_EXPIRY:
        try:
            expiry_s = message_expiry(body)
            expires = None if expiry_s is None else published_at_ms + expiry_s * 1000
        except (ValueError, IndexError):
            expires = None
    body_bytes = size - HEADER_BYTES - len(publisher) - len(topic)
    return RetainedMessage(shown(topic), shown(publisher), flags & QOS_MASK, body_bytes, published_at_ms, expires, home)
