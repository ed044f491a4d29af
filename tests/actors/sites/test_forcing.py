"""When leadership may be forced, and what is said instead."""

from __future__ import annotations

from itertools import count

import pytest

from actors.inquiry.sites import Refused
from actors.sites.copies import CopyStatus
from actors.sites.forcing import ACCEPTED, Around, force_leader
from actors.sites.keys import shard_key, site_key
from actors.sites.looking import Seen, seen_of
from actors.sites.records import SiteRecord
from shards.replication.configuration import Configuration, Rid, breach, first, rid_of, shrunk, taken_over
from shards.replication.register import Held

A, B, C, D = (rid_of(name, "1") for name in "abcd")
LED = taken_over(first(frozenset((A, B, C)), "n"), A, "m")
TWO = shrunk(LED, C, "o")
"""C has fallen out, and others have gone on."""
NUMBERS = count()


def nonce() -> str:
    return str(next(NUMBERS))


def seen(*shards: Configuration) -> Seen:
    sites = {site_key(name): Held(SiteRecord(name, "127.0.0.1", 7883, 1, name, 1, 1).pack(), 1) for name in "abcd"}
    return seen_of(sites, {shard_key(number): Held(now.pack(), 7 + number) for number, now in enumerate(shards)})


def around(up: str, *copies: tuple[int, Rid, int, int]) -> Around:
    """copies: shard, rid, last, epoch of that."""
    said = [CopyStatus(shard, rid, "follower", 1, "", last, last_epoch=epoch) for shard, rid, last, epoch in copies]
    return Around(up, said, {"a": 312.4}, 99)


def refusal(now: Configuration, site: str, there: Around, word: str = ACCEPTED, shard: str = "0") -> str:
    with pytest.raises(Refused) as refused:
        force_leader(seen(now), shard, site, word, there, nonce)
    return str(refused.value)


def test_without_the_word_it_is_told_what_would_be_lost() -> None:
    """Who is in sync, since when they are down, and how far the one that is to lead has come; nothing is changed."""
    there = around("cd", (0, C, 1200, 4))
    said = refusal(TWO, "C", there, "")
    assert said.startswith(
        "messages/0: in sync A (down for 312 s), B (down). Site C is not: it is not in sync, and its log reaches entry 1,200 "
    )
    assert "of epoch 4, and what was acknowledged behind that is lost; what is on A, B would not count any more" in said
    assert said.endswith("Nothing was changed: say it again with --accept-data-loss, or with accept_data_loss in the body")
    assert refusal(TWO, "c", there, "yes") == said
    again = refusal(TWO, "c", around("bcd", (0, C, 1200, 4)), "")
    assert "B (up, without this replica)" in again, "its disk was lost, and it runs with another one"
    assert "so nothing that was acknowledged is lost" in refusal(LED, "c", around("c", (0, C, 5, 1)), "")


def test_with_the_word_it_is_one_change_of_the_record() -> None:
    """That the register takes; replicas shall be on the sites that are there; asked for again it is made already."""
    ((key, version, value),) = force_leader(seen(TWO), "messages/0", "C", ACCEPTED, around("cd", (0, C, 12, 4)), nonce)
    after = Configuration.unpack(value)
    assert (key, version, breach(TWO, after)) == (shard_key(0), 7, None)
    assert (after.leader, after.incarnation, after.complete, after.target, after.forced[-1].wall_ms) == (C, 2, False, ("c",), 99)
    assert force_leader(seen(after), "0", "c", ACCEPTED, around("cd", (0, C, 12, 4)), nonce) == []


def test_what_goes_on_by_itself_is_not_forced() -> None:
    """Somebody in sync is up, and enough others for something to be stored."""
    assert refusal(TWO, "c", around("bc", (0, B, 5, 1), (0, C, 3, 1))) == "messages/0 goes on by itself: B in sync, 2 of 3 replicas up"
    alone = first(frozenset((A,)), "n")
    assert "never had a leader" in refusal(alone, "a", around("b"[:0] + "a"))


def test_who_has_more_is_to_be_chosen() -> None:
    """In sync, or of a later epoch, or longer: in this order."""
    five = frozenset((A, B, C, D, rid_of("e", "1")))
    now = shrunk(shrunk(taken_over(first(five, "n"), A, "m"), C, "o"), D, "p")
    assert "the replica on site D has more" in refusal(now, "c", around("cd", (0, C, 90, 3), (0, D, 5, 4)))
    assert "the replica on site D has more" in refusal(now, "c", around("cd", (0, C, 90, 3), (0, D, 91, 3)))
    assert "the replica on site B has more: it is in sync" in refusal(now, "c", around("bc", (0, C, 90, 3), (0, B, 5, 1)))
    assert len(force_leader(seen(now), "0", "c", ACCEPTED, around("cd", (0, C, 90, 3), (0, D, 90, 3)), nonce)) == 1


@pytest.mark.parametrize(
    ("site", "shard", "up", "why"),
    [
        ("e", "0", "ce", "Site not found: E"),
        ("b", "0", "c", "Site B is down: nobody can lead there"),
        ("d", "0", "cd", "messages/0 has no replica on site D: they are on A, B, C"),
        ("b", "0", "bc", "The replica of messages/0 on site B does not answer: its disk was lost, or it does not run"),
        ("c", "1", "c", "Unknown shard: 1"),
        ("c", "x", "c", "Unknown shard: x"),
    ],
)
def test_what_cannot_be_is_refused(site: str, shard: str, up: str, why: str) -> None:
    """One sentence, with the word too."""
    assert refusal(TWO, site, around(up, (0, C, 12, 4)), ACCEPTED, shard) == why


def test_all_are_those_that_do_not_go_on() -> None:
    """In one command, after two of three sites were lost."""
    alone = taken_over(first(frozenset((D,)), "n"), D, "m")
    there = around("cd", (0, C, 12, 4), (1, D, 3, 1), (2, C, 9, 1))
    changes = force_leader(seen(TWO, alone, LED), "all", "c", ACCEPTED, there, nonce)
    assert [(key, Configuration.unpack(value).complete) for key, _, value in changes] == [(shard_key(0), False), (shard_key(2), True)]
    assert force_leader(seen(alone), "all", "c", ACCEPTED, around("cd", (0, D, 3, 1)), nonce) == []
