"""What a session actor says of itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from actors.metrics.names import counters, gauges

if TYPE_CHECKING:
    from actors.metrics.sheet import Sheet

COUNTERS: Final = counters("holdfast_session", "session", {
    "attached": "Connections that got their durable session.",
    "attach_refused": "Connections that did not.",
    "resumed_in_ram": "Of those, the ones whose session was still in memory.",
    "taken_over": "Connections that took a session over from an older connection.",
    "commits": "Changes of sessions that were committed.",
    "commits_refused": "Changes refused by the home, because another owner had the sessions.",
    "owner_replaced": "Times that another owner got the sessions.",
    "assigned": "Messages given to sessions.",
    "sent": "Messages sent to connections of durable sessions.",
    "sent_again": "Of those, the ones that had been sent before (DUP).",
    "acknowledged": "Messages that clients have acknowledged.",
    "acks_unknown": "Acknowledgements of nothing that was under way.",
    "acks_wrong": "Acknowledgements of another kind than was due.",
    "lost": "Messages that were given to sessions and cannot be delivered any more, as what they were stored in is gone.",
    "losses": "Losses of sessions: of such messages, and of what was gone before it was read.",
    "ranges_differ": "Ranges that did not read the same again: a fault of ours, or of the disk.",
    "feed_missed": "Times that a session had no room for what came live from the store, and reads it later.",
    "polls": "Reads from shards.",
    "polls_idle": "Of those, the ones without a cause.",
    "stalls_healed": "Subscriptions that had got nothing for `idle_poll_interval` though there was something: a fault of ours, and mended.",
    "asked_again": "Questions to shards that were not answered for `idle_poll_interval`, and were asked once more.",
    "dead_letters": "Messages that were sent again once too often, and published to the topic of dead letters (`redelivery_limit`).",
    "moved": "Places of sessions that somebody has moved by hand (skip, rewind, purge).",
    "closed": "Messages that sessions had been given, closed by that without having been delivered.",
    "subscribed": "Filters that sessions have subscribed to.",
    "subscribe_late": "SUBACKs sent although a shard was away.",
    "unsubscribed": "Filters that sessions have unsubscribed from.",
    "replays_ended": "Subscriptions that were made for history alone (`replay-until`), and have read it.",
    "retained": "Retained messages given to sessions.",
    "routes_removed": "Routes that were removed.",
    "routes_collected": "Routes that no subscription stood behind, found by the sweep: a fault of ours, and mended.",
    "rerouted": "Times that all routes of a home were added again, as leadership of a shard was forced.",
    "group_given": "Messages that were given to members of durable shared groups, once for each member.",
    "group_taken_back": "Times that a member of one was away for long, and its home was asked for what it had.",
    "memory_attached": "Connections that got their session in memory.",
    "memory_ended": "Sessions in memory that ended.",
    "memory_taken": "Messages that sessions in memory took.",
    "memory_dropped_queue_full": "Messages dropped because the queue of such a session was full (`max_mqueue_len`, `_bytes`).",
    "memory_dropped_all_full": "Messages dropped because all sessions in memory together were full (`mqtt.memory_bytes_max`).",
    "memory_dropped_expired": "Messages of such sessions whose Message Expiry Interval was over.",
    "memory_forwards_stale": "Messages of connections that had been replaced.",
    "memory_subacks_unconfirmed": "SUBACKs sent although a gateway had not confirmed the filters in time.",
    "memory_handed_on": "Messages of shared groups that went to a gateway, as there was no member here.",
    "memory_shared_lost": "Messages of shared groups for which there was no other member.",
})  # fmt: skip
GAUGES: Final = gauges("holdfast_session", "session", {
    "loaded": "Durable sessions in memory, with a connection or just without one.",
    "online": "Durable sessions with a connection.",
    "shards_away": "Shards to which there is no link.",
})  # fmt: skip
METRICS: Final = (*COUNTERS.values(), *GAUGES.values())


def tell(sheet: Sheet, session: int, counted: Mapping[str, int]) -> None:
    """counted: actors.session.SessionServer.counters."""
    name = str(session)
    for key, metric in COUNTERS.items():
        sheet.count(metric, counted[key], name)
    for key, metric in GAUGES.items():
        sheet.level(metric, counted[key], name)
