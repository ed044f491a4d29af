"""Which rights the packets of a client need."""

from __future__ import annotations

from access.profile import Profile
from access.rights import Extent, Right
from gateway.asker import Asker
from mqtt.topics import is_shared, matched_filter


def may_subscribe(profile: Profile, topic_filter: bytes) -> bool:
    if is_shared(topic_filter):
        return _shares(profile, topic_filter) or (isinstance(profile, Asker) and profile.may_join(topic_filter))
    return profile.grant(Right.SUBSCRIBE, topic_filter) is not Extent.NONE


def may_replay(profile: Profile, topic_filter: bytes) -> bool:
    """Whether a subscription to this filter, which is not shared, may begin in the past; each message is asked for, too."""
    if profile.grant(Right.REPLAY, topic_filter) is not Extent.NONE:
        return True
    return isinstance(profile, Asker) and profile.leaves_replay_of(topic_filter)


def may_stay(profile: Profile, topic_filter: bytes) -> bool:
    """Of a member of a group.  One whom a plugin let in is asked about for each message, and leaves when rules say no."""
    return _shares(profile, topic_filter) or (isinstance(profile, Asker) and profile.leaves_shared(topic_filter))


def reads_all(profile: Profile, topic_filter: bytes) -> bool:
    """Whether rules let all be read that a subscription brings."""
    wanted = matched_filter(topic_filter) if is_shared(topic_filter) else topic_filter
    return profile.grant(Right.SUBSCRIBE, wanted) is Extent.ALL


def _shares(profile: Profile, topic_filter: bytes) -> bool:
    """By rules a shared subscription is covered whole: what its member may not read would be lost to its group."""
    return profile.grant(Right.SHARE | Right.SUBSCRIBE, matched_filter(topic_filter)) is Extent.ALL


def publishing(flags: int, delayed: bool = False) -> Right:
    """What a PUBLISH, or a will, with these flags needs."""
    right = Right.PUBLISH | Right.RETAIN if flags & 1 else Right.PUBLISH
    return right | Right.DELAY if delayed else right


def may_publish(profile: Profile, flags: int, topic: bytes, delayed: bool = False) -> bool:
    return profile.may(publishing(flags, delayed), topic)
