"""What is said on one connection: hello, then requests one after the other, each with its answer or an error.

Decides what a request means and whether its token may ask it; how it is answered is in the modules beside this one. An error that a
request caused leaves the connection as it was. Whoever closes early is no error at all.

Always holds: nothing is answered before the token was shown, and each request, and each block of a scan, only as far as the token and the
rules allow by then; nothing is read above a cut that the shard told; payloads and tokens are in no log and in no error.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import structlog

from actors.reader import asked
from actors.reader.access import Holder, Keys
from actors.reader.appending import append
from actors.reader.leasing import lease
from actors.reader.limiting import Range, limit
from actors.reader.limits import Pace, Slots
from actors.reader.planning import behind, cuts, find, gaps, units, wall
from actors.reader.scanning import Scan, blocks
from actors.reader.shard_side import ShardAway, ShardSide
from actors.reader.surveying import retention, survey
from actors.reader.views import Seen, Views
from holdfast_spark.protocol import (
    BLOCK_BYTES_MAX,
    FRAME_BYTES_MAX,
    HELLO_BYTES_MAX,
    VERSION,
    WAIT_S,
    Code,
    Ended,
    Kind,
    Malformed,
    Refused,
    Tally,
    Wire,
    encode_block,
)
from shards.engine import StoreDamaged, StoreFailed
from shards.generations import GenerationDamaged, GenerationDropped
from shards.slots import SlotTable

REQUEST_BYTES_MAX = 16 << 20
SLOT_WITHIN_S = 5.0
RETRY_AFTER_S = 2
_PACED_BLOCK_S = 10
"""A block is paid for within this, however slow the pace and many the scans: who waits for it does so for 30 s."""
_PACED_BLOCK_MIN = 4096

log = structlog.get_logger(__name__)
Answer = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Desk:
    """What all connections share."""

    store: str
    """`site:incarnation`."""
    release: str
    views: Views
    side: ShardSide
    keys: Keys
    slots: Slots
    pace: Pace
    slot_within_s: float = SLOT_WITHIN_S

    @property
    def n_shards(self) -> int:
        return self.views.count

    @contextmanager
    def slot(self) -> Iterator[None]:
        if not self.slots.take(self.slot_within_s):
            found = f"{self.slots.count} scans are under way, which is as many as pipeline.max_scans allows"
            raise Refused(Code.BUSY, found, {"retry_after": RETRY_AFTER_S})
        try:
            yield
        finally:
            self.slots.give()

    def converse(self, wire: Wire) -> None:
        """All that is said on one connection. Raises WireError when it ends, or may not go on."""
        Conversation(self, wire).run()


class Conversation:
    """Life cycle: hello -> requests -> closed, by the caller."""

    def __init__(self, desk: Desk, wire: Wire) -> None:
        self._desk = desk
        self._wire = wire
        self._holder: Holder
        self._verbs: dict[str, Callable[[asked.Request], Answer]] = {
            "CUTS": self._cuts, "FIND": self._find, "LIMIT": self._limit, "PLAN": self._plan, "SCAN": self._scan,
            "LEASE": self._lease, "APPEND": self._append, "STATS": self._stats,
        }  # fmt: skip

    def run(self) -> None:
        try:
            self._holder = self._hello()
        except Refused as refused:
            self._wire.send_json(refused.as_json())
            return
        desk = self._desk
        self._wire.send_json({"hello": VERSION, "store": desk.store, "shards": desk.n_shards, "release": desk.release})
        while True:
            try:
                frame = self._wire.receive(begins_within_s=None, bytes_max=REQUEST_BYTES_MAX)
            except Ended:
                return
            except Malformed as error:
                # Where the next frame begins nobody knows.
                self._wire.send_json(asked.senseless(str(error)).as_json())
                raise
            try:
                request = frame.json()
            except Malformed as error:
                self._wire.send_json(asked.senseless(str(error)).as_json())
                continue
            try:
                self._look_again()
            except Refused as refused:
                self._wire.send_json(refused.as_json())
                return
            self._wire.send_json(self._answer(request))

    def _look_again(self) -> bool:
        """Whether the token may do something else by now. Raises Refused when it may do nothing."""
        holder = self._desk.keys.now(self._holder)
        if holder is None:
            found = f"the token {self._holder.name} was taken out of the configuration, and opens nothing any more"
            raise Refused(Code.TOKEN, found)
        changed, self._holder = holder is not self._holder, holder
        return changed

    def _hello(self) -> Holder:
        try:
            hello = self._wire.receive_json(begins_within_s=WAIT_S, bytes_max=HELLO_BYTES_MAX)
        except Malformed as error:
            raise asked.senseless(str(error)) from None
        version, token, who = hello.get("hello"), hello.get("token"), hello.get("who")
        if version != VERSION:
            found = f"the client speaks version {asked.shown(version)} of the protocol, and this reader version {VERSION}"
            raise Refused(Code.VERSION, found, {"version": VERSION})
        holder = self._desk.keys.of(token) if isinstance(token, str) else None
        if holder is None:
            log.warning("reader.token_refused", who=asked.shown(who))
            raise Refused(
                Code.TOKEN, "the token is not one of this broker: it is in pipeline.token of its data directory, or in pipeline.tokens"
            )
        log.debug("reader.connected", who=asked.shown(who), token=holder.name)
        return holder

    def _answer(self, request: asked.Request) -> Answer:
        verb = request.get("verb")
        began = time.monotonic()
        try:
            known = self._verbs.get(verb) if isinstance(verb, str) else None
            if known is None:
                raise asked.senseless(f"verb is {asked.shown(verb)}, and one of {', '.join(self._verbs)} is wanted")
            answer = known(request)
        except Refused as refused:
            answer = refused.as_json()
        except ShardAway as error:
            answer = Refused(Code.AWAY, str(error), {"shard": error.shard}).as_json()
        log.debug("reader.answered", verb=verb, ms=round(1000 * (time.monotonic() - began)), error=answer.get("error"))
        return answer

    # ------------------------------------------------------------------ from metadata

    def _cuts(self, request: asked.Request) -> Answer:
        seen = self._desk.views.fresh(range(self._desk.n_shards))
        return {"store": self._desk.store, "shards": {str(shard): self._of(shard, cuts, shard, seen[shard]) for shard in sorted(seen)}}

    def _find(self, request: asked.Request) -> Answer:
        times = request.get("ms")
        if not isinstance(times, list) or not all(isinstance(each, int) and 0 <= each < asked.POSITION_MAX for each in times):
            raise asked.senseless(f"ms is {asked.shown(times)}, and a list of times in ms since 1970 is wanted")
        seen = self._desk.views.fresh(range(self._desk.n_shards))
        return {
            "positions": {str(shard): self._of(shard, find, seen[shard], times) for shard in sorted(seen)},
            "behind": {str(shard): self._of(shard, behind, seen[shard], times) for shard in sorted(seen)},
        }

    def _limit(self, request: asked.Request) -> Answer:
        ranges = {shard: Range(*each) for shard, each in asked.ranges(request, self._desk.n_shards).items()}
        rows, size = asked.whole_or_none(request, "rows", 1), asked.whole_or_none(request, "bytes", 1)
        seen = self._upto({shard: each.end for shard, each in ranges.items()})
        try:
            found = limit(seen, ranges, rows, size)
        except GenerationDropped:
            # One went between two looks: then what is gone is not counted.
            found = limit(self._upto({shard: each.end for shard, each in ranges.items()}), ranges, rows, size)
        return {"to": {str(shard): found[shard] for shard in sorted(found)}}

    def _plan(self, request: asked.Request) -> Answer:
        n_shards = self._desk.n_shards
        ranges = asked.ranges(request, n_shards)
        filters, clients, only = asked.filters(request, empty=self._holder.all), asked.clients(request), asked.shards(request, n_shards)
        rows_per_unit = asked.whole(request, "rows_per_unit", 1)
        self._holder.check_filters(filters)
        if clients is not None:
            # What a client has published is at home with it.
            table = SlotTable.initial(n_shards)
            homes = frozenset(table.shard_of(client) for client in clients)
            only = homes if only is None else only & homes
        wanted = {shard: each for shard, each in ranges.items() if only is None or shard in only}
        seen = self._upto({shard: end for shard, (_, end) in wanted.items()})
        found: Answer = {"units": [], "gaps": []}
        for shard, (begin, end) in wanted.items():
            found["units"] += self._of(shard, units, shard, seen[shard], begin, end, rows_per_unit)
            found["gaps"] += self._of(shard, gaps, shard, seen[shard].view, begin, end, filters)
        return found

    # ------------------------------------------------------------------ messages

    def _scan(self, request: asked.Request) -> Answer:
        desk = self._desk
        store = asked.text(request, "store")
        if store != desk.store:
            found = f"the range is of the store {asked.shown(store)}, and this broker has the store {desk.store}"
            raise Refused(Code.STORE, found, {"found": store, "wanted": desk.store})
        shard = asked.shard(request, desk.n_shards)
        generation = asked.whole(request, "generation", 1)
        begin, end = asked.whole(request, "from"), asked.whole(request, "to")
        if begin > end:
            raise asked.senseless(f"from is {begin} and to {end}, and from must not be the greater one")
        scan = Scan(generation, begin - 1, end - 1, asked.filters(request, empty=self._holder.all), asked.clients(request))
        self._holder.check_filters(scan.filters)
        with desk.slot():
            seen = self._upto({shard: end})[shard]
            return self._send(shard, seen, scan)

    def _send(self, shard: int, seen: Seen, scan: Scan) -> Answer:
        view, pace = seen.view, self._desk.pace
        tally = Tally()
        bytes_max = BLOCK_BYTES_MAX
        if pace.bytes_per_s:
            bytes_max = min(bytes_max, max(_PACED_BLOCK_MIN, pace.bytes_per_s * _PACED_BLOCK_S // self._desk.slots.count))
        try:
            for rows in blocks(view, scan, bytes_max):
                crc, parts = encode_block(rows.runs, rows.positions, rows.lengths, rows.pieces)
                if wait_s := pace.wait_for(sum(map(len, parts))):
                    time.sleep(wait_s)
                if self._look_again():
                    self._holder.check_filters(scan.filters)
                self._wire.send(Kind.BLOCK, *parts)
                tally.add(rows.rows, rows.bytes, crc)
        except GenerationDamaged as error:
            raise _damaged(shard, scan.generation, str(error)) from error
        except GenerationDropped as error:
            lost = gaps(shard, view, scan.after + 1, scan.upto + 1, scan.filters, scan.generation)
            found = f"generation {scan.generation} of shard {shard} has been dropped, and what it held is gone"
            raise Refused(Code.LOST, found, {"gaps": lost}) from error
        except StoreDamaged as error:
            raise _damaged(shard, scan.generation, str(error)) from error
        except StoreFailed as error:
            raise ShardAway(shard, f"the files of shard {shard} cannot be read now: {error}") from error
        except LookupError as error:
            raise asked.senseless(f"shard {shard} has no generation {scan.generation}: {error}") from error
        return {"trailer": {**tally.as_json(), "wall": wall(view.wall, scan.after + 1, scan.upto + 1)}}

    # ------------------------------------------------------------------ of the shards themselves

    def _lease(self, request: asked.Request) -> Answer:
        return lease(self._desk.side, self._desk.n_shards, self._holder, request)

    def _append(self, request: asked.Request) -> Answer:
        # It has come, or is on its way, whatever the answer will be.
        bytes_max = FRAME_BYTES_MAX if self._holder.write else REQUEST_BYTES_MAX
        frame = self._wire.receive(begins_within_s=WAIT_S, bytes_max=bytes_max)
        return append(self._desk.side, self._desk.n_shards, self._holder, request, frame)

    def _stats(self, request: asked.Request) -> Answer:
        filters = asked.filters(request, empty=self._holder.all)
        self._holder.check_filters(filters)
        desk = self._desk
        with desk.slot():
            seen = desk.views.fresh(range(desk.n_shards))
            patterns = [row for shard in sorted(seen) for row in self._of(shard, survey, shard, seen[shard], filters)]
        listed = lease(desk.side, desk.n_shards, self._holder, {"do": "list"})
        return {"patterns": patterns, **listed, "retention": retention(desk.side, desk.n_shards)}

    # ------------------------------------------------------------------ within

    def _upto(self, wanted: Mapping[int, int]) -> dict[int, Seen]:
        """Never above the cut: what is there may be taken back."""
        seen = self._desk.views.upto(dict(wanted))
        for shard, end in wanted.items():
            if end <= seen[shard].cut:
                continue
            if self._desk.views.of_copies:
                # Told by a reader of another site, and by who leads now.
                raise ShardAway(shard, f"the cut of shard {shard} is {seen[shard].cut} here, and {end} was told somewhere: ask again")
            raise asked.senseless(f"to is {end} in shard {shard}, and its cut is {seen[shard].cut}: nobody reads above that")
        return seen

    @staticmethod
    def _of(shard: int, answers: Callable[..., Any], *arguments: Any) -> Any:
        """What is read from the files of a shard, or why it cannot be."""
        try:
            return answers(*arguments)
        except GenerationDropped as error:
            # Between two looks: the next sees what is left.
            raise ShardAway(shard, f"a generation of shard {shard} was dropped while it was looked at") from error
        except StoreDamaged as error:
            raise _damaged(shard, 0, str(error)) from error
        except StoreFailed as error:
            raise ShardAway(shard, f"the files of shard {shard} cannot be read now: {error}") from error


def _damaged(shard: int, generation: int, cause: str) -> Refused:
    found = f"what is stored in shard {shard} cannot be read: {cause}"
    return Refused(Code.DAMAGED, found, {"shard": shard, "generation": generation})
