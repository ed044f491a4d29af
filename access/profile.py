"""What one connection may do: the rules of one version that may fit it, asked by topic and by filter."""

from __future__ import annotations

from typing import Protocol

from access.rights import Extent, Right


class Profile(Protocol):
    """Never says yes where the rules of its version say no; what was found allowed is kept in sets that the hot paths read."""

    @property
    def publishable(self) -> set[bytes]:
        """Topics found allowed for PUBLISH; filled by `may`."""

    @property
    def readable(self) -> set[bytes]:
        """Topics found allowed for SUBSCRIBE; filled by `may`."""

    def may(self, right: Right, topic: bytes) -> bool:
        """Whether all of these rights are there on this topic name."""

    def grant(self, right: Right, topic_filter: bytes) -> Extent:
        """How much of what this filter matches the right covers.  The filter is without `$share`."""
