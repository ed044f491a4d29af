"""Topic names and topic filters: validation, levels, matching, ``$share``.

Works on bytes, as they come off the wire; text is accepted where people write it.
Leaves to the gateway what a client may do with a valid topic.  What always holds: whatever
passes a check here is 1 to 65,535 bytes of well-formed UTF-8 without U+0000, has at most
``levels_max`` levels, and has wildcards only where they are allowed.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from mqtt.reason import ProtocolError, ReasonCode
from mqtt.wire import check_utf8

TOPIC_BYTES_MAX: Final = 65_535
# A level costs a step in every trie.  128 is what other large brokers allow by default.
LEVELS_MAX: Final = 128

_SHARE_PREFIX: Final = b"$share/"


@dataclass(frozen=True, slots=True)
class ParsedFilter:
    """A filter of a SUBSCRIBE: ``$share/group/filter`` taken apart, or a plain filter (``group`` None)."""

    filter: bytes
    group: bytes | None = None


def as_bytes(topic: str | bytes) -> bytes:
    """``topic`` as bytes; text with lone surrogates has no UTF-8 form and is malformed."""
    if isinstance(topic, bytes):
        return topic
    try:
        return topic.encode()
    except UnicodeEncodeError as error:
        raise ProtocolError(ReasonCode.MALFORMED_PACKET, f"topic: surrogate at character {error.start}") from None


def check_topic_name(topic: str | bytes, levels_max: int = LEVELS_MAX) -> bytes:
    """Raise unless ``topic`` is a topic name; ill-formed UTF-8 is 0x81, everything else 0x90."""
    raw = as_bytes(topic)
    _check_form(raw, levels_max, "topic name", ReasonCode.TOPIC_NAME_INVALID)
    if b"+" in raw or b"#" in raw:
        raise ProtocolError(ReasonCode.TOPIC_NAME_INVALID, "topic name with a wildcard")  # [MQTT-3.3.2-2]
    return raw


def check_topic_filter(topic_filter: str | bytes, levels_max: int = LEVELS_MAX) -> bytes:
    """Raise unless it is a topic filter; ill-formed UTF-8 is 0x81, everything else 0x8F.

    ``$share`` has no meaning here: take the filter apart with ``parse_filter`` first.
    """
    raw = as_bytes(topic_filter)
    _check_form(raw, levels_max, "topic filter", ReasonCode.TOPIC_FILTER_INVALID)
    if b"#" in raw and (raw.index(b"#") != len(raw) - 1 or (len(raw) > 1 and raw[-2] != 0x2F)):
        raise ProtocolError(ReasonCode.TOPIC_FILTER_INVALID, "# is not the whole last level")  # [MQTT-4.7.1-1]
    if b"+" in raw and any(b"+" in level and level != b"+" for level in raw.split(b"/")):
        raise ProtocolError(ReasonCode.TOPIC_FILTER_INVALID, "+ is not a whole level")  # [MQTT-4.7.1-2]
    return raw


def parse_filter(topic_filter: str | bytes, levels_max: int = LEVELS_MAX) -> ParsedFilter:
    """Check a filter as it stands in a SUBSCRIBE and take ``$share/group/`` off it.

    0x8F for a share name that is empty [MQTT-4.8.2-1] or has a wildcard, and for one that no
    filter follows [MQTT-4.8.2-2].
    """
    raw = as_bytes(topic_filter)
    if not raw.startswith(_SHARE_PREFIX):
        return ParsedFilter(check_topic_filter(raw, levels_max))
    group, slash, rest = raw[len(_SHARE_PREFIX) :].partition(b"/")
    # The two levels in front do not count: the limit is about the filter that is matched.
    _check_form(raw, levels_max + 2, "shared filter", ReasonCode.TOPIC_FILTER_INVALID)
    if not group or b"+" in group or b"#" in group:
        raise ProtocolError(ReasonCode.TOPIC_FILTER_INVALID, "share name is empty or has a wildcard")
    if not slash or not rest:
        raise ProtocolError(ReasonCode.TOPIC_FILTER_INVALID, "no topic filter behind the share name")
    return ParsedFilter(check_topic_filter(rest, levels_max), group)


def _check_form(raw: bytes, levels_max: int, what: str, reason: ReasonCode) -> None:
    if not raw:
        raise ProtocolError(reason, f"{what} is empty")  # [MQTT-4.7.3-1]
    if len(raw) > TOPIC_BYTES_MAX:
        raise ProtocolError(reason, f"{what} of {len(raw)} bytes, at most {TOPIC_BYTES_MAX}")  # [MQTT-4.7.3-3]
    check_utf8(raw, what)
    count = raw.count(b"/") + 1
    if count > levels_max:
        raise ProtocolError(reason, f"{what} of {count} levels, at most {levels_max}")


def has_wildcard(topic_filter: bytes) -> bool:
    return b"+" in topic_filter or b"#" in topic_filter


def is_shared(topic_filter: bytes) -> bool:
    return topic_filter.startswith(b"$share/")


def matched_filter(topic_filter: bytes) -> bytes:
    """The topic filter behind the share name of a valid ``$share/name/filter``."""
    return topic_filter.split(b"/", 2)[2]


def matches(topic_filter: bytes, topic: bytes) -> bool:
    """Whether a valid filter (without ``$share``) matches a valid topic name."""
    return matches_levels(topic_filter.split(b"/"), topic.split(b"/"))


def matches_all(topic_filter: bytes, topics: Collection[bytes]) -> bool:
    """Whether a valid filter (without ``$share``) matches every one of these valid topic names.

    For many at once: a filter with no wildcard but a ``#`` at its end costs a sixth of ``matches`` for each.
    """
    if topic_filter.endswith(b"/#") and b"+" not in topic_filter:
        begins, parent = topic_filter[:-1], topic_filter[:-2]
        return not [topic for topic in topics if not topic.startswith(begins) and topic != parent]
    levels = topic_filter.split(b"/")
    return all(matches_levels(levels, topic.split(b"/")) for topic in topics)


def matches_levels(filter_levels: Sequence[bytes], topic_levels: Sequence[bytes]) -> bool:
    """``matches`` for callers that have the levels at hand.

    A wildcard in the first level does not match a topic that begins with $ [MQTT-4.7.2-1].
    ``a/#`` matches ``a`` as well: the number sign includes the parent level.
    """
    if filter_levels[0] in (b"+", b"#") and topic_levels[0].startswith(b"$"):
        return False
    for index, level in enumerate(filter_levels):
        if level == b"#":
            return True
        if index == len(topic_levels) or (level != b"+" and level != topic_levels[index]):
            return False
    return len(filter_levels) == len(topic_levels)


def valid_names(topics: Sequence[bytes], levels_max: int = LEVELS_MAX) -> int:
    """How many of these are topic names, up to the first that is none.

    All of them together take a twentieth of the time of ``check_topic_name`` for each.
    """
    if not topics or _all_valid(topics, levels_max):
        return len(topics)
    for count, topic in enumerate(topics):
        try:
            check_topic_name(topic, levels_max)
        except ProtocolError:
            return count
    return len(topics)


def _all_valid(topics: Sequence[bytes], levels_max: int) -> bool:
    longest = max(map(len, topics))
    # One has at most one level more than it has bytes.
    if longest > TOPIC_BYTES_MAX or (longest >= levels_max and max([topic.count(b"/") for topic in topics]) >= levels_max):
        return False
    # Between them stands a character of its own, so all are well-formed when the whole is.
    joined = b"/".join(topics)
    if b"\0" in joined or b"+" in joined or b"#" in joined or not all(topics):
        return False
    if not joined.isascii():
        try:
            joined.decode()
        except UnicodeDecodeError:
            return False
    return True
