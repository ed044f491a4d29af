"""The bounds of a session actor and what it counts.

Where the values come from (configuration) and where the counts go (metrics) is the shell's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from shards.options import STRATEGIES


class ReadOverrides(NamedTuple):
    """What a zone says of reading; None: what is said for everybody."""

    batch_size: int | None = None
    idle_poll_ms: int | None = None
    renew_streams_ms: int | None = None


NO_OVERRIDES = ReadOverrides()
BY_STREAM, ROUND_ROBIN, BY_PUBLISHER, BY_TOPIC = STRATEGIES
"""Which member of a shared group gets a message (sessions.group)."""


class Reads(NamedTuple):
    """How a subscription reads.  batch_size: messages that one poll returns at most.  idle_poll_ms: after how long without a
    message from a shard it asks by itself.  renew_streams_ms: how long the shard goes on with the streams that it matched."""

    batch_size: int = 512
    idle_poll_ms: int = 10_000
    renew_streams_ms: int = 30_000

    def changed_by(self, by: ReadOverrides) -> Reads:
        if by == NO_OVERRIDES:
            return self
        return Reads(
            self.batch_size if by.batch_size is None else by.batch_size,
            self.idle_poll_ms if by.idle_poll_ms is None else by.idle_poll_ms,
            self.renew_streams_ms if by.renew_streams_ms is None else by.renew_streams_ms,
        )


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """Every bound of the core, named; units last."""

    batch_size: int = 512
    """Messages that one poll returns at most.  Of each poll, its way there and back is paid once."""
    idle_poll_ms: int = 10_000
    renew_streams_ms: int = 30_000
    topic_zones: tuple[tuple[tuple[bytes, ...], ReadOverrides], ...] = ()
    """What is different for subscriptions whose filter begins with one of some prefixes: the first that fits."""
    store_qos0: bool = False
    """Subscriptions granted QoS 0 have a route, so that their messages come from the store."""
    max_inflight: int = 1024
    """QoS 1 and 2 messages on their way to one client; its own Receive Maximum may be less."""
    max_subscriptions: int = 1 << 31
    redelivery_limit: int = 0
    """How often a delivery is sent again to a client that ends each connection without acknowledging it; 0: for ever."""
    dead_letter_topic: bytes = b"dead-letters"
    """Where its message is published then."""
    lazy_commit_ms: int = 20
    """The longest that QoS 1 assignments wait to be committed.  With one message at a time to each of many sessions, writing
    them at once costs as much as delivering them, and most are acknowledged before that."""
    heartbeat_ms: int = 5_000
    """The longest that acknowledgements of QoS 1 alone wait to be committed."""
    gc_interval_ms: int = 600_000
    """From the end of one look for routes that nobody knows to the next."""
    unsent_bytes_max: int = 8 << 20
    """Bytes that were read for one session and wait for its window.  The bound in count is its window and one batch."""
    poll_bytes_max: int = 1 << 20
    deliver_bytes_max: int = 1 << 20
    """A Deliver frame is closed when the bodies in it reach this."""
    route_wait_ms: int = 10_000
    """How long a SUBSCRIBE waits for a shard that is away (PROTOCOLS 7)."""
    retry_ms: int = 1_000
    """After this long a shard is asked again what it could not answer."""
    range_messages_max: int = 512
    range_streams_max: int = 64
    """Adjacent ranges grow together up to these bounds, so that rows stay few."""
    commit_sessions_max: int = 1_000
    """Sessions whose rows go into one request; the others are in the next one."""
    routes_per_request_max: int = 1_000
    group_strategy: str = BY_STREAM
    group_given_max: int = 100
    """What one member of a shared group has at most of it, unfinished."""
    group_inflight_max: int = 10_000
    group_bytes_max: int = 16 << 20
    """What a group reads ahead and has under way: messages, and bytes of them, which are in memory."""
    groups_bytes_max: int = 256 << 20
    """Of many groups each has its part of this."""
    redelivery_after_ms: int = 10_000
    """How long a member may be away before another one gets what it has not acknowledged, at QoS 1."""
    queue_count_max: int = 1_000
    queue_bytes_max: int = 8 << 20
    """What waits for one session in memory; then the oldest is dropped."""
    memory_bytes_max: int = 256 << 20
    """What all sessions in memory hold, waiting or under way, counted once for each; then nothing more may wait."""
    suback_wait_ms: int = 1_000
    """The longest a SUBACK of a session in memory waits for gateways to confirm what they were told (PROTOCOLS 9)."""
    forget_after_ms: int = 10_000
    """Added to the expiry of a session in memory: its home counts from somewhat later, or earlier, and is the one that decides."""
    several_sites: bool = False
    """A shard may have been begun anew by force, while this actor's home went on."""
    publishers_max: int = 100_000
    """Publishers whose newest connection number is remembered."""

    @property
    def reads(self) -> Reads:
        """For everybody."""
        return Reads(self.batch_size, self.idle_poll_ms, self.renew_streams_ms)

    def reads_of(self, connection: Reads, filter: bytes) -> Reads:
        """For a subscription of a connection: the zone of its topics comes before that of the connection."""
        for prefixes, overrides in self.topic_zones:
            if filter.startswith(prefixes):
                return connection.changed_by(overrides)
        return connection


@dataclass(slots=True)
class Counters:
    """What happened since the start; only grows.  The shell exports every field as a metric of the same name."""

    attached: int = 0
    attach_refused: int = 0
    resumed_in_ram: int = 0
    """Attached again without loading rows: the session had not been forgotten yet."""
    taken_over: int = 0
    commits: int = 0
    commits_refused: int = 0
    owner_replaced: int = 0
    assigned: int = 0
    """Messages given to sessions; those read again after a reconnect are not counted twice."""
    sent: int = 0
    sent_again: int = 0
    acknowledged: int = 0
    acks_unknown: int = 0
    acks_wrong: int = 0
    lost: int = 0
    """Messages that were assigned and can not be delivered any more, as what they were stored in is gone."""
    losses: int = 0
    """Losses of sessions, of such messages and of what was gone before it was read, which nobody can count."""
    ranges_differ: int = 0
    """Ranges that did not read the same again: a fault of ours or of the disk, counted as lost."""
    feed_missed: int = 0
    """A session had no room for a feed frame, or the feed had a hole: it polls."""
    polls: int = 0
    polls_idle: int = 0
    """Asked without a cause, because nothing had been heard for a while."""
    stalls_healed: int = 0
    """Subscriptions that had got nothing though there was something, and asked by themselves: a fault of ours, mended."""
    asked_again: int = 0
    """Questions to shards that were not answered for a while, and were asked once more."""
    dead_letters: int = 0
    """Messages that were sent in vain once too often, and published to the topic of dead letters."""
    moved: int = 0
    """Places that somebody has moved by hand."""
    closed: int = 0
    """Messages that sessions had been given, closed by that without having been delivered."""
    subscribed: int = 0
    subscribe_late: int = 0
    unsubscribed: int = 0
    replays_ended: int = 0
    """Subscriptions that were made for history alone, and have read it."""
    retained: int = 0
    routes_removed: int = 0
    routes_collected: int = 0
    """Routes that no subscription stood behind, found by the sweep: a fault of ours, mended."""
    rerouted: int = 0
    """Times that all routes of a home were added again, as leadership of a shard was forced."""
    group_given: int = 0
    """Messages that were given to members of shared groups."""
    group_taken_back: int = 0
    """How often a member that was away for long was asked for what it has."""
    memory_attached: int = 0
    memory_ended: int = 0
    memory_taken: int = 0
    """Messages that sessions in memory took, once for each; retained ones not counted."""
    memory_dropped_queue_full: int = 0
    """The oldest message of a session in memory, dropped because what waits for it was over its bounds."""
    memory_dropped_all_full: int = 0
    """A message that would have had to wait, dropped because all sessions in memory together were over theirs."""
    memory_dropped_expired: int = 0
    memory_forwards_stale: int = 0
    memory_subacks_unconfirmed: int = 0
    """SUBACKs sent although a gateway had not confirmed the filters in time."""
    memory_handed_on: int = 0
    """Messages of shared groups without a member here that were handed to a gateway."""
    memory_shared_lost: int = 0
    """Those for which there was no gateway either."""
