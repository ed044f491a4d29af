"""The bounds of a gateway and what it counts when it meets them.

Where the values come from (configuration) and where the counts go (metrics) is the shell's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gateway.zones import Zone
from shards.ids import EXPIRY_NEVER
from shards.persistence import Persistence


@dataclass(frozen=True, slots=True)
class Options:
    """Every bound of the core, named; units last."""

    session_expiry_s: int = 7 * 86_400
    """Session expiry of a 3.1.1 client that connects with clean session 0: it cannot say one itself."""
    session_expiry_max_s: int = EXPIRY_NEVER
    durable: bool = True
    """Whether a new session that outlives its connection is durable, or lives in the memory of its session actor."""
    zones: tuple[Zone, ...] = ()
    """A connection is in the first that holds it."""
    connect_wait_ms: int = 5_000
    """From the accepted socket to CONNECT."""
    auth_wait_ms: int = 5_000
    """For our part of finding out who somebody is; the client has connect_wait_ms for each of its answers."""
    anonymous: Mapping[str, str] = field(default_factory=dict)
    """Who comes in without saying who it is, by listener: "no", "yes", or "loopback", which is meant where nothing is said."""
    adopt_anonymous: bool = False
    """Whether a user gets a session that is the anonymous one's."""
    rights_cache_ms: int = 900
    """How long a plugin's word about a right counts, where it has one."""
    bridge_token: bytes = b""
    """What bridges show of themselves (gateway.bridges); empty: none comes in."""
    store: str = ""
    """Its id, which bridges of other brokers are told (gateway.bridges); empty: it is not known."""
    plugin: bool = False
    """Whether there is a plugin, which is asked about those too who say nothing."""
    home_wait_ms: int = 10_000
    """From when it is known who it is to CONNACK (PROTOCOLS 5): the home shard and the session actor have to answer within this."""
    suback_wait_ms: int = 1_000
    """The longest a SUBACK waits for other gateways (PROTOCOLS 9)."""
    stop_wait_ms: int = 5_000
    keep_alive_max_s: int = 0
    """0: a client's keep alive is never shortened."""
    receive_maximum_in: int = 1_024
    """QoS 1 and 2 messages of one publisher that are not answered yet."""
    awaiting_rel_max: int = 65_535
    """QoS 2 messages of one publisher that wait for its PUBREL; one more closes the connection with 0x93."""
    await_rel_ms: int = 0
    """After this one does not wait any more, and its id is free; 0: never."""
    retain: bool = True
    """Whether messages with RETAIN are taken."""
    store_qos0: bool = False
    persistence: Persistence | None = None
    """Which messages are not stored for durable sessions; None: all of QoS 1 and 2 are, with store_qos0 those of QoS 0 too."""
    filter_levels_max: int = 128
    upgrade_qos: bool = False
    """Whether new subscriptions get everything at the QoS that they are granted."""
    packet_bytes_max: int = 1 << 20
    """Announced to MQTT 5 clients; the shell's decoder enforces it."""
    topic_alias_maximum: int = 32
    topic_alias_max_out: int = 0
    """Aliases that we give to one client, if it takes as many."""
    delayed_max_s: int | None = 7 * 86_400
    """The longest delay of `$delayed/SECONDS/topic`; None: no such message is taken."""
    payload_format_check: bool = False
    """Whether a payload that is said to be text is looked at."""
    server_reference: str = ""
    """Where clients are sent at shutdown; empty: nowhere."""
    max_inflight: int = 100
    """QoS 1 and 2 messages on their way to one subscriber; its own Receive Maximum may be less."""
    queue_count_max: int = 1_000
    queue_bytes_max: int = 8 << 20
    """What waits for the window of one ephemeral subscriber; then the oldest is dropped."""
    subscriptions_max: int = 10_000
    connections_max: int = 100_000
    rates: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """By listener: messages and bytes a second that one client may publish, 0: as many as come; others have no rate."""
    shared: bool = True
    """Whether $share/ filters are accepted of sessions that are not durable; of durable ones they are not yet."""
    shard_messages_max: int = 50_000
    shard_bytes_max: int = 64 << 20
    """Unanswered messages to one shard; above, publishers to it are not read, below half they are again."""
    frame_bytes_max: int = 4 << 20
    """A frame to a shard or a gateway is cut at this; one entry of one connection may be more."""
    retained_page: int = 100
    retained_tries: int = 3
    cached_topics_max: int = 100_000
    publishers_max: int = 100_000
    """Publishers at other gateways whose newest connection number is remembered."""
    check_batch: int = 1_000
    sys_interval_ms: int = 0
    """How often `$SYS` is published; 0: never."""
    version: str = ""
    """Of the program, for `$SYS`."""


@dataclass(slots=True)
class Counters:
    """What happened since the start; only grows.  The shell exports every field as a metric of the same name."""

    connections_accepted: int = 0
    connections_refused: int = 0
    connections_superseded: int = 0
    connections_moved: int = 0
    connections_timed_out: int = 0
    protocol_errors: int = 0
    connects_received: int = 0
    publishes_received: int = 0
    publish_bytes_received: int = 0
    """Of payloads and properties, as those that were sent are."""
    publish_bytes_sent: int = 0
    others_received: int = 0
    """Packets that are no PUBLISH."""
    bytes_received: int = 0
    """Kept by the shell."""
    pauses_rate: int = 0
    """Clients that were not read for a while, because they published faster than their listener takes it."""
    publishes_refused_quota: int = 0
    publishes_refused_topic: int = 0
    publishes_refused_format: int = 0
    """Said to be text, and not: only with payload_format_check."""
    publishes_denied: int = 0
    """Refused by the rules."""
    wills_denied: int = 0
    subscriptions_denied: int = 0
    """Filters of SUBSCRIBE; with wills_denied, what the rules refused besides messages."""
    rights_asked: int = 0
    """Questions to a plugin that decides."""
    rights_unanswered: int = 0
    """Those that it has not answered in time, or that it was too busy, or away, to be asked."""
    publishes_repeated: int = 0
    publishes_await_rel_timed_out: int = 0
    """Of sessions that end with their connection; for the others the home shard counts."""
    publishes_not_stored: int = 0
    """Answered by their shard, but no durable subscription wanted them."""
    live_delivered: int = 0
    live_dropped_queue_full: int = 0
    live_dropped_too_large: int = 0
    live_dropped_expired: int = 0
    live_dropped_slow: int = 0
    """QoS 0, for subscribers that do not read what was written."""
    durable_delivered: int = 0
    durable_too_large: int = 0
    durable_expired: int = 0
    forwards_sent: int = 0
    forwards_received: int = 0
    forwards_stale: int = 0
    shared_handed_on: int = 0
    """Messages of shared groups that went to another member, because theirs had gone."""
    shared_lost: int = 0
    """Those for which there was no other member."""
    retained_delivered: int = 0
    retained_pages_failed: int = 0
    deliveries_suppressed: int = 0
    """Not sent, because the rules do not let their takers read them."""
    subacks_unconfirmed: int = 0
    """SUBACKs sent although another gateway had not confirmed the filters in time."""
