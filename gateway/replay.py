"""What a SUBSCRIBE says about the past, in user properties (docs/replay.md), in the words of session actors.

Nothing here is looked up: a time stays a time, which each shard finds for itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from sessions.frames import Replay
from sessions.positions import MARK, decode_position
from shards.entries import EARLIEST, LATEST, NO_END, PLACE, STEADY, WALL

FROM, UNTIL, POSITIONS = "replay-from", "replay-until", "replay-positions"
KEPT_SINCE: Final = "replay-kept-since"
"""In a SUBACK: something of what was asked for is gone, and what was published from this time on is not."""
_PREFIX: Final = "replay-"
_TIME = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)", re.ASCII)
_AGO = re.compile(r"-(\d{1,12})(ms|s|m|h|d)", re.ASCII)
_MS_OF_UNIT: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_SHOWN: Final = 60


class Wanted(NamedTuple):
    """replay None: the subscription is not moved.  positions: messages carry theirs."""

    replay: Replay | None = None
    positions: bool = False

    @property
    def ends(self) -> bool:
        return self.replay is not None and self.replay.until != NO_END


NOTHING: Final = Wanted()


class NotUnderstood(ValueError):
    """One sentence for whoever wrote the SUBSCRIBE."""


def wanted(properties: Iterable[tuple[str, str]], steady_ms: int, n_shards: int) -> Wanted:
    """steady_ms: now.  Raises NotUnderstood."""
    said: dict[str, str] = {}
    for name, value in properties:
        if not name.startswith(_PREFIX):
            continue
        if name not in (FROM, UNTIL, POSITIONS):
            raise NotUnderstood(f"{name[:_SHOWN]} is no property of a replay: {FROM}, {UNTIL} and {POSITIONS} are")
        if name in said:
            raise NotUnderstood(f"{name} is there twice")
        said[name] = value
    if not said:
        return NOTHING
    positions = said.get(POSITIONS, "false")
    if positions not in ("true", "false"):
        raise NotUnderstood(f"{POSITIONS} is true or false, not {positions[:_SHOWN]}")
    if FROM not in said:
        if UNTIL in said:
            raise NotUnderstood(f"{UNTIL} needs a {FROM}")
        return Wanted(None, positions == "true")
    until, until_value = NO_END, 0
    if UNTIL in said:
        until, until_value = _moment(UNTIL, said[UNTIL], steady_ms, {"latest": LATEST})
    if said[FROM].startswith(MARK):
        try:
            since_ms, places = decode_position(said[FROM], n_shards)
        except ValueError as error:
            raise NotUnderstood(f"{FROM}: {error}") from None
        return Wanted(Replay(PLACE, since_ms, until, until_value, places), positions == "true")
    since, since_value = _moment(FROM, said[FROM], steady_ms, {"latest": LATEST, "earliest": EARLIEST})
    return Wanted(Replay(since, since_value, until, until_value), positions == "true")


def _moment(name: str, text: str, steady_ms: int, words: dict[str, int]) -> tuple[int, int]:
    if text in words:
        return words[text], 0
    ago = _AGO.fullmatch(text)
    if ago is not None:
        return STEADY, max(1, steady_ms - int(ago[1]) * _MS_OF_UNIT[ago[2]])
    if _TIME.fullmatch(text):
        try:
            # Times are whole milliseconds: what lies between two belongs to the later one.
            return WALL, max(1, -((_EPOCH - datetime.fromisoformat(text.upper())) // _MILLISECOND))
        except ValueError:
            pass
    kinds = ", ".join([*words, "a time as 2026-11-20T10:00:00Z, or how long ago as -2h"])
    raise NotUnderstood(f"{name} is {kinds}, not {text[:_SHOWN]}")


def shown(wall_ms: int) -> str:
    """A time of RFC 3339."""
    return (_EPOCH + wall_ms * _MILLISECOND).isoformat(timespec="milliseconds").replace("+00:00", "Z")
