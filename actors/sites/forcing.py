"""Forced leadership: an operator says that the replicas that are not there are gone for good, and a shard goes on without them.  Pure.

From what the register and the sites say to the values that are to be put there, or to the sentence that says why not.  It is refused

    always          of a shard that goes on by itself: somebody in sync is up, and so many replicas that something can be stored
                    for a site that has no replica that counts, or is down
                    when another replica that is up has more: with it less is lost, or nothing
    without a word  that the loss is accepted; then the sentence tells what is lost

What follows is in shards.replication.configuration (`forced`) and docs/replication.md.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from actors.inquiry.sites import STORAGE, Refused
from actors.sites.changing import Change, Nonce
from actors.sites.copies import CopyStatus
from actors.sites.keys import shard_key
from actors.sites.looking import Seen
from shards.replication.configuration import Configuration, Rid, forced, site_of

ACCEPTED: Final = "accept-data-loss"
"""The word."""
ALL: Final = "all"
_SAY: Final = "say it again with --accept-data-loss, or with accept_data_loss in the body"


@dataclass(frozen=True, slots=True)
class Around:
    """up: sites.  copies: what replicas of those say of themselves.  down_s: of other sites, for how long this one has seen them down."""

    up: Collection[str]
    copies: Sequence[CopyStatus]
    down_s: Mapping[str, float]
    wall_ms: int


def force_leader(seen: Seen, shard: str, site: str, word: str, around: Around, nonce: Nonce) -> list[Change]:
    """shard: a number, `messages/` and a number, or ALL: of those that do not go on by themselves.  word: ACCEPTED, or empty.  None is to
    change when leadership was forced already, to this site.  Raises Refused."""
    site = site.lower()
    if site not in seen.sites:
        raise Refused(f"Site not found: {site.upper()}")
    if site not in around.up:
        raise Refused(f"Site {site.upper()} is down: nobody can lead there")
    each = [_Shard(number, seen.shards[number], around) for number in _numbers(seen, shard)]
    each = [one for one in each if not one.is_forced_to(site)]
    if shard == ALL:
        each = [one for one in each if not one.goes_on]
    for one in each:
        one.require(site)
    if each and word != ACCEPTED:
        raise Refused("; ".join([one.told(site) for one in each]) + f". Nothing was changed: {_SAY}")
    return [one.change(site, seen, nonce) for one in each]


class _Shard:
    """One shard, as it stands."""

    def __init__(self, number: int, now: Configuration, around: Around) -> None:
        self._number = number
        self._now = now
        self._around = around
        there = {Rid(copy.rid): copy for copy in around.copies if copy.shard == number and copy.site in around.up}
        self._there = {rid: there[rid] for rid in sorted(now.replicas) if rid in there}
        """Replicas that count, and are up."""

    @property
    def goes_on(self) -> bool:
        return len(self._there) >= self._now.min_isr and any(self._now.may_lead(rid) for rid in self._there)

    def is_forced_to(self, site: str) -> bool:
        last = self._now.forced[-1:]
        return self.goes_on and bool(last) and site_of(last[0].leader) == site == site_of(self._now.leader)

    def require(self, site: str) -> None:
        """Raises Refused."""
        now, name = self._now, self._name
        if not now.epoch:
            raise Refused(f"{name} has never had a leader: there is nothing to lose, it begins when its replicas are up")
        chosen = [rid for rid in self._there if site_of(rid) == site]
        if not chosen:
            if site not in [site_of(rid) for rid in now.replicas]:
                raise Refused(f"{name} has no replica on site {site.upper()}: they are on {_sites(now.replicas)}")
            raise Refused(f"The replica of {name} on site {site.upper()} does not answer: its disk was lost, or it does not run")
        if self.goes_on:
            raise Refused(
                f"{name} goes on by itself: {_sites(rid for rid in self._there if now.may_lead(rid))} in sync, "
                f"{len(self._there)} of {len(now.replicas)} replicas up"
            )
        best = max(self._there, key=lambda rid: (*self._reach(rid), rid == chosen[0]))
        if self._reach(best) > self._reach(chosen[0]):
            raise Refused(f"{name}: the replica on site {_sites([best])} has more: {self._reaches(best)}; here {self._reaches(chosen[0])}")

    def told(self, site: str) -> str:
        """What would be lost."""
        now = self._now
        chosen = next(rid for rid in self._there if site_of(rid) == site)
        in_sync = ", ".join([self._state(rid) for rid in sorted(now.isr | now.elr)])
        others = _sites(now.replicas - {chosen}) or "none"
        if now.may_lead(chosen):
            return (
                f"{self._name}: in sync {in_sync}. Site {site.upper()} is one of them, so nothing that was acknowledged is lost; "
                f"what is on {others} would not count any more"
            )
        return (
            f"{self._name}: in sync {in_sync}. Site {site.upper()} is not: {self._reaches(chosen)}, and what was acknowledged behind that "
            f"is lost; what is on {others} would not count any more"
        )

    def change(self, site: str, seen: Seen, nonce: Nonce) -> Change:
        """Replicas shall be on the sites that are there; others join when somebody says so."""
        chosen = next(rid for rid in self._there if site_of(rid) == site)
        target = tuple(sorted({site_of(rid) for rid in self._there}))
        key = shard_key(self._number)
        return Change(key, seen.version(key), forced(self._now, chosen, target, self._around.wall_ms, nonce()).pack())

    @property
    def _name(self) -> str:
        return f"{STORAGE}/{self._number}"

    def _reach(self, rid: Rid) -> tuple[bool, int, int]:
        copy = self._there[rid]
        return (self._now.may_lead(rid), copy.last_epoch, copy.last)

    def _reaches(self, rid: Rid) -> str:
        copy = self._there[rid]
        said = "it is in sync" if self._now.may_lead(rid) else "it is not in sync"
        return f"{said}, and its log reaches entry {copy.last:,} of epoch {copy.last_epoch}"

    def _state(self, rid: Rid) -> str:
        site = site_of(rid)
        if rid in self._there:
            return f"{site.upper()} (up)"
        if site in self._around.up:
            return f"{site.upper()} (up, without this replica)"
        since = self._around.down_s.get(site)
        return f"{site.upper()} (down{'' if since is None else f' for {since:.0f} s'})"


def _numbers(seen: Seen, word: str) -> list[int]:
    if word == ALL:
        return list(seen.shards)
    number = word.removeprefix(f"{STORAGE}/")
    if not number.isdecimal() or int(number) not in seen.shards:
        raise Refused(f"Unknown shard: {word}")
    return [int(number)]


def _sites(rids: Iterable[Rid]) -> str:
    return ", ".join([site_of(rid).upper() for rid in sorted(rids)])
