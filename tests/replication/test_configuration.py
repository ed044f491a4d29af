"""The register record: its bytes, and what may follow what."""

from __future__ import annotations

import random
from dataclasses import replace

import msgpack
import pytest

from shards.replication.configuration import (
    CONFIGURATION_VERSION,
    Configuration,
    ConfigurationUnreadable,
    Rid,
    Transition,
    added,
    breach,
    claimed,
    expanded,
    first,
    forced,
    may_remove,
    removed,
    replaced,
    rid_of,
    shrunk,
    site_of,
    taken_over,
    targeted,
)

A, B, C, D = (rid_of(f"site-{name}", "1") for name in "abcd")
NEW = first(frozenset((A, B, C)), "n0")
LED = taken_over(NEW, A, "n1")

GOLDEN = bytes.fromhex(
    "9a010201a8736974652d612f3193a8736974652d612f31a8736974652d622f31a8736974652d632f31"
    "93a8736974652d612f31a8736974652d622f31a8736974652d632f3190c0c0a26e31"
)


def test_a_record_has_the_bytes_that_the_page_says() -> None:
    """docs/formats.md, "Register record": a change of these is a new version."""
    assert LED.pack() == GOLDEN
    assert Configuration.unpack(GOLDEN) == LED


def test_what_is_packed_is_unpacked_as_it_was() -> None:
    """With every field set, and with none that need not be."""
    full = claimed(targeted(LED, ("site-a", "site-d"), "n2"), Transition("add", "site-d"), "n3")
    for one in (NEW, LED, full, shrunk(shrunk(full, B, "n4"), C, "n5")):
        assert Configuration.unpack(one.pack()) == one


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "no msgpack"),
        (b"\xc1", "no msgpack"),
        (msgpack.packb({}), "wanted an array"),
        (msgpack.packb([CONFIGURATION_VERSION + 1]), "of version 3"),
        (msgpack.packb([CONFIGURATION_VERSION, 1]), "of 1 fields"),
        (msgpack.packb([1, -1, 1, A, [A], [A], [], None, None, ""]), "with ver -1"),
        (msgpack.packb([1, 1, 1, A, A, [A], [], None, None, ""]), "no list of names"),
        (msgpack.packb([1, 1, 1, A, [A], [A], [], None, ["move", "x"], ""]), "the transition"),
        (msgpack.packb([1, 1, 1, B, [A], [A], [], None, None, ""]), "leads epoch 1"),
        (msgpack.packb([1, 1, 0, "", [A], [B], [], None, None, ""]), "no two parts"),
        (msgpack.packb([1, 1, 0, "", [], [], [], None, None, ""]), "0 replicas"),
        (msgpack.packb([2, 1, 1, A, [A], [A], [], None, None, "", 2, []]), "of incarnation 2"),
        (msgpack.packb([2, 1, 1, A, [A], [A], [], None, None, "", 2, [[3, 1, A, [], True]]]), "of incarnation 2"),
        (msgpack.packb([2, 1, 1, A, [A], [A], [], None, None, "", 2, 7]), "of incarnation 2"),
    ],
)
def test_bytes_that_are_no_record_are_refused_with_a_sentence(data: bytes, why: str) -> None:
    """Never guessed at: whoever reads it does nothing."""
    with pytest.raises(ConfigurationUnreadable, match=why):
        Configuration.unpack(data)


def test_cut_or_changed_bytes_never_raise_anything_else() -> None:
    """Whatever a register gives back."""
    rng = random.Random(1)
    for _ in range(2000):
        data = bytearray(GOLDEN[: rng.randint(0, len(GOLDEN))])
        for _ in range(rng.randint(0, 3)):
            if data:
                data[rng.randrange(len(data))] = rng.randrange(256)
        try:
            Configuration.unpack(bytes(data))
        except ConfigurationUnreadable:
            pass


def test_a_replica_names_its_site() -> None:
    """The id of a copy has no slash; a site may have one."""
    assert site_of(rid_of("rack/7", "ab12")) == "rack/7" and site_of(A) == "site-a"


def test_who_takes_over_puts_the_former_leader_out() -> None:
    """With two of three left it can be written to; the elr is empty."""
    after = taken_over(LED, B, "n2")
    assert (after.epoch, after.leader, after.isr, after.elr) == (
        2,
        B,
        frozenset(
            (
                B,
                C,
            )
        ),
        frozenset(),
    )
    assert breach(LED, after) is None
    assert taken_over(LED, A, "n2").isr == {A, B, C}, "the same one may lead again, under a new epoch"


def test_the_last_to_leave_stays_eligible_and_may_lead_alone() -> None:
    """Nothing commits with fewer than min_isr, so both have everything."""
    alone = shrunk(shrunk(LED, C, "n2"), B, "n3")
    assert (alone.isr, alone.elr, alone.writable) == (frozenset((A,)), frozenset((B,)), False)
    other = taken_over(alone, B, "n4")
    assert (other.isr, other.elr) == (frozenset((B,)), frozenset((A,)))
    assert breach(alone, other) is None
    assert breach(alone, replace(other, leader=C, isr=frozenset((C,)))) is not None, "C left while others went on"
    both = expanded(other, C, "n5")
    assert (both.isr, both.elr, both.writable) == (
        frozenset(
            (
                B,
                C,
            )
        ),
        frozenset(),
        True,
    )


def test_one_replica_joins_or_leaves_at_a_time() -> None:
    """And only while enough are in sync, before and after."""
    four = added(claimed(LED, Transition("add", "site-d"), "n2"), D, "n3")
    assert (four.replicas, four.isr, four.trans, four.min_isr) == (
        frozenset(
            (
                A,
                B,
                C,
                D,
            )
        ),
        frozenset(
            (
                A,
                B,
                C,
                D,
            )
        ),
        None,
        3,
    )
    three = removed(four, B, "n4")
    assert (three.replicas, three.min_isr) == (
        frozenset(
            (
                A,
                C,
                D,
            )
        ),
        2,
    )
    assert may_remove(shrunk(LED, C, "n"), C) and not may_remove(shrunk(LED, C, "n"), B)
    assert breach(LED, replace(LED, ver=3, replicas=frozenset((A, B)), isr=frozenset((A, B)))) is None
    assert breach(LED, replace(LED, ver=3, replicas=frozenset((A,)), isr=frozenset((A,)))) == (
        "more than one replica changes: ['site-b/1', 'site-c/1']"
    )


def test_a_copy_made_anew_takes_the_place_of_the_former_which_is_out_of_the_isr() -> None:
    """In sync at once, also when too few were: what is committed is with those who are in sync, and with nobody by its name."""
    anew = rid_of("site-c", "2")
    without = shrunk(LED, C, "n2")
    now = replaced(without, C, anew, "n3")
    assert breach(without, now) is None and now.replicas == now.isr == {A, B, anew}
    alone = shrunk(without, B, "n3")
    now = replaced(alone, C, anew, "n4")
    assert breach(alone, now) is None and now.isr == {A, anew} and not now.elr and now.writable
    inherited = replace(LED, ver=3, replicas=frozenset((A, B, anew)), isr=frozenset((A, B, anew)))
    assert "takes the place" in str(breach(LED, inherited)) and "in the isr" in str(breach(LED, inherited))
    lagging = replace(without, ver=4, replicas=frozenset((A, B, anew)))
    assert "is not in sync" in str(breach(without, lagging))
    elsewhere = replace(without, ver=4, replicas=frozenset((A, B, D)), isr=frozenset((A, B, D)))
    assert "more than one replica changes" in str(breach(without, elsewhere))


@pytest.mark.parametrize(
    ("after", "why"),
    [
        (replace(LED, ver=4), "version 4 follows 2"),
        (replace(LED, ver=3, epoch=3, leader=B), "epoch 3 follows 1"),
        (replace(LED, ver=3, leader=B), "leads the epoch 1 of"),
        (replace(LED, ver=3, isr=frozenset((A,)), elr=frozenset((B, C))), "more than one replica joins or leaves the isr"),
        (replace(LED, ver=3, isr=frozenset((A, B)), elr=frozenset((C,))), "while enough are in sync"),
        (replace(taken_over(LED, B, ""), isr=frozenset((A, B, C))), "changes more than"),
        (replace(taken_over(LED, B, ""), target=("site-a",)), "changes more than"),
    ],
)
def test_what_may_not_follow_is_told_in_a_sentence(after: Configuration, why: str) -> None:
    """Every rule of the page has its own."""
    assert why in str(breach(LED, after))


def test_whatever_the_changes_make_may_follow_and_can_be_read() -> None:
    """Random walks over all of them: `breach` and the functions say the same rules."""
    rng = random.Random(2)
    names = [rid_of(f"s{number}", "1") for number in range(6)]
    changes = copies = 0
    for _ in range(60):
        now = first(frozenset(names[: rng.randint(1, 5)]), "")
        for _ in range(60):
            by: Rid = rng.choice(names)
            nonce = f"{rng.random()}"
            match rng.randrange(6):
                case 0 if now.may_lead(by):
                    after = taken_over(now, by, nonce)
                case 1 if now.epoch and by in now.isr - {now.leader}:
                    after = shrunk(now, by, nonce)
                case 2 if now.epoch and by in now.replicas - now.isr:
                    after = expanded(now, by, nonce)
                case 3 if now.epoch and by not in now.replicas and now.writable:
                    after = added(now, by, nonce)
                case 4 if now.epoch and by in now.replicas - {now.leader} and may_remove(now, by):
                    after = removed(now, by, nonce)
                case 5 if now.epoch and by in now.replicas - now.isr:
                    copies += 1
                    anew = rid_of(site_of(by), f"{copies + 1}")
                    after = replaced(now, by, anew, nonce)
                    names[names.index(by)] = anew
                case _:
                    continue
            assert breach(now, after) is None, (now, after)
            assert Configuration.unpack(after.pack()) == after
            now = after
            changes += 1
    assert changes > 500 and copies > 20


def test_who_is_forced_to_lead_is_alone_and_of_another_incarnation() -> None:
    """Also who is not in sync; the record says what was given up, and whether anything is missing."""
    alone = shrunk(LED, C, "n2")
    for by, complete in ((A, True), (B, True), (C, False)):
        after = forced(alone, by, ("site-b", "site-d"), 77, "n3")
        assert (after.ver, after.epoch, after.leader, after.replicas, after.isr) == (4, 2, by, frozenset((by,)), frozenset((by,)))
        assert (after.incarnation, after.forced[-1].complete, after.complete) == (2, complete, complete)
        assert after.writable and not after.elr and after.target == ("site-b", "site-d") and after.trans is None
        assert sorted((by, *after.forced[-1].gone)) == [A, B, C]
        assert breach(alone, after) is None
        assert Configuration.unpack(after.pack()) == after
        assert breach(after, taken_over(after, by, "n4")) is None
    again = forced(forced(alone, C, ("site-b",), 77, "n3"), C, ("site-b",), 78, "n4")
    assert (again.incarnation, [each.complete for each in again.forced], again.complete) == (3, [False, True], False)


def test_nothing_else_changes_the_incarnation() -> None:
    """Nor does forcing change anything else, or make somebody lead who has no copy that counts."""
    after = forced(LED, C, ("site-c",), 77, "n2")
    assert breach(LED, replace(after, isr=frozenset((A, C)), replicas=frozenset((A, C)))) is not None
    assert breach(LED, replace(after, incarnation=3)) is not None
    assert breach(LED, replace(LED, ver=3, incarnation=2)) is not None
    assert breach(LED, replace(after, leader=D, replicas=frozenset((D,)), isr=frozenset((D,)))) is not None
    assert breach(after, replace(after, ver=4, forced=())) is not None
