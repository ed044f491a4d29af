"""Moves the places of a durable session for whoever may: skip, rewind, purge (docs/session-tools.md).

What a time means in each shard is found out here, in the files; the move itself is the business of the session actor (sessions.moving).
Asking twice does no harm.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Final, Literal

from actors.asking import NotReached
from actors.inquiry import sessions
from actors.inquiry.asking import Asking
from actors.inquiry.stored import Stored
from actors.reader.planning import FIND_SLACK_MS
from actors.reader.views import Seen
from config.values import Duration
from sessions.inquiry_frames import (
    MOVE_BUSY,
    MOVE_DONE,
    MOVE_LATE,
    MOVE_NO_SUBSCRIPTION,
    PURGE,
    REWIND,
    SKIP,
    UNMOVED,
    Move,
    Moved,
)  # fmt: skip

Verb = Literal["skip", "rewind", "purge"]
_VERBS: Final = {"skip": SKIP, "rewind": REWIND, "purge": PURGE}
_POSITION: Final = re.compile(r"(\d{1,3}):(\d{1,18})")
WORDS: Final = r"^(earliest|latest|-?[0-9]{1,9}(ms|s|m|h|d)|[0-9]{1,3}:[0-9]{1,18})$"
"""What a target can be besides a time."""


class Senseless(ValueError):
    """What was asked for makes no sense: one sentence without its full stop."""


class NotMoved(Exception):
    """It could not be done, or nobody knows whether it was: one sentence without its full stop."""


class NotThere(NotMoved):
    """What it names is not there: a subscription that could be moved, a shard."""


@dataclass(frozen=True, slots=True)
class Target:
    """One of: a time, both ends, a position in one shard."""

    wall_ms: int | None = None
    earliest: bool = False
    shard: int | None = None
    position: int = 0

    @classmethod
    def parse(cls, text: str, now_ms: int | None = None) -> Target:
        """Raises Senseless."""
        word = text.strip()
        if word in ("earliest", "latest"):
            return cls(earliest=word == "earliest")
        at = _POSITION.fullmatch(word)
        if at is not None:
            return cls(shard=int(at[1]), position=int(at[2]))
        now_ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
        try:
            return cls(wall_ms=max(0, now_ms - Duration.parse(word.removeprefix("-")).ms))
        except ValueError:
            pass
        try:
            moment = datetime.fromisoformat(word)
        except ValueError:
            moment = None
        if moment is None or moment.tzinfo is None:
            raise Senseless(
                f"{text[:60]!r} is no place: a time such as 2026-11-20T08:00:00Z is wanted, a span such as 2h (so long ago), earliest, "
                "latest, or SHARD:POSITION"
            )
        return cls(wall_ms=max(0, int(moment.timestamp() * 1000)))


@dataclass(frozen=True, slots=True)
class Done:
    """places: that were moved.  closed: messages that it had been given, and gets no more under their numbers."""

    client: str
    what: Verb
    filter: str | None
    places: int
    closed: int


async def move(asking: Asking, stored: Stored, client: str, what: Verb, to: Target, filter: str | None, by: str) -> Done | None:
    """None: it has no durable session.  by: who wants it, for the log.  Raises NotReached, NotMoved and Senseless."""
    session, away = await sessions.find(asking, client)
    if away:
        raise NotReached(f"{' and '.join(away)} did not answer")
    if session is None or session.kind != "durable":
        return None
    positions = [await _position(asking, stored, shard, what, to) for shard in range(asking.topology.n_shards)]
    missing: dict[str, None] = {}
    ask = Move(0, client.encode(), session.session_id, _VERBS[what], (filter or "").encode(), positions, by)
    told = await asking.session_of(session.home, ask, missing)
    if not isinstance(told, Moved):
        raise NotMoved(f"{' and '.join(missing)} did not answer in time: it may be done or not, and doing it again does no harm")
    if told.code == MOVE_DONE:
        return Done(client, what, filter, told.moved, told.closed)
    if told.code == MOVE_NO_SUBSCRIPTION:
        raise NotThere(f"{client} has no subscription {filter!r} whose messages come from the store")
    if told.code == MOVE_BUSY:
        raise NotMoved("too many sessions are being moved: ask again")
    if told.code == MOVE_LATE:
        raise NotMoved("its home did not answer in time: it may be done or not, and doing it again does no harm")
    raise NotMoved(f"the session of {client} had ended, or had begun anew, before it was its turn")


async def _position(asking: Asking, stored: Stored, shard: int, what: Verb, to: Target) -> int:
    """Up to where everything counts as read in this shard.  Raises NotReached and NotThere."""
    if to.shard is not None:
        if to.shard >= asking.topology.n_shards:
            raise NotThere(f"there is no shard {to.shard}: they go from 0 to {asking.topology.n_shards - 1}")
        if to.shard != shard:
            return UNMOVED
    missing: dict[str, None] = {}
    found = await stored.look(shard, partial(_found, what, to), missing)
    if found is None:
        raise NotReached(f"{' and '.join(missing)} did not answer")
    return found


def _found(what: Verb, to: Target, seen: Seen) -> int:
    """In the thread."""
    view, end = seen.view, seen.cut - 1
    if what == "purge":
        return end
    oldest = max(0, min([info.since for info in view.generations()], default=1) - 1)
    if to.shard is not None:
        return max(oldest, min(to.position, end))
    if to.wall_ms is None:
        return oldest if to.earliest else end
    # As wide as whoever reads a stretch of time takes it: rather a little more than something less.
    steady_ms = max(0, view.wall.earliest_steady_ms(to.wall_ms) - FIND_SLACK_MS)
    return max(oldest, min(view.position_at(steady_ms) - 1, end))
