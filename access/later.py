"""A profile whose rules are looked for when the first question comes.

With a thousand rules about everybody it takes a millisecond and more to find those that fit one, and a change of the rules brings
thousands of connections in one turn.
"""

from __future__ import annotations

from collections.abc import Callable

from access.profile import RuledProfile
from access.rights import Extent, Right


class LaterProfile:
    """Life cycle: made -> asked (and found) -> dropped.  Says what the profile says that `find` gives."""

    __slots__ = ("_find", "_found")

    def __init__(self, find: Callable[[], RuledProfile]) -> None:
        self._find: Callable[[], RuledProfile] | None = find
        self._found: RuledProfile | None = None

    @property
    def publishable(self) -> set[bytes]:
        return self._profile().publishable

    @property
    def readable(self) -> set[bytes]:
        return self._profile().readable

    def may(self, right: Right, topic: bytes) -> bool:
        return self._profile().may(right, topic)

    def grant(self, right: Right, topic_filter: bytes) -> Extent:
        return self._profile().grant(right, topic_filter)

    def _profile(self) -> RuledProfile:
        if self._found is None:
            assert self._find is not None
            self._found, self._find = self._find(), None
        return self._found
