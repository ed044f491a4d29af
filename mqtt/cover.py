"""Does one topic filter cover another: is every topic that the second matches matched by the first?

Decides what somebody may read who asks with filters of his own: it is the same question as at SUBSCRIBE, filter by filter, and it is
answered without knowing any topic. The answer is exact, save that no topic is too long for it.
"""

from __future__ import annotations

from mqtt.topics import parse_filter

_ONE, _REST = b"+", b"#"


def covers(outer: str | bytes, inner: str | bytes) -> bool:
    """Whether `outer` matches every topic that `inner` matches. `$share/name/` is taken off both.

    Raises mqtt.reason.ProtocolError for what is no topic filter.
    """
    wide, narrow = _levels(outer), _levels(inner)
    if wide[0] == _ONE and narrow[0].startswith(b"$"):
        return False  # [MQTT-4.7.2-1]; an inner wildcard there does not match such topics either.
    whole = wide[-1] == _REST
    if whole:
        del wide[-1]
    if narrow[-1] == _REST:
        # Matches its parent level too, so topics of as few levels as stand before it: a # further behind would miss those.
        del narrow[-1]
        if not whole or len(wide) > len(narrow):
            return False
    elif len(wide) > len(narrow) if whole else len(wide) != len(narrow):
        return False
    return all(level in (_ONE, own) for level, own in zip(wide, narrow, strict=False))


def _levels(topic_filter: str | bytes) -> list[bytes]:
    levels = parse_filter(topic_filter).filter.split(b"/")
    # Every topic has a first level, so both match the same; here # has a parent level then.
    return [_ONE, _REST] if levels == [_REST] else levels
