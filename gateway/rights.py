"""Which rights the packets of a client need."""

from __future__ import annotations

from access.profile import Profile
from access.rights import Extent, Right
from mqtt.topics import is_shared, matched_filter


def may_subscribe(profile: Profile, topic_filter: bytes) -> bool:
    """A shared subscription is covered whole: what its member may not read would be lost to its group."""
    if is_shared(topic_filter):
        return profile.grant(Right.SHARE | Right.SUBSCRIBE, matched_filter(topic_filter)) is Extent.ALL
    return profile.grant(Right.SUBSCRIBE, topic_filter) is not Extent.NONE


def publishing(flags: int, delayed: bool = False) -> Right:
    """What a PUBLISH, or a will, with these flags needs."""
    right = Right.PUBLISH | Right.RETAIN if flags & 1 else Right.PUBLISH
    return right | Right.DELAY if delayed else right


def may_publish(profile: Profile, flags: int, topic: bytes, delayed: bool = False) -> bool:
    return profile.may(publishing(flags, delayed), topic)
