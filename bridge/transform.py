"""What becomes of a message on its way: JMESPath over the message as a JSON document (docs/bridge.md, "Transforms").

    topic, levels       the topic, and its levels as a list
    payload             what it says as JSON; else as text; null when it is no text either
    publisher, qos, retain, published_at (RFC 3339), published_at_ms, properties (user properties), content_type, shard, position

Templates are text with such expressions in braces.  An expression that cannot be evaluated, or a template of which one is null, makes the
message unfit: it becomes a dead letter.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import jmespath
from jmespath.exceptions import JMESPathError

from bridge.core import Unfit
from bridge.port import Message
from config.bridges import Transform, pieces_of

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EMPTY: tuple[object, ...] = (None, False, "", [], {})
_TOPIC_BYTES_MAX = 65_535

Transformed = Callable[[Message], Message | None]


def transform_of(settings: Transform) -> Transformed:
    if settings == Transform():
        return with_key
    return _Made(settings)


def with_key(message: Message) -> Message:
    """Nothing is changed; its key is its topic, which one that arrives from the broker has."""
    return message if message.key else message._replace(key=message.topic)


class _Made:
    def __init__(self, settings: Transform) -> None:
        self._where = jmespath.compile(settings.where) if settings.where else None
        self._payload = jmespath.compile(settings.payload) if settings.payload else None
        self._topic = _Template("topic", settings.topic) if settings.topic else None
        self._key = _Template("key", settings.key) if settings.key else None
        self._reads_payload = any("payload" in text for text in (settings.where, settings.payload, settings.topic, settings.key))

    def __call__(self, message: Message) -> Message | None:
        document = _document(message, self._reads_payload)
        if self._where is not None and _evaluated("where", self._where, document) in _EMPTY:
            return None
        topic, payload = message.topic, message.payload
        if self._payload is not None:
            payload = _as_payload(_evaluated("payload", self._payload, document))
        if self._topic is not None:
            topic = _as_topic(self._topic.filled(document))
        key = self._key.filled(document) if self._key is not None else topic
        return message._replace(topic=topic, payload=payload, key=key)


class _Template:
    def __init__(self, name: str, text: str) -> None:
        self._name = name
        pieces = pieces_of(text)
        assert pieces is not None, "config.bridges has let it pass"
        self._pieces = [(jmespath.compile(piece), piece) if is_expression else (None, piece) for piece, is_expression in pieces]

    def filled(self, document: dict[str, object]) -> str:
        texts = []
        for compiled, text in self._pieces:
            if compiled is None:
                texts.append(text)
                continue
            value = _evaluated(self._name, compiled, document)
            if value is None:
                raise Unfit(f"transform.{self._name}: {{{text}}} is null for this message")
            texts.append(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
        return "".join(texts)


def _document(message: Message, reads_payload: bool) -> dict[str, object]:
    return {
        "topic": message.topic,
        "levels": message.topic.split("/"),
        "payload": _read(message.payload) if reads_payload else None,
        "publisher": message.publisher,
        "qos": message.qos,
        "retain": message.retain,
        "published_at": (_EPOCH + timedelta(milliseconds=message.published_at_ms)).isoformat(timespec="milliseconds"),
        "published_at_ms": message.published_at_ms,
        "properties": dict(message.user_properties),
        "content_type": message.content_type,
        "shard": message.shard,
        "position": message.position,
    }


def _read(payload: bytes) -> object:
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        return None
    try:
        found: object = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return found


def _evaluated(name: str, compiled: Any, document: dict[str, object]) -> object:
    try:
        found: object = compiled.search(document)
    except (JMESPathError, TypeError, ValueError, RecursionError) as error:
        raise Unfit(f"transform.{name} cannot be evaluated: {' '.join(str(error).split())[:200]}") from None
    return found


def _as_payload(value: object) -> bytes:
    if value is None:
        raise Unfit("transform.payload is null for this message")
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text.encode(errors="replace")


def _as_topic(text: str) -> str:
    if not text or set(text) & set("+#\0") or len(text.encode(errors="replace")) > _TOPIC_BYTES_MAX:
        raise Unfit(f"transform.topic makes {text[:60]!r} of this message, which is no topic")
    return text
