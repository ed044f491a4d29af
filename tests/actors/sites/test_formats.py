"""The format of a cluster: the highest that all sites know, never lower, and unknown to nobody who was let in, whatever comes between."""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from itertools import combinations
from typing import Any

import pytest

from actors.sites.claiming import CannotJoin, be_let_in, settle_format
from actors.sites.formats import Known, Use, next_use, refusal
from actors.sites.keys import CLUSTER, shard_key, site_key
from actors.sites.looking import Seen, look
from actors.sites.records import Cluster, SiteRecord
from shards.replication.configuration import first, rid_of
from shards.replication.ports import Outcome
from shards.replication.register import NO_VALUE, Held

OLD, NEW = Known(1, 1), Known(1, 2)
SETTINGS = Cluster(1, 2, 2, "5" * 16)


@pytest.mark.parametrize(
    ("now", "members", "then"),
    [
        (Use(1, 1), [OLD, OLD], Use(1, 1)),
        (Use(1, 1), [NEW, OLD, NEW], Use(1, 1)),
        (Use(1, 1), [NEW, NEW], Use(1, 2)),
        (Use(1, 2), [NEW, NEW], Use(2, 2)),
        (Use(1, 2), [NEW, OLD], Use(1, 1)),
        (Use(2, 2), [NEW, NEW], Use(2, 2)),
        # Nobody may take away what is in use: it lies in logs.
        (Use(2, 2), [NEW, OLD], Use(2, 2)),
        # Two at once, one after the other, and what more is known later.
        (Use(1, 1), [Known(1, 3), Known(2, 4)], Use(1, 3)),
        (Use(1, 3), [Known(1, 4), Known(2, 4)], Use(3, 3)),
        (Use(1, 3), [Known(1, 2), Known(2, 4)], Use(1, 2)),
        (Use(3, 3), [Known(1, 4), Known(2, 4)], Use(3, 4)),
        (Use(2, 2), [], Use(2, 2)),
    ],
)
def test_it_is_announced_when_all_know_it_and_in_use_when_they_still_do(now: Use, members: list[Known], then: Use) -> None:
    """One step at a time, and none back from what is in use."""
    assert next_use(now, members) == then


def test_a_release_that_does_not_know_it_is_told_which_one_and_what_to_do() -> None:
    """One sentence; from the announcement on."""
    assert refusal(Use(1, 1), NEW, "0.2.0") == refusal(Use(2, 2), NEW, "0.2.0") == refusal(Use(1, 1), OLD, "0.1.0") == ""
    said = refusal(Use(1, 2), OLD, "0.1.0")
    assert said == refusal(Use(2, 2), OLD, "0.1.0")
    assert said == (
        "the sites of this cluster write format 2, and this Holdfast (0.1.0) knows format 1: start this site with the release that "
        "the others have"
    )
    assert refusal(Use(1, 1), Known(2, 3), "0.3.0") == (
        "the sites of this cluster write format 1, and this Holdfast (0.3.0) knows formats 2 to 3: bring all sites to the "
        "release between first"
    )


class _Step:
    """Awaited before each question to the register: the test goes on with whom it likes."""

    def __await__(self) -> Generator[None, None, None]:
        yield


class _Stepped:
    """A register whose answers come when the test lets them."""

    def __init__(self) -> None:
        self.held: dict[str, Held] = {}
        self._version = 0

    async def read(self, key: str) -> Held | None:
        await _Step()
        return self.held.get(key)

    async def list(self, prefix: str) -> dict[str, Held]:
        await _Step()
        return {key: held for key, held in sorted(self.held.items()) if key.startswith(prefix)}

    async def cas(self, key: str, version: int, new: bytes) -> Outcome:
        await _Step()
        if (self.held[key].version if key in self.held else NO_VALUE) != version:
            return Outcome.CONFLICT
        self.put(key, new)
        return Outcome.DONE

    async def close(self) -> None:
        pass

    def put(self, key: str, value: bytes) -> None:
        self._version += 1
        self.held[key] = Held(value, self._version)

    @property
    def use(self) -> Use:
        return Cluster.unpack(self.held[CLUSTER].value).use


def _site(name: str, knows: Known, lost: bool = False) -> SiteRecord:
    return SiteRecord(name, "127.0.0.1", 7883, 1, name, 1, 1, "lost" if lost else "member", "0.1.0", knows)


def _begun(*sites: SiteRecord, use: Use) -> _Stepped:
    register = _Stepped()
    register.put(CLUSTER, Cluster(1, 2, 2, "5" * 16, 1, *use).pack())
    for site in sites:
        register.put(site_key(site.site), site.pack())
    register.put(shard_key(0), first(frozenset(rid_of(site.site, "c") for site in sites), "n").pack())
    return register


async def _looks(register: _Stepped, times: int, seen: Seen | None = None) -> None:
    """seen: what it goes by, where that is of long ago."""
    for _ in range(times):
        await settle_format(register, SETTINGS, seen or await look(register))


async def _joins(register: _Stepped, record: SiteRecord, let_in: list[bool]) -> None:
    async def nobody(_: SiteRecord) -> bool:
        return False

    try:
        await be_let_in(register, SETTINGS, record, nobody)
    except CannotJoin:
        let_in.append(False)
    else:
        let_in.append(True)


def _to_the_end(one: Coroutine[Any, Any, None]) -> int:
    """How many questions it asked."""
    count = 0
    try:
        while True:
            one.send(None)
            count += 1
    except StopIteration:
        return count


def _before() -> dict[str, tuple[_Stepped, SiteRecord]]:
    """What there is when a site comes that knows the first format alone: a new one, a lost one, one that went back to its old release."""
    a, c = _site("a", NEW), _site("c", OLD)
    return {
        "new": (_begun(a, use=Use(1, 1)), c),
        "new, announced": (_begun(a, use=Use(1, 2)), c),
        "lost": (_begun(a, _site("c", OLD, lost=True), use=Use(1, 1)), c),
        "lost, announced": (_begun(a, _site("c", OLD, lost=True), use=Use(1, 2)), c),
        "back": (_begun(a, _site("c", NEW), use=Use(1, 1)), c),
        "back, announced": (_begun(a, _site("c", NEW), use=Use(1, 2)), c),
    }


@pytest.mark.slow
@pytest.mark.parametrize("how", list(_before()))
def test_whatever_comes_between_nobody_is_let_in_who_does_not_know_what_is_in_use(how: str) -> None:
    """Every order in which the questions of a site that comes and of two looks of another one can reach the register."""
    outcomes = set()
    stale = Seen({"a": _site("a", NEW)})
    asks, looks = 5, 8
    for places in combinations(range(asks + looks), looks):
        register, record = _before()[how]
        let_in: list[bool] = []
        both = [_joins(register, record, let_in), _looks(register, 2, stale)]
        for each in both:
            each.send(None)  # To its first question.
        over = [False, False]
        formats = [register.use.format]
        for at in range(asks + looks):
            which = int(at in places)
            try:
                if not over[which]:
                    both[which].send(None)
            except StopIteration:
                over[which] = True
            formats.append(register.use.format)
            if all(over):
                break
        for each, ended in zip(both, over, strict=True):
            if not ended:
                _to_the_end(each)
        # Whatever was under way is over: the other one looks on.
        _to_the_end(_looks(register, 4))
        formats.append(register.use.format)
        assert formats == sorted(formats)
        outcomes.add((*let_in, formats[-1]))
    assert outcomes <= {(True, 1), (False, 1), (False, 2)}
    assert (True, 1) in outcomes or "announced" in how


def test_a_site_that_was_seen_between_and_refused_gets_in_when_it_asks_again() -> None:
    """What was announced is taken back, as it is not in use: nothing has been written in it."""
    register = _begun(_site("a", NEW), _site("c", OLD), use=Use(1, 2))
    _to_the_end(_looks(register, 1))
    assert register.use == Use(1, 1)
    let_in: list[bool] = []
    _to_the_end(_joins(register, _site("c", OLD), let_in))
    assert let_in == [True]


def test_a_site_that_cannot_be_read_holds_it_back() -> None:
    """Nobody knows what it knows."""
    register = _begun(_site("a", NEW), use=Use(1, 1))
    register.put(site_key("b"), b'{"version":9}')
    _to_the_end(_looks(register, 3))
    assert register.use == Use(1, 1)
