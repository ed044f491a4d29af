"""Which versions of what is said on links this program speaks, and which one two ends take.

A version is of everything that processes of a cluster say to each other: frames and their fields, messages of replicas, entries of the log
that a follower applies.  Each end says the oldest and the newest that it speaks; both then take the newest that both know, and the link has
that (actors.link).  So releases beside each other speak as the older one does, and what is new is said on links of its version only.

A release speaks its own version and that of the release before it, or more.  `NEWEST` is raised by whoever changes what is said; a reader
of the older form stays until `OLDEST` is raised.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Spoken(NamedTuple):
    oldest: int
    newest: int

    def __str__(self) -> str:
        return f"version {self.newest}" if self.oldest == self.newest else f"versions {self.oldest} to {self.newest}"


OWN: Final = Spoken(1, 1)


class NoCommonVersion(ValueError):
    """One sentence, with what both ends speak."""


def agree(ours: Spoken, theirs: Spoken) -> int:
    """The version that a link between these two has; both ends come to the same.  Raises NoCommonVersion."""
    version = min(ours.newest, theirs.newest)
    if version < max(ours.oldest, theirs.oldest):
        older, way = ("it", "it") if theirs.newest < ours.oldest else ("this end", "this site")
        raise NoCommonVersion(
            f"it speaks {theirs} of links and this end {ours}: {older} is too old for the other, bring {way} to the release between first"
        )
    return version
