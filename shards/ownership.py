"""Whose a session is, and a connection while it lasts: somebody else gets neither, however it connects.

    session row's user      connects as         answer
    nobody has asked yet    anybody             it is theirs from now on (adopted)
    anonymous               anonymous           theirs
    anonymous               a user              0x85, or with `adopt` theirs from now on
    a user                  the same            theirs
    a user                  anybody else        0x85

The same for the connection that is there, which always has an owner.  Leaves to homes when this is asked: before anything of a session
or a connection is changed, but after what is over anyway was ended.
"""

from __future__ import annotations

from shards.entries import Connect

NOT_YOURS = 0x85
"""Client Identifier not valid: 3.1.1 has a word for it too, and it tells the user what to change."""
ANONYMOUS_USER = b""


def may_have(owner: bytes | None, entry: Connect) -> bool:
    """Whether what belongs to this owner may be had by who connects.  None: nobody asked when it was made."""
    return owner is None or owner == entry.user or (owner == ANONYMOUS_USER and entry.adopt)


def adopted(owner: bytes | None, entry: Connect) -> bool:
    """Whether a session of this owner, which may be had, is somebody else's from now on."""
    return owner != entry.user and not (owner is None and entry.user == ANONYMOUS_USER)
