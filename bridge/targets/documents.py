"""A message as a JSON object, as HTTP and tables with columns of their own are given it (docs/bridge.md, "The message as JSON")."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime, timedelta

from bridge.port import Message

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def published_at(message: Message) -> datetime:
    # Not fromtimestamp: it makes floats of them on its way.
    return _EPOCH + timedelta(milliseconds=message.published_at_ms)


def document_of(store: str, message: Message) -> dict[str, object]:
    """With `payload` as JSON where it is, else as text; `payload_base64` where it is neither."""
    payload = _payload(message.payload)
    found: dict[str, object] = {
        "store": store,
        "shard": message.shard,
        "position": message.position,
        "topic": message.topic,
        "key": message.key,
        "qos": message.qos,
        "retain": message.retain,
        "published_at": published_at(message).isoformat(timespec="milliseconds"),
        "publisher": message.publisher,
        "content_type": message.content_type,
        # A name may come more than once.
        "properties": [list(pair) for pair in message.user_properties],
        "payload": payload,
    }
    if payload is None and message.payload != b"null":
        found["payload_base64"] = base64.b64encode(message.payload).decode()
    return found


def _payload(payload: bytes) -> object:
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        return None
    try:
        found: object = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return text
    return found


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is no JSON")
