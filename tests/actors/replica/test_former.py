"""What is said of a copy that was made anew names the way out."""

from __future__ import annotations

from dataclasses import replace

from actors.replica.former import told_of_former
from shards.replication.configuration import first, rid_of


def test_where_the_former_copy_is_the_only_one_in_sync_forced_leadership_is_named() -> None:
    """Otherwise it takes the place by itself, and nobody has to do anything."""
    former, other = rid_of("a" * 16, "1"), rid_of("b" * 16, "1")
    both = first(frozenset((former, other)), "n")
    assert "by itself" in told_of_former(3, both, former)
    alone = told_of_former(3, replace(both, isr=frozenset((former,))), former)
    assert "`holdfast ds force-leader 3 SITE --accept-data-loss`" in alone
