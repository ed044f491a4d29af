"""How two topic filters lie to each other, answered without knowing any topic.

`covers`: is every topic that the second matches matched by the first?  Decides what somebody may read who asks with filters of his own: it
is the same question as at SUBSCRIBE, filter by filter.  `intersects`: is there a topic that both match?  Decides whether what is denied has
to be looked for in what is granted.  The answers are exact, save that no topic is too long for them.
"""

from __future__ import annotations

from collections.abc import Sequence

from mqtt.topics import parse_filter

_ONE, _REST = b"+", b"#"
_WILDCARDS = (_ONE, _REST)


def covers(outer: str | bytes, inner: str | bytes) -> bool:
    """Whether `outer` matches every topic that `inner` matches. `$share/name/` is taken off both.

    Raises mqtt.reason.ProtocolError for what is no topic filter.
    """
    return covers_levels(_levels(outer), _levels(inner))


def covers_levels(outer: Sequence[bytes], inner: Sequence[bytes]) -> bool:
    """`covers` for callers that have the levels of valid filters at hand, where `$share` has no meaning."""
    if _leaves_out(outer, inner):
        return False  # An inner wildcard there does not match such topics either.
    inner = _explicit(inner)
    for level, own in zip(outer, inner, strict=False):
        if level == _REST:
            return True
        if own == _REST or level not in (_ONE, own):
            return False
    return _ends_with(outer, inner)


def intersects(one: str | bytes, other: str | bytes) -> bool:
    """Whether there is a topic that both match. `$share/name/` is taken off both.

    Raises mqtt.reason.ProtocolError for what is no topic filter.
    """
    return intersects_levels(_levels(one), _levels(other))


def intersects_levels(one: Sequence[bytes], other: Sequence[bytes]) -> bool:
    """`intersects` for callers that have the levels of valid filters at hand, where `$share` has no meaning."""
    if _leaves_out(one, other) or _leaves_out(other, one):
        return False
    one, other = _explicit(one), _explicit(other)
    for own, its in zip(one, other, strict=False):
        if _REST in (own, its):
            return True
        if own != its and _ONE not in (own, its):
            return False
    return _ends_with(one, other) or _ends_with(other, one)


def _ends_with(longer: Sequence[bytes], levels: Sequence[bytes]) -> bool:
    """Of two that agree as far as both go: whether the first matches topics of as many levels as the second has; # includes its parent."""
    count = len(levels)
    return len(longer) == count or (len(longer) > count and longer[count] == _REST)


def _leaves_out(outer: Sequence[bytes], inner: Sequence[bytes]) -> bool:
    """Whether a wildcard stands where the other's topics begin with $ [MQTT-4.7.2-1]."""
    return outer[0] in _WILDCARDS and inner[0].startswith(b"$")


def _explicit(levels: Sequence[bytes]) -> Sequence[bytes]:
    """What matches the same topics, with a parent level before # that is one: no topic is empty [MQTT-4.7.3-1]."""
    if levels[0] == _REST:
        return _WILDCARDS
    if not levels[0] and levels[1] == _REST:
        return (b"", _ONE, _REST)
    return levels


def _levels(topic_filter: str | bytes) -> list[bytes]:
    return parse_filter(topic_filter).filter.split(b"/")
