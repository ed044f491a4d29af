"""Shared groups of durable sessions: which there are, and how one is declared and dropped (docs/groups.md).

Asking twice does no harm: a declaration that says the same is the same, and what is to be dropped is named by its id.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal, NoReturn, get_args

from actors.inquiry.asking import Asking, Page
from actors.inquiry.facts import when
from actors.inquiry.homes import AFTER, Cursor, next_shard
from actors.inquiry.moving import Senseless, Target
from config.values import Duration
from mqtt.reason import ProtocolError
from mqtt.topics import is_shared, parse_filter
from shards.frames import (
    EARLIEST,
    GROUP_BEGUN,
    GROUP_HAS_MEMBERS,
    GROUP_OTHERWISE,
    GROUP_TAKEN,
    GROUP_UNKNOWN,
    GROUPS_FULL,
    LATEST,
    WALL,
    Declare,
    Declared,
    Drop,
    Dropped,
    GroupRows,
    GroupRowsFound,
)
from shards.groups import DECLARED_MAX
from shards.rows import GroupRow, unpack_group

Strategy = Literal["by_stream", "round_robin", "hash_client_id", "hash_topic"]
STRATEGIES: Final[tuple[Strategy, ...]] = get_args(Strategy)
BEGINS: Final = r"^(earliest|latest|-?[0-9]{1,9}(ms|s|m|h|d))$"
"""What it may begin with besides a time."""
COUNT_MAX: Final = 100
WITHIN_S: Final = 4.0
_LOOK_AGAIN_S: Final = 0.02
_QUESTIONS_MAX: Final = 20


class Refused(Exception):
    """It is not as it would have to be for that: one sentence without its full stop."""


class NotThere(Refused):
    """There is no such group."""


class NotYet(Exception):
    """It is declared, and somebody who has to know of it is away: one sentence without its full stop."""


@dataclass(frozen=True, slots=True)
class Group:
    """home: the shard.  begins: where it was declared to begin, as it was said; None: nobody has declared it, and it begins with its first
    member and ends with its last.  strategy None: as it is configured.  ready: what it asks for is kept in every shard.  kept_since_at_ms:
    it was to begin earlier, and what was published before is gone."""

    group: str
    home: int
    begins: str | None
    strategy: str | None
    declared_at_ms: int | None
    ready: bool
    members: int
    kept_since_at_ms: int | None


@dataclass(frozen=True, slots=True)
class Gone:
    """ended: with everything that was stored for it.  Else it is left to so many members."""

    group: str
    ended: bool
    members: int


@dataclass(frozen=True, slots=True)
class Start:
    """As in shards.entries.Replay, and in words."""

    since: int
    value: int
    said: str

    @classmethod
    def parse(cls, text: str, now_ms: int | None = None) -> Start:
        """Raises Senseless."""
        now_ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
        word = text.strip()
        try:
            target = Target.parse(word, now_ms)
        except Senseless:
            target = Target(shard=0)
        if target.shard is not None:
            raise Senseless(
                f"{text[:60]!r} is no beginning: a time such as 2026-11-20T08:00:00Z is wanted, a span such as -2h (so long ago), earliest "
                "or latest"
            )
        if target.wall_ms is None:
            return cls(EARLIEST, 0, "earliest") if target.earliest else cls(LATEST, 0, "latest")
        if target.wall_ms > now_ms:
            raise Senseless(f"{text[:60]!r} is still to come: a group begins now, which is latest, or earlier")
        try:
            # Said again later it is the same, though it is another moment then.
            said = f"-{Duration.parse(word.removeprefix('-'))}"
        except ValueError:
            said = when(target.wall_ms)
        return cls(WALL, target.wall_ms, said)


def checked_group(text: str) -> str:
    """Raises Senseless."""
    try:
        parse_filter(text)
    except ProtocolError as error:
        raise Senseless(f"{text[:200]!r} is no group: {error}") from None
    if not is_shared(text.encode()):
        raise Senseless(f"{text[:200]!r} is no group: $share/NAME/FILTER is wanted")
    return text


async def page(asking: Asking, cursor: str = "", count_max: int = COUNT_MAX) -> Page[Group]:
    """All there are, declared or not.  Raises BadCursor."""
    missing: dict[str, None] = {}
    found: list[Group] = []
    at: Cursor | None = Cursor.parse(cursor)
    for _ in range(_QUESTIONS_MAX):
        if at is None or at.shard >= asking.topology.n_shards or len(found) >= count_max:
            break
        start = at.key + AFTER if at.key else b""
        rows = await _rows(asking, at.shard, start, count_max - len(found), missing)
        if rows is None or rows.whole or not rows.rows:
            following = next_shard(asking, at)
        else:
            following = Cursor(at.shard, rows.rows[-1][0])
        found += _groups(rows, at.shard)
        at = following
    return Page(tuple(found), str(at) if at is not None and at.shard < asking.topology.n_shards else "", tuple(missing))


async def find(asking: Asking, group: str) -> tuple[Group | None, tuple[str, ...]]:
    """(None when there is none; who did not answer)."""
    missing: dict[str, None] = {}
    found = await _find(asking, group.encode(), missing)
    return (found[0] if found is not None else None), tuple(missing)


async def declare(
    asking: Asking, group: str, start: Start, strategy: Strategy | None, by: str, clock: Callable[[], float] = time.monotonic
) -> Group:  # fmt: skip
    """From its return on everything is kept for it.  by: who wants it, for the log.  Raises NotReached, Refused, Senseless and NotYet."""
    filter = group.encode()
    home = asking.home_of(filter)
    reply = await asking.shards.ask(home, Declare(filter, start.since, start.value, start.said, strategy or "", by))
    assert isinstance(reply, Declared)
    if reply.code != GROUP_TAKEN:
        _refuse(group, reply)
    until_s = clock() + WITHIN_S
    missing: dict[str, None] = {}
    while clock() < until_s:
        found = await _find(asking, filter, missing)
        if found is not None and found[0].ready and found[1].id == reply.group:
            return found[0]
        if missing:
            break
        await asyncio.sleep(_LOOK_AGAIN_S)
    who = f"{' and '.join(missing)} did not answer" if missing else "not every shard has taken that in yet"
    raise NotYet(f"{group} is declared, but {who}: it holds as soon as that is done, and declaring it again says when")


async def drop(asking: Asking, group: str, leave: bool, by: str) -> Gone:
    """leave: to its members, if it has some.  Raises NotReached, NotThere and Refused."""
    missing: dict[str, None] = {}
    found = await _find(asking, group.encode(), missing)
    if found is None and missing:
        raise NotYet(f"{' and '.join(missing)} did not answer")
    if found is None:
        raise NotThere(f"there is no group {group}")
    one, row = found
    if one.begins is None:
        raise Refused(f"{group} is not declared: it ends with the last of its {one.members} members")
    reply = await asking.shards.ask(one.home, Drop(group.encode(), row.id, leave, by))
    assert isinstance(reply, Dropped)
    if reply.code == GROUP_HAS_MEMBERS:
        count = f"{reply.members} member{'s' * (reply.members != 1)}"
        raise Refused(f"{group} has {count}, who would keep it until the last of them leaves: to leave it to them, force it")
    # A request that came twice, or somebody else, was faster: it is not declared any more, and that was wanted.
    assert reply.code in (GROUP_TAKEN, GROUP_UNKNOWN), f"drop of {group}: {reply.code}"
    return Gone(group, not reply.members, reply.members)


# ---------------------------------------------------------------------------------------------------- within


def _refuse(group: str, reply: Declared) -> NoReturn:
    if reply.code == GROUP_OTHERWISE:
        with_strategy = f", with strategy {reply.strategy}" if reply.strategy else ""
        raise Refused(f"{group} is declared already, from {reply.said}{with_strategy}: to declare it otherwise, drop it first")
    if reply.code == GROUP_BEGUN:
        raise Refused(f"{group} is there already, begun by its members: declare it from latest, and rewind it")
    if reply.code == GROUPS_FULL:
        raise Refused(f"{DECLARED_MAX:,} groups are declared in the shard of {group}, and there may not be more: drop one")
    raise Senseless(f"{group} cannot be declared like that (code {reply.code})")


async def _find(asking: Asking, filter: bytes, missing: dict[str, None]) -> tuple[Group, GroupRow] | None:
    home = asking.home_of(filter)
    rows = await _rows(asking, home, filter, 1, missing)
    found = _groups(rows, home)
    if rows is None or not found or rows.rows[0][0] != filter:
        return None
    return found[0], unpack_group(rows.rows[0][1])


async def _rows(asking: Asking, shard: int, start: bytes, count_max: int, missing: dict[str, None]) -> GroupRowsFound | None:
    told = await asking.shard(shard, GroupRows(start, count_max), missing)
    return told if isinstance(told, GroupRowsFound) else None


def _groups(rows: GroupRowsFound | None, shard: int) -> list[Group]:
    if rows is None:
        return []
    began_ms = time.time_ns() // 1_000_000 - rows.age_ms
    return [_group(filter, unpack_group(value), members, shard, began_ms) for filter, value, members in rows.rows]


def _group(filter: bytes, row: GroupRow, members: int, shard: int, began_ms: int) -> Group:
    return Group(
        filter.decode(errors="replace"), shard, row.said or None, row.strategy or None, began_ms + row.declared_ms if row.said else None,
        row.begun and not row.lays, members, row.kept_ms or None,
    )  # fmt: skip
