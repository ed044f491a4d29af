"""The bounds of a session actor and what it counts.

Where the values come from (configuration) and where the counts go (metrics) is the shell's.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """Every bound of the core, named; units last."""

    batch_size: int = 100
    """Messages that one poll returns at most."""
    max_inflight: int = 1024
    """QoS 1 and 2 messages on their way to one client; its own Receive Maximum may be less."""
    max_subscriptions: int = 1 << 31
    lazy_commit_ms: int = 20
    """The longest that QoS 1 assignments wait to be committed.  With one message at a time to each of many sessions, writing
    them at once costs as much as delivering them, and most are acknowledged before that."""
    heartbeat_ms: int = 5_000
    """The longest that acknowledgements of QoS 1 alone wait to be committed."""
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
    """Messages of a dropped generation that were assigned and can not be delivered any more."""
    ranges_differ: int = 0
    """Ranges that did not read the same again: a fault of ours or of the disk, counted as lost."""
    feed_missed: int = 0
    """A session had no room for a feed frame, or the feed had a hole: it polls."""
    polls: int = 0
    subscribed: int = 0
    subscribe_late: int = 0
    unsubscribed: int = 0
    retained: int = 0
    routes_removed: int = 0
