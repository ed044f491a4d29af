"""Faults that are planted into the shipped cores at run time, to prove that the simulator sees what it is there to see.

Each one breaks one rule of the protocols, by changing the parts of a core after it was made; no shipped file knows of them.
They reach into private parts on purpose: what they replace is exactly the line that keeps the rule.
"""

from __future__ import annotations

from typing import Any

from gateway.core import GatewayCore
from mqtt.body import message_expiry
from sessions.bodies import Bodies
from sessions.core import SessionCore
from sessions.frames import Acked
from sessions.window import NO_GATE
from shards.core import ShardCore
from shards.events import Send
from shards.frames import Place, Polled
from shards.ids import conn_no
from shards.messages import header, published_at_of
from shards.rows import ROUTE, successor, u64, unpack_row
from tests.sim.planted_bundles import OF_BUNDLES
from tests.sim.planted_identities import OF_IDENTITIES
from tests.sim.planting import Planted

# ---------------------------------------------------------------------- the shard


class LateFrameStored(Planted):
    name = "late frame of an old connection stored"

    def shard(self, core: ShardCore) -> None:
        publishing: Any = core._publishing

        def make(publish: Any) -> Any:
            def late(draft: Any, entry: Any) -> Any:
                state = publishing._homes.live.get(entry.client)
                return publish(draft, entry._replace(conn=state.conn) if state is not None else entry)

            return late

        self.replace(publishing, "publish", make)


class LateDisconnect(Planted):
    name = "late DISCONNECT of an old connection fires the new one's will"

    def shard(self, core: ShardCore) -> None:
        homes: Any = core._homes

        def make(disconnect: Any) -> Any:
            def late(draft: Any, client: bytes, conn: int, *rest: Any) -> Any:
                state = homes.live.get(client)
                return disconnect(draft, client, state.conn if state is not None else conn, *rest)

            return late

        self.replace(homes, "disconnect", make)


class RouteCounted(Planted):
    name = "route counted instead of named"

    def __init__(self) -> None:
        super().__init__()
        self._gone: dict[tuple[int, int], bytes] = {}
        """Filters of removed routes, as a count on the disk would outlive its process."""

    def shard(self, core: ShardCore) -> None:
        routes: Any = core._routes
        gone, shard = self._gone, core.shard

        def make(remove: Any) -> Any:
            def counted(draft: Any, sub_id: int) -> None:
                row = draft.get(ROUTE + u64(sub_id))
                if row is not None:
                    gone[shard, sub_id] = unpack_row(row)[0]
                    remove(draft, sub_id)
                    return
                # A removal that is repeated takes the count of its filter down once more, whoever is left behind it.
                for key, value in draft.scan_range(ROUTE, successor(ROUTE), 10_000):
                    if unpack_row(value)[0] == gone.get((shard, sub_id)):
                        remove(draft, int.from_bytes(key[1:], "big"))
                        return

            return counted

        self.replace(routes, "remove", make)


class FoldLosesOne(Planted):
    name = "folding a row into the cut loses one message"

    def shard(self, core: ShardCore) -> None:
        tail: Any = core._tail

        def make(poll: Any) -> Any:
            def fold(ask: Any, watermark: int, *rest: Any) -> Polled:
                polled: Polled = poll(ask, watermark, *rest)
                if not ask.place.horizon or polled.place.horizon:
                    return polled
                at = tail.index_after(polled.place.cut)
                if at < len(tail.positions) and tail.positions[at] <= watermark:
                    return polled._replace(place=Place(tail.positions[at]))
                return polled

            return fold

        self.replace(core._reader, "poll", make)


class EndOfStreamEarly(Planted):
    name = "end of stream before the watermark"

    def shard(self, core: ShardCore) -> None:
        store: Any = core._store

        def make(streams: Any) -> Any:
            def ended(topic_filter: bytes, after: int) -> Any:
                sealed = [info.id for info in store.generations() if info.until is not None and info.since <= after]
                return [row for row in streams(topic_filter, after) if row[0] not in sealed]

            return ended

        self.replace(store, "streams", make)


class AnswerBeforeCommit(Planted):
    name = "PUBACK before the record is committed"

    def shard(self, core: ShardCore) -> None:
        shard: Any = core

        def make(submit: Any) -> Any:
            def hasty(effects: Any, wall_ms: int) -> None:
                submit(effects, wall_ms)
                released = shard._inbox.release(shard._submitted_upto, shard._retained.done)
                effects.extend(Send(link, answer) for link, answer in released)

            return hasty

        self.replace(shard, "_submit", make)


class ReadPastWatermark(Planted):
    name = "a poll reads past the watermark"

    def shard(self, core: ShardCore) -> None:
        shard: Any = core

        def make(poll: Any) -> Any:
            return lambda ask, watermark, *rest: poll(ask, max(watermark, shard._submitted_upto), *rest)

        self.replace(core._reader, "poll", make)


class RepeatTakenAgain(Planted):
    name = "after a restart the newest frame is taken again when it is repeated"

    def shard(self, core: ShardCore) -> None:
        for sender in core._inbox.senders():
            self.planted += 1
            sender.told = {slot: answer for slot, answer in sender.told.items() if answer.number != sender.last}
            sender.last = max(0, sender.last - 1)


class OldTokenCommits(Planted):
    name = "commit with an old owner token taken"

    def shard(self, core: ShardCore) -> None:
        owners: Any = core._owners

        def make(commit: Any) -> Any:
            return lambda draft, entry, *rest: commit(draft, entry._replace(token=owners.token), *rest)

        self.replace(owners, "commit", make)


class NumbersInRam(Planted):
    name = "connection numbers are not in the record"

    def shard(self, core: ShardCore) -> None:
        homes: Any = core._homes

        def number(draft: Any) -> Any:
            homes._counter += 1
            return conn_no(homes._counter, homes._shard)

        self.replace(homes, "_next_number", lambda _: number)


class DupFlagDecides(Planted):
    name = "a repetition is known by the DUP flag instead of the id"

    def shard(self, core: ShardCore) -> None:
        publishing: Any = core._publishing

        def make(publish: Any) -> Any:
            def judged(draft: Any, entry: Any) -> Any:
                state = publishing._homes.live.get(entry.client)
                if state is not None and entry.keep_ids:
                    incoming = publishing.incoming._ids(draft, entry.client, state)
                    for flags, packet_id in zip(entry.flags, entry.packet_ids, strict=True):
                        if flags & 4 and not flags & 8:
                            incoming.pop(packet_id, None)
                return publish(draft, entry)

            return judged

        self.replace(publishing, "publish", make)


class IdsEndWithConnection(Planted):
    name = "incoming QoS 2 ids are forgotten with the connection"

    def shard(self, core: ShardCore) -> None:
        def make(hold: Any) -> Any:
            def forgetful(client: bytes, state: Any) -> None:
                state.incoming = {}
                hold(client, state)

            return forgetful

        self.replace(core._homes, "_hold", make)


# ---------------------------------------------------------------------- the session actor


class RangeAfterExpiry(Planted):
    name = "range re-assigned after an expiry"

    def session(self, core: SessionCore) -> None:
        reading: Any = core._reading
        world = self.world

        def expired(value: bytes) -> bool:
            expiry_s = message_expiry(header(value)[4])
            return expiry_s is not None and published_at_of(value) + expiry_s * 1000 <= world.steady_ms

        def make(again: Any) -> Any:
            def shifted(session: Any, reread: Any) -> None:
                kept = [value for value in reread.values if not expired(value)]
                found = reread.range
                if len(kept) < len(reread.values) and not reread.lost:
                    # The numbers are given anew to what is left; those that are over are closed.
                    _, firsts = _select(kept, session, found)
                    one, two = _counts(firsts)
                    for track, first, old, new in (
                        (session.one, found.first1, found.count1, one),
                        (session.two, found.first2, found.count2, two),
                    ):
                        for number in range(first + new, first + old):
                            if not track.is_finished(number) and number not in session.received:
                                session.finish_two(number) if track is session.two else track.finish(number)
                    found.count1, found.count2, reread.values = one, two, kept
                again(session, reread)
                if not kept:
                    session.ranges.progressed1()
                    session.ranges.progressed2()

            return shifted

        self.replace(reading, "_queue_again", make)


def _select(values: list[bytes], session: Any, found: Any) -> Any:
    return Bodies(values).select(range(len(values)), session.client, found.terms, retained=found.shard < 0) if values else ([], b"")


def _counts(firsts: bytes) -> tuple[int, int]:
    return firsts.count(0x32) + firsts.count(0x33), firsts.count(0x34) + firsts.count(0x35)


class PubrelBeforeCommit(Planted):
    name = "PUBREL before rec is committed"

    def session(self, core: SessionCore) -> None:
        state: Any = core._state

        def make(pubrec: Any) -> Any:
            def hasty(session: Any, packet_ids: list[int]) -> Any:
                fine = pubrec(session, packet_ids)
                while session.awaiting.releases:
                    _, waiting = session.awaiting.releases.pop(0)
                    for packet_id in waiting:
                        session.received[session.two.number_of(packet_id)] = NO_GATE
                    state.outputs[session.link].pubrel(session.conn, waiting)
                return fine

            return hasty

        self.replace(core._acks, "_pubrec", make)


class RouteRemovedEarly(Planted):
    name = "route removed too early"

    def session(self, core: SessionCore) -> None:
        def make(removed: Any) -> Any:
            def hasty(session: Any, sub: Any) -> None:
                before = len(session.awaiting.removals)
                removed(session, sub)
                while len(session.awaiting.removals) > before:
                    session.awaiting.removals.pop()[1]()

            return hasty

        self.replace(core._subscriptions, "_put_removed", make)


class OldAckCounted(Planted):
    name = "ack of an old connection counted"

    def session(self, core: SessionCore) -> None:
        owner: Any = core
        clients: dict[int, bytes] = {}

        def make(handled: Any) -> Any:
            def counted(link: int, frame: Any) -> None:
                client = getattr(frame, "client", None)
                if client is not None:
                    clients[frame.conn] = client
                state = owner._state
                if isinstance(frame, Acked) and frame.conn not in state.by_conn:
                    session = state.sessions.get(clients.get(frame.conn, b""))
                    if session is not None and session.attached:
                        owner._acks.acked(session, frame)
                        return
                handled(link, frame)

            return counted

        self.replace(owner, "_from_gateway", make)


class ReplacedOwnerGoesOn(Planted):
    name = "a replaced session actor attaches what it has in memory"

    def session(self, core: SessionCore) -> None:
        self.replace(core._attaching, "attach", lambda attach: lambda link, frame: attach(link, frame._replace(owner=0)))


class PublishBeforeCommit(Planted):
    name = "QoS 2 PUBLISH before its range is committed"

    def session(self, core: SessionCore) -> None:
        def make(queue: Any) -> Any:
            return lambda *args: queue(*args[:8], NO_GATE, *args[9:])

        self.replace(core._reading, "_queue", make)


class HoleIgnored(Planted):
    name = "a hole in the feed is ignored"

    def session(self, core: SessionCore) -> None:
        for feed in core._reading.feeds:

            def make(receive: Any, feed: Any = feed) -> Any:
                def blind(frame: Any) -> None:
                    receive(frame._replace(after=min(frame.after, feed.upto)))

                return blind

            self.replace(feed, "receive", make)


class SubackEarly(Planted):
    name = "SUBACK after the first shard's answer"

    def session(self, core: SessionCore) -> None:
        subscriptions: Any = core._subscriptions
        state: Any = core._state

        def make(routed: Any) -> Any:
            def hasty(adding: Any, shard: int, position: int, replayed: Any) -> None:
                if adding.positions:
                    return
                count, state.n_shards = state.n_shards, 1
                try:
                    routed(adding, shard, position, replayed)
                finally:
                    state.n_shards = count

            return hasty

        self.replace(subscriptions, "_routed", make)


# ---------------------------------------------------------------------- the gateway


class SessionLossIgnored(Planted):
    name = "connections stay open when their session actor is lost"

    def gateway(self, core: GatewayCore) -> None:
        connecting: Any = core._connecting

        def ignored(session: int) -> None:
            connecting._state.sessions_linked.pop(session, None)

        self.replace(connecting, "session_lost", lambda _: ignored)


ALL: list[type[Planted]] = [
    LateFrameStored, LateDisconnect, RouteCounted, RangeAfterExpiry, FoldLosesOne, PubrelBeforeCommit, RouteRemovedEarly, OldAckCounted,
    EndOfStreamEarly, AnswerBeforeCommit, ReadPastWatermark, RepeatTakenAgain, NumbersInRam, DupFlagDecides, IdsEndWithConnection,
    PublishBeforeCommit, SubackEarly, SessionLossIgnored, *OF_IDENTITIES, *OF_BUNDLES,
]  # fmt: skip
"""Each is caught within 500 seeds; tests hold it."""

RARE: list[type[Planted]] = [OldTokenCommits, ReplacedOwnerGoesOn, HoleIgnored]
"""These need two owners at once, or a hole in a feed, at the right moment: the hunt shows them, and nothing is promised of them."""
