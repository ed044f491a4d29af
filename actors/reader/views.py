"""The stores of all shards as the reader sees them: one view each, as new as the last cut that the shard told.

Opened when they are first wanted. A shard that does not answer, or whose files cannot be followed, is tried for a while and then away.

Of several sites the cut is that of whoever leads the shard, and what is read is the copy of this site (actors.reader.copies): it is given
out when the copy has come to it, a moment later. So whichever site is asked, and whoever leads, what is below a cut stays as it is.

For threads; the views look after themselves (shards.view).

Always holds: a cut that is given out was told by who leads the shard, and its view has caught up with it.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import structlog

from actors.reader.copies import Copies
from actors.reader.counted import Counted
from actors.reader.shard_side import AWAY_AFTER_S, ShardAway, ShardSide
from shards.engine import StoreFailed
from shards.generations import GenerationInfo
from shards.queries import Cut, CutFound
from shards.store import Counts
from shards.view import StoreBehind, StoreView

_PAUSE_S = 0.2
_BEHIND_PAUSE_S = 0.02
"""A copy hears what is committed with the next message of its leader."""
_ANEW_AFTER_S = 2.0
"""A copy that is behind for so long is opened anew: it may be the view that is."""
_TIME_MARK, _TIME_MARKS_END = bytes(7) + b"\1", bytes(7) + b"\2"
_LAST = (1 << 63) - 1
log = structlog.get_logger(__name__)


class View(StoreView):
    """With what only the reader asks."""

    def streams_known(self, generation: int) -> int | None:
        """How many streams a generation has; None while nobody has asked for its structure, which takes long to load."""
        with self._lock:
            generations = self._now()[1]
            return None if generations.edges(generation) is None else len(generations.layout(generation).structure)

    def total(self, generation: int) -> Counts | None:
        """What a generation holds; None: nobody has counted."""
        with self._lock:
            return self._now()[2].counts(generation)

    def disk_bytes(self, generation: int) -> int:
        """What the files of a generation take, as RocksDB counts."""
        with self._lock:
            return self._now()[0].family_bytes(generation)

    def mark_at(self, steady_ms: int) -> int | None:
        """The first time mark of at least this time: nothing from there on was published much earlier. None: there is none yet."""
        with self._lock:
            engine, generations, _ = self._now()
            found: list[int] = []
            for info in generations.infos():
                start = _TIME_MARK
                while marks := engine.scan(info.id, start, _TIME_MARKS_END, 1000):
                    late = [int.from_bytes(key[8:], "big") for key, value in marks if int.from_bytes(value, "big") >= steady_ms]
                    if late:
                        found.append(late[0])
                        break
                    start = marks[-1][0] + b"\0"
        return min(found, default=None)

    def counted(self, info: GenerationInfo) -> Counted | None:
        """Raises GenerationDropped."""
        with self._lock:
            total = self._now()[2].counts(info.id)
            return None if total is None else Counted(info, total, self._now()[2].marks(info.id, -1, _LAST))


class Seen(NamedTuple):
    """Everything below the cut is in the view, and nothing changes there any more."""

    view: View
    cut: int


class Views:
    def __init__(
        self,
        paths: Sequence[Path],
        scratch: Path,
        side: ShardSide,
        within_s: float = AWAY_AFTER_S,
        sleep: Callable[[float], None] = time.sleep,
        copies: Copies | None = None,
    ) -> None:
        """paths: the store of each shard. scratch: a directory of our own; what an earlier reader left in it goes. copies: of this site,
        when the stores are copies that several sites have."""
        self._paths = list(paths)
        self._scratch = scratch
        self._side = side
        self._within_s = within_s
        self._sleep = sleep
        self._copies = copies
        self._locks = [threading.Lock() for _ in paths]
        self._seen: list[Seen | None] = [None for _ in paths]
        shutil.rmtree(scratch, ignore_errors=True)

    @property
    def count(self) -> int:
        return len(self._paths)

    def fresh(self, shards: Iterable[int]) -> dict[int, Seen]:
        """As of now. Raises ShardAway."""
        shards = list(shards)
        for shard in shards:
            if self._copies is not None and (why := self._copies.missing(shard)):
                raise ShardAway(shard, why)
        told = self._side.query(shards, Cut())
        return {shard: self._caught_up(shard, found) for shard, found in told.items() if isinstance(found, CutFound)}

    def upto(self, wanted: dict[int, int]) -> dict[int, Seen]:
        """New enough for these positions, shard by shard; where a cut is below that all the same, it is the newest. Raises ShardAway."""
        behind = [shard for shard, position in wanted.items() if (seen := self._seen[shard]) is None or seen.cut < position]
        fresh = self.fresh(behind) if behind else {}
        return {shard: fresh[shard] if shard in fresh else self._known(shard) for shard in wanted}

    @property
    def of_copies(self) -> bool:
        """A cut that is lower than one that was told may come from who leads no more; the next one is not."""
        return self._copies is not None

    def close(self) -> None:
        for shard, lock in enumerate(self._locks):
            with lock:
                if (seen := self._seen[shard]) is not None:
                    self._seen[shard] = None
                    seen.view.close()
        shutil.rmtree(self._scratch, ignore_errors=True)

    # ------------------------------------------------------------------ within

    def _known(self, shard: int) -> Seen:
        seen = self._seen[shard]
        assert seen is not None, f"shard {shard} was seen before"
        return seen

    def _caught_up(self, shard: int, found: CutFound) -> Seen:
        began = time.monotonic()
        anew_s = _ANEW_AFTER_S
        with self._locks[shard]:
            while True:
                waited_s = time.monotonic() - began
                try:
                    return self._catch_up(shard, found, anew=waited_s >= anew_s)
                except StoreFailed as error:
                    if waited_s > self._within_s:
                        log.warning("reader.view_failed", shard=shard, cause=str(error))
                        raise ShardAway(shard, f"the files of shard {shard} cannot be followed: {error}") from error
                    behind = isinstance(error, StoreBehind)
                if waited_s >= anew_s:
                    anew_s += _ANEW_AFTER_S
                self._sleep(_BEHIND_PAUSE_S if behind else _PAUSE_S)

    def _catch_up(self, shard: int, found: CutFound, anew: bool) -> Seen:
        seen = self._seen[shard]
        if seen is None:
            scratch = self._scratch / str(shard)
            scratch.mkdir(parents=True, exist_ok=True)
            view = View(str(self._paths[shard]), str(scratch))
        else:
            view = seen.view
        try:
            if self._copies is None:
                view.catch_up(found.sequence, found.written)
            else:
                view.follow(found.watermark, found.written, anew)
        except BaseException:
            if seen is None:
                view.close()
            raise
        # Two threads may have asked, and the one with the older answer come last.
        seen = self._seen[shard] = Seen(view, max(found.watermark + 1, 0 if seen is None else seen.cut))
        return seen
