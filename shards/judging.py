"""Whether somebody who is not connected may still do what was left behind: a will or a delayed message that is due, a
retained message that is given out.

Who it is was written down as bytes (access.identity) when it was left.  From where he came is not known any more, so rules about listeners
and networks deny, and allow nothing.  An identity that cannot be read allows nothing either.

Where a plugin has the word it is not asked again: what it let in stays, until a rule says no.

Holds: what is remembered of somebody is of the rules in force.
"""

from __future__ import annotations

from typing import Final

from access.denials import Denials
from access.identity import ANONYMOUS, Identity
from access.profile import Profile, left_to_plugin
from access.rights import Right
from access.rules import CLOSED, OPEN, Access

REMEMBERED_MAX: Final = 4_096
"""Profiles of those who have left something behind; then all are forgotten."""
NOT_JUDGED: Final = None
"""In place of an identity: whoever left this may do everything, as the broker's own token may."""


class Judging:
    def __init__(self) -> None:
        self._access: Access = OPEN
        self.judges = False
        """There are rules; without any, nobody has to be looked up."""
        self._profiles: dict[tuple[bytes, bytes], Profile | None] = {}
        self.denials = Denials()
        self.wills_denied = 0
        self.delayed_denied = 0
        self.retained_withheld = 0

    def changed(self, access: Access) -> None:
        self._access = access
        # They say nothing about the anonymous one only if there are none.
        self.judges = access.profile(ANONYMOUS, b"", "", "") is not None
        self._profiles.clear()

    def may_enter(self, client: bytes, identity: bytes | None, retain: int | bool, topic: bytes, delayed: bool = False) -> bool:
        """A will that is due, or a delayed message."""
        right = Right.PUBLISH | Right.RETAIN if retain else Right.PUBLISH
        if self._may(client, identity, right | Right.DELAY if delayed else right, topic):
            return True
        if delayed:
            self.delayed_denied += 1
        else:
            self.wills_denied += 1
        return False

    def may_be_kept(self, client: bytes, identity: bytes | None, topic: bytes) -> bool:
        """Whether the retained message of this one may be given out."""
        if self._may(client, identity, Right.PUBLISH | Right.RETAIN, topic):
            return True
        self.retained_withheld += 1
        return False

    def _may(self, client: bytes, identity: bytes | None, right: Right, topic: bytes) -> bool:
        if identity is NOT_JUDGED or not self.judges:
            return True
        profile = self._profile(client, identity)
        if profile is None or profile.may(right, topic) or left_to_plugin(profile, right, topic):
            return True
        self.denials.note(client, right, topic)
        return False

    def _profile(self, client: bytes, identity: bytes) -> Profile | None:
        key = (identity, client)
        if key not in self._profiles:
            if len(self._profiles) >= REMEMBERED_MAX:
                self._profiles.clear()
            self._profiles[key] = self._find(client, identity)
        return self._profiles[key]

    def _find(self, client: bytes, identity: bytes) -> Profile | None:
        try:
            who = Identity.unpack(identity)
        except ValueError:
            return CLOSED.profile(ANONYMOUS, client, "", "")
        return self._access.profile(who, client, "", "")
