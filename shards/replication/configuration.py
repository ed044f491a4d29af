"""The register record of a shard: who leads, who holds copies, and which of them are in sync; and the rules of its changes.

There is one such record for each shard, in a register that is linearizable; every change replaces the whole record by one compare-and-set
on its version. Who may make which change is said here, once: `breach` tells why a record may not follow another, and each change is made
by the function that is named after it. When to make one is decided elsewhere (in_sync, takeover, membership).

Words:
    replicas    those whose copies count. `min_isr`, a majority of them, must be in sync before anything commits
    isr         in sync: has everything that is committed; its acknowledgement is needed for every commit
    elr         eligible: was put out of the isr when fewer than min_isr were left. Nothing has committed since, so it has everything too
    forced      an operator has made a replica leader because the others are gone for good. Nobody can know what they had: so it is the
                only replica, and the shard goes on as another incarnation

Always holds (see `breach`):
1. the version grows by one; the epoch grows by one when a takeover is made, also by the replica that led before, and never otherwise;
2. only a member of isr or elr takes over; only the leader changes isr and replicas, and only one replica at a time, or one for another of
   the same site;
3. while at least min_isr are in sync the elr is empty;
4. the incarnation grows by one when leadership is forced, and never otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, NewType

import msgpack

Rid = NewType("Rid", str)
"""site + "/" + id of the copy: made together with its directory, so an emptied disk is another replica and never in sync by name."""

CONFIGURATION_VERSION = 2
NEVER_FORCED = 1
"""The version of a record, and the incarnation of a shard, of which leadership was never forced."""
FORCED_MAX = 16
"""Losses that a record keeps; the oldest is forgotten."""
REPLICAS_MAX = 7
"""More copies than that are a mistake: each is written and fsynced for every commit."""
NOBODY = Rid("")

_FIELDS, _FIELDS_FORCED = 9, 11


class ConfigurationUnreadable(ValueError):
    """Bytes that are no register record of a known version, or one that cannot be. One sentence."""


@dataclass(frozen=True, slots=True)
class Transition:
    """One step of membership that a site has claimed."""

    op: Literal["add", "del"]
    site: str


@dataclass(frozen=True, slots=True)
class Forced:
    """Leadership was forced. wall_ms: when, by the clock of the site that was asked. leader: the replica that leads since. gone: replicas
    that count no more. complete: it was in the isr or elr, so nothing that was acknowledged is missing."""

    incarnation: int
    wall_ms: int
    leader: Rid
    gone: tuple[Rid, ...]
    complete: bool


@dataclass(frozen=True, slots=True)
class Configuration:
    """ver: counts changes, from 1. epoch: counts takeovers; 0: nobody has led yet. target: the sites that replicas shall be on, None: as
    they are. nonce: made afresh for each proposal, so that its author knows it again. forced: the last FORCED_MAX times, the
    oldest first."""

    ver: int
    epoch: int
    leader: Rid
    replicas: frozenset[Rid]
    isr: frozenset[Rid]
    elr: frozenset[Rid] = frozenset()
    target: tuple[str, ...] | None = None
    trans: Transition | None = None
    nonce: str = ""
    incarnation: int = NEVER_FORCED
    forced: tuple[Forced, ...] = ()

    @property
    def complete(self) -> bool:
        """As far as this record goes back nothing that was acknowledged was lost by forcing."""
        return all(each.complete for each in self.forced)

    @property
    def min_isr(self) -> int:
        return len(self.replicas) // 2 + 1

    @property
    def writable(self) -> bool:
        """Enough replicas are in sync for something to commit."""
        return len(self.isr) >= self.min_isr

    def may_lead(self, rid: Rid) -> bool:
        """It has everything that is committed."""
        return rid in self.isr or rid in self.elr

    def pack(self) -> bytes:
        """A msgpack array: version, then the fields in their order (docs/formats.md, "Register record"). Of a shard of which leadership
        was never forced it is the one of version 1, which older programs read."""
        trans = None if self.trans is None else [self.trans.op, self.trans.site]
        target = None if self.target is None else list(self.target)
        sets = [sorted(self.replicas), sorted(self.isr), sorted(self.elr)]
        row: list[Any] = [self.ver, self.epoch, self.leader, *sets, target, trans, self.nonce]
        if self.incarnation == NEVER_FORCED:
            return bytes(msgpack.packb([NEVER_FORCED, *row]))
        forced = [[each.incarnation, each.wall_ms, each.leader, list(each.gone), each.complete] for each in self.forced]
        return bytes(msgpack.packb([CONFIGURATION_VERSION, *row, self.incarnation, forced]))

    @staticmethod
    def unpack(data: bytes) -> Configuration:
        """Raises ConfigurationUnreadable."""
        try:
            row = msgpack.unpackb(data, raw=False, use_list=True)
        except Exception as error:  # msgpack raises ValueError, its own kinds, and UnicodeDecodeError
            raise ConfigurationUnreadable(f"register record of {len(data)} bytes is no msgpack: {error}") from error
        if not isinstance(row, list) or not row:
            raise ConfigurationUnreadable(f"register record is {type(row).__name__}, wanted an array that begins with its version")
        if row[0] not in (NEVER_FORCED, CONFIGURATION_VERSION):
            raise ConfigurationUnreadable(
                f"register record of version {row[0]!r}; this program reads versions up to {CONFIGURATION_VERSION}"
            )
        return _of_row(row[1:], _FIELDS if row[0] == NEVER_FORCED else _FIELDS_FORCED)


def site_of(rid: Rid) -> str:
    """The site that a replica is on."""
    return rid.rpartition("/")[0]


def rid_of(site: str, copy: str) -> Rid:
    """copy: the id that was made with the directory; no slash in it."""
    assert site and copy and "/" not in copy, f"site {site!r} and copy {copy!r} make no replica"
    return Rid(f"{site}/{copy}")


def first(replicas: frozenset[Rid], nonce: str) -> Configuration:
    """Of a shard that is new: all copies are empty, so all are in sync, and nobody has led."""
    return Configuration(1, 0, NOBODY, replicas, replicas, nonce=nonce)


# ---- changes. Each gives the next record, to be proposed by compare-and-set on the version of `now`.


def taken_over(now: Configuration, by: Rid, nonce: str) -> Configuration:
    """`by` leads a new epoch. The former leader is put out of the isr: it may have stopped. From the elr one takes over alone."""
    assert now.may_lead(by), f"{by} may not lead: isr {sorted(now.isr)}, elr {sorted(now.elr)}"
    isr = now.isr - ({now.leader} - {by}) if by in now.isr else frozenset((by,))
    return replace(now, ver=now.ver + 1, epoch=now.epoch + 1, leader=by, isr=isr, elr=_eligible(now, isr, now.replicas), nonce=nonce)


def forced(now: Configuration, by: Rid, target: tuple[str, ...], wall_ms: int, nonce: str) -> Configuration:
    """The others are gone for good, says an operator: `by` leads, is the only replica, and what it lacks is lost. target: the sites that
    replicas shall be on then."""
    assert by in now.replicas and now.epoch, f"{by} is no replica of {now}"
    loss = Forced(now.incarnation + 1, wall_ms, by, tuple(sorted(now.replicas - {by})), now.may_lead(by))
    alone = frozenset((by,))
    return Configuration(
        now.ver + 1, now.epoch + 1, by, alone, alone, frozenset(), target, None, nonce, loss.incarnation, (*now.forced, loss)[-FORCED_MAX:]
    )  # fmt: skip


def shrunk(now: Configuration, by: Rid, nonce: str) -> Configuration:
    """`by` has not answered for too long, and its acknowledgement is not needed any more."""
    assert by in now.isr and by != now.leader, f"{by} cannot leave the isr {sorted(now.isr)} of leader {now.leader}"
    return _with(now, now.replicas, now.isr - {by}, nonce)


def expanded(now: Configuration, by: Rid, nonce: str) -> Configuration:
    """`by` has caught up. Its acknowledgement must be needed from before this is proposed."""
    assert by in now.replicas - now.isr, f"{by} cannot join the isr: replicas {sorted(now.replicas)}, isr {sorted(now.isr)}"
    return _with(now, now.replicas, now.isr | {by}, nonce)


def added(now: Configuration, rid: Rid, nonce: str) -> Configuration:
    """A learner that has caught up becomes a replica, in sync at once; ends the transition that was claimed for its site."""
    assert rid not in now.replicas and now.writable and len(now.replicas) < REPLICAS_MAX, f"{rid} cannot be added to {now}"
    return replace(_with(now, now.replicas | {rid}, now.isr | {rid}, nonce), trans=_done(now, "add", rid))


def removed(now: Configuration, rid: Rid, nonce: str) -> Configuration:
    """A replica that does not lead is one no more; ends the transition that was claimed for its site."""
    assert rid in now.replicas and rid != now.leader and may_remove(now, rid), f"{rid} cannot be removed from {now}"
    return replace(_with(now, now.replicas - {rid}, now.isr - {rid}, nonce), trans=_done(now, "del", rid))


def replaced(now: Configuration, former: Rid, by: Rid, nonce: str) -> Configuration:
    """`by` was made anew on the site of `former`, whose disk is gone, and has caught up: it takes that place, in sync at once. The former
    one is out of the isr already, so nothing is believed of `by` for its sake. The acknowledgement of `by` must be needed from before this
    is proposed."""
    assert former in now.replicas - now.isr and by not in now.replicas, f"{by} cannot take the place of {former} in {now}"
    assert site_of(former) == site_of(by), f"{by} is on another site than {former}"
    return _with(now, now.replicas - {former} | {by}, now.isr | {by}, nonce)


def may_remove(now: Configuration, rid: Rid) -> bool:
    """Enough are in sync before, and enough of the rest after it."""
    left = len(now.replicas - {rid})
    return now.writable and len(now.isr - {rid}) >= left // 2 + 1


def targeted(now: Configuration, sites: tuple[str, ...] | None, nonce: str) -> Configuration:
    """Replicas shall be on these sites. A step that is under way is finished, and put right by the next."""
    return replace(now, ver=now.ver + 1, target=sites, nonce=nonce)


def claimed(now: Configuration, step: Transition | None, nonce: str) -> Configuration:
    """This step is under way, or, with None, none is."""
    assert step is None or now.trans is None, f"{now.trans} is under way, {step} has to wait"
    return replace(now, ver=now.ver + 1, trans=step, nonce=nonce)


# ---- what may follow what


def breach(before: Configuration, after: Configuration) -> str | None:
    """Why `after` may not replace `before`, in one sentence; None: it may."""
    if after.ver != before.ver + 1:
        return f"version {after.ver} follows {before.ver}"
    if (found := _nonsense(after)) is not None:
        return found
    joined, gone = after.replicas - before.replicas, before.replicas - after.replicas
    if after.incarnation != before.incarnation or after.forced != before.forced:
        return _bad_force(before, after)
    if after.epoch != before.epoch:
        return _bad_takeover(before, after)
    if after.leader != before.leader:
        return f"{after.leader} leads the epoch {after.epoch} of {before.leader}"
    if joined and gone:
        if (found := _bad_replacement(before, after)) is not None:
            return found
    elif len(joined | gone) > 1:
        return f"more than one replica changes: {sorted(joined | gone)}"
    elif (joined or gone) and not (before.writable and after.writable):
        return f"the replicas change while too few are in sync: {sorted(before.isr)}, then {sorted(after.isr)}"
    if len(before.isr ^ after.isr) > 1:
        return f"more than one replica joins or leaves the isr: {sorted(before.isr ^ after.isr)}"
    if after.elr != _eligible(before, after.isr, after.replicas):
        return f"the elr becomes {sorted(after.elr)}, wanted {sorted(_eligible(before, after.isr, after.replicas))}"
    return None


def _bad_takeover(before: Configuration, after: Configuration) -> str | None:
    if after.epoch != before.epoch + 1:
        return f"epoch {after.epoch} follows {before.epoch}"
    if not before.may_lead(after.leader):
        return f"{after.leader} takes over and is neither in the isr {sorted(before.isr)} nor in the elr {sorted(before.elr)}"
    if after != taken_over(before, after.leader, after.nonce):
        return f"{after.leader} takes over and changes more than the leader, the epoch and the isr"
    return None


def _bad_force(before: Configuration, after: Configuration) -> str | None:
    if after.leader not in before.replicas or not before.epoch or not after.forced:
        return f"{after.leader} is forced to lead and is no replica of {sorted(before.replicas)}, or nobody has led before"
    if after != forced(before, after.leader, after.target or (), after.forced[-1].wall_ms, after.nonce):
        return f"incarnation {after.incarnation} follows {before.incarnation}, and it is not by forcing {after.leader}"
    return None


def _bad_replacement(before: Configuration, after: Configuration) -> str | None:
    joined, gone = after.replicas - before.replicas, before.replicas - after.replicas
    if len(joined) > 1 or len(gone) > 1 or {site_of(rid) for rid in joined} != {site_of(rid) for rid in gone}:
        return f"more than one replica changes: {sorted(joined | gone)}"
    if gone & before.isr:
        return f"{sorted(joined)} takes the place of {sorted(gone)} in the isr {sorted(before.isr)}"
    if not joined <= after.isr:
        return f"{sorted(joined)} takes the place of {sorted(gone)} and is not in sync"
    return None


def _nonsense(one: Configuration) -> str | None:
    if not one.replicas or len(one.replicas) > REPLICAS_MAX:
        return f"{len(one.replicas)} replicas, wanted 1 to {REPLICAS_MAX}"
    if not one.isr <= one.replicas or not one.elr <= one.replicas or one.isr & one.elr or not one.isr:
        return f"isr {sorted(one.isr)} and elr {sorted(one.elr)} are no two parts of the replicas {sorted(one.replicas)}"
    if (one.leader == NOBODY) != (one.epoch == 0) or (one.epoch and one.leader not in one.isr):
        return f"{one.leader or 'nobody'} leads epoch {one.epoch} with isr {sorted(one.isr)}"
    if one.writable and one.elr:
        return f"elr {sorted(one.elr)} while enough are in sync"
    return None


# ---- within


def _with(now: Configuration, replicas: frozenset[Rid], isr: frozenset[Rid], nonce: str) -> Configuration:
    return replace(now, ver=now.ver + 1, replicas=replicas, isr=isr, elr=_eligible(now, isr, replicas), nonce=nonce)


def _eligible(now: Configuration, isr: frozenset[Rid], replicas: frozenset[Rid]) -> frozenset[Rid]:
    """Who has everything though it is not in the isr: nothing can commit with so few, so whoever leaves now stays complete."""
    if len(isr) >= len(replicas) // 2 + 1:
        return frozenset()
    return ((now.elr | now.isr) - isr) & replicas


def _done(now: Configuration, op: str, rid: Rid) -> Transition | None:
    return None if now.trans is not None and (now.trans.op, now.trans.site) == (op, site_of(rid)) else now.trans


def _of_row(row: list[Any], fields: int) -> Configuration:
    if len(row) != fields:
        raise ConfigurationUnreadable(f"register record of {len(row)} fields, wanted {fields}")
    ver, epoch, leader, replicas, isr, elr, target, trans, nonce = row[:_FIELDS]
    incarnation, losses = row[_FIELDS:] or (NEVER_FORCED, [])
    if not all(type(number) is int and number >= 0 for number in (ver, epoch)) or not all(type(text) is str for text in (leader, nonce)):
        raise ConfigurationUnreadable(f"register record with ver {ver!r}, epoch {epoch!r}, leader {leader!r}, nonce {nonce!r}")
    if trans is not None and (not _texts(trans) or len(trans) != 2 or trans[0] not in ("add", "del")):
        raise ConfigurationUnreadable(f"register record with the transition {trans!r}, wanted [add or del, site]")
    if not all(_texts(names) for names in (replicas, isr, elr)) or (target is not None and not _texts(target)):
        raise ConfigurationUnreadable("register record whose replicas, isr, elr or target is no list of names")
    step = None if trans is None else Transition(trans[0], trans[1])
    made = Configuration(
        ver, epoch, Rid(leader), frozenset(replicas), frozenset(isr), frozenset(elr),
        None if target is None else tuple(target), step, nonce,
        *_losses(incarnation, losses),
    )  # fmt: skip
    if (found := _nonsense(made)) is not None:
        raise ConfigurationUnreadable(f"register record {ver} cannot be: {found}")
    return made


def _losses(incarnation: Any, rows: Any) -> tuple[int, tuple[Forced, ...]]:
    try:
        found = tuple([Forced(number, wall_ms, Rid(leader), tuple(gone), complete) for number, wall_ms, leader, gone, complete in rows])
        typed = all(
            type(each.incarnation) is type(each.wall_ms) is int and type(each.leader) is str and type(each.complete) is bool
            for each in found
        )
        if not typed or type(incarnation) is not int or [each.incarnation for each in found[-1:]] != [incarnation][: incarnation - 1]:
            raise ValueError(rows)
    except (ValueError, TypeError) as error:
        raise ConfigurationUnreadable(f"register record of incarnation {incarnation!r} with the losses {rows!r}") from error
    return incarnation, found


def _texts(names: Any) -> bool:
    return isinstance(names, list) and all(type(name) is str for name in names)
