"""The rules of one version, and the two sets of them that need no file: everything, and nothing."""

from __future__ import annotations

from typing import Final, Protocol

from access.identity import Identity
from access.profile import Profile
from access.rights import Extent, Right


class Access(Protocol):
    """One version of the rules; never changed."""

    def profile(self, who: Identity, client: bytes, listener: str, address: str) -> Profile | None:
        """What this one may do on this connection.  None: there are no rules, everything that the protocol allows."""


class _Open:
    def profile(self, who: Identity, client: bytes, listener: str, address: str) -> Profile | None:
        return None


class _Nothing:
    """Sets that stay empty, and no to everything."""

    def __init__(self) -> None:
        self.publishable: set[bytes] = set()
        self.readable: set[bytes] = set()

    def may(self, right: Right, topic: bytes) -> bool:
        return False

    def grant(self, right: Right, topic_filter: bytes) -> Extent:
        return Extent.NONE


class _Closed:
    def profile(self, who: Identity, client: bytes, listener: str, address: str) -> Profile | None:
        return _Nothing()


OPEN: Final[Access] = _Open()
"""No rules: whoever came in may do everything."""
CLOSED: Final[Access] = _Closed()
"""Rules are wanted and none are valid: nobody may do anything."""
