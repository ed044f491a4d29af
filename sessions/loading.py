"""A session from its rows."""

from __future__ import annotations

from collections.abc import Sequence

from sessions import given
from sessions.losses import close_again
from sessions.ranges import RangeLog, Terms
from sessions.retained import RetainedJob
from sessions.seqno import Track
from sessions.session import Past, Session, Subscription
from sessions.state import State
from sessions.window import NO_GATE
from shards.frames import Place
from shards.rows import (
    ADDING,
    DELIVERY,
    LOSS,
    PLACE,
    PROGRESS,
    RANGE,
    SUBSCRIPTION,
    TO_COPY,
    LossRow,
    ProgressRow,
    SubscriptionRow,
    read_u64,
    unpack_as,
    unpack_place,
)  # fmt: skip


def restore(
    state: State, client: bytes, session_id: int, home: int, rows: Sequence[tuple[bytes, bytes, bytes]], moved: bool = False
) -> tuple[Session, list[Subscription]]:
    """The session, and subscriptions whose adding was interrupted.  moved: as in Attach."""
    families = (SUBSCRIPTION, PLACE, RANGE, PROGRESS, LOSS, DELIVERY, TO_COPY)
    by_family: dict[bytes, list[tuple[bytes, bytes]]] = {family: [] for family in families}
    for family, suffix, value in rows:
        by_family[family].append((suffix, value))
    progress = ProgressRow(1, 0, 1, 0, 0, 1, 0, [])
    for _, value in by_family[PROGRESS]:
        progress = unpack_as(ProgressRow, value)
    repeats = progress.online or moved
    one = Track(1, progress.committed1, progress.next1, progress.sent1)
    two = Track(2, progress.committed2, progress.next2, progress.sent2)
    ranges = RangeLog(one, two, progress.next_range, state.options.range_messages_max, state.options.range_streams_max)
    for suffix, value in sorted(by_family[RANGE]):
        ranges.restore(read_u64(suffix), value)
    session = Session(client, session_id, home, one, two, ranges)
    session.received = dict.fromkeys(map(abs, progress.received2), NO_GATE)
    two.done.update(dict.fromkeys([-number for number in progress.received2 if number < 0]))
    places: dict[tuple[int, int], Place] = {}
    for suffix, value in by_family[PLACE]:
        places[read_u64(suffix), suffix[8]] = unpack_place(value)
    to_copy = dict(by_family[TO_COPY])
    unfinished: list[Subscription] = []
    for suffix, value in sorted(by_family[SUBSCRIPTION]):
        fields = unpack_as(SubscriptionRow, value)
        terms = Terms(read_u64(suffix), fields.filter, fields.qos, fields.options, fields.identifier)
        sub = Subscription(session, terms, [position for _, position in fields.starts])
        if fields.state == ADDING:
            unfinished.append(sub)
            continue
        session.subs[fields.filter] = sub
        if suffix in to_copy:
            sub.to_copy = RetainedJob.of_row(sub, to_copy.pop(suffix))
        if fields.past:
            sub.ends = fields.past[0]
            sub.past = {shard: Past(*past) for shard, *past in fields.past[1]}
        for shard, start in enumerate(sub.starts):
            saved = places.get((sub.sub_id, shard))
            sub.add_cursor(saved if saved is not None else Place(start), saved).repeats = repeats
    # Of subscriptions that were removed by a release that does not know this row.
    session.rows.update(dict.fromkeys([(TO_COPY, suffix) for suffix in to_copy]))
    session.losses, session.untold = progress.losses, progress.untold
    for at in range(0, len(progress.again), 3):
        qos, number, count = progress.again[at : at + 3]
        session.again = {**session.again, qos: (number, count)}
    for _, value in by_family[LOSS]:
        session.newest_loss = unpack_as(LossRow, value)
    close_again(session)
    given.restore(session, by_family[DELIVERY], repeats)
    session.said_online = progress.online
    return session, unfinished
