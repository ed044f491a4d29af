"""Which format a cluster writes: the highest that all of its sites know.  Pure.

A format is of what lies in copied logs and in the register, and is read by every site: entries, rows, records.  Each site says in its own
record which formats its release knows, and the record of the cluster says which one is in use.  What is new in a format may be written
when it is in use, and not before: so no site meets what it cannot read.  Sites that are lost or forgotten do not count; one that is down
does.

    announced   all sites know it; a site that does not is refused from now on
    in use      a look at all sites, later than the announcement, has still found nobody who does not know it

Both steps are one compare-and-set each on the record of the cluster, and a site that starts says what it knows before it looks there.  So
one of an older release that comes at that moment sees the announcement, or is seen by whoever would take the next step.

Always holds: the format in use never becomes lower, and no site that was let in does not know it.

A release that brings a new format raises `KNOWN.newest`, and writes it where `format` of the run directory's `sites.json` is at least that
(actors.sites.whereabouts).  The reader of the older form stays until `KNOWN.oldest` is raised.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, NamedTuple


class Known(NamedTuple):
    """By a release."""

    oldest: int
    newest: int

    def __str__(self) -> str:
        return f"format {self.newest}" if self.oldest == self.newest else f"formats {self.oldest} to {self.newest}"


FIRST: Final = 1
"""In use where nobody has said anything: when a cluster begins, and in what programs wrote that knew no formats."""
KNOWN: Final = Known(1, 1)
ONLY_FIRST: Final = Known(FIRST, FIRST)
"""What a site knows that says nothing of it."""


class Use(NamedTuple):
    """announced: not lower than what is in use."""

    format: int = FIRST
    announced: int = FIRST


def next_use(now: Use, members: Collection[Known]) -> Use:
    """members: what all sites that are neither lost nor forgotten know, looked at after `now` was read."""
    common = min((each.newest for each in members), default=now.format)
    if now.announced > now.format:
        # Somebody who does not know it has come between: he is let in, and it is announced again when he knows it.
        return Use(now.announced, now.announced) if common >= now.announced else Use(now.format, max(now.format, common))
    return Use(now.format, max(now.format, common))


def refusal(now: Use, own: Known, release: str) -> str:
    """Why a site of this release cannot be of a cluster, in one sentence; empty: it can."""
    if own.newest < now.announced:
        return (
            f"the sites of this cluster write format {now.announced}, and this Holdfast ({release}) knows {own}: start this site with the "
            "release that the others have"
        )
    if own.oldest > now.format:
        return (
            f"the sites of this cluster write format {now.format}, and this Holdfast ({release}) knows {own}: bring all sites to the "
            "release between first"
        )
    return ""
