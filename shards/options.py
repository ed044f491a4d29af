"""The bounds of a shard, and how its store is laid out.  Where the values come from (configuration) is the shell's."""

from __future__ import annotations

from dataclasses import dataclass

from shards.classes import NO_CLASSES, ClassMap
from shards.layouts.port import LayoutOptions
from shards.lts import DEFAULT_THRESHOLDS
from shards.persistence import Persistence

UNLIMITED = 1 << 62
STRATEGIES = ("by_stream", "round_robin", "hash_client_id", "hash_topic")
"""Which member of a shared group gets a message (sessions.group)."""
GENERATIONS_MAX_BY_SIZE = 200
"""With so many generations in a store, size alone begins no more: making one takes longer the more there are."""


@dataclass(frozen=True, slots=True)
class ShardOptions:
    """messages_per_record_max bounds a record (local_write_buffer.max_items).  generation_ms: length of a generation, unless the period
    of its class is shorter.  retention_ms: period of the default class, how long a sealed generation is kept.  tail_bytes_max: RAM
    for the newest messages.  gc_interval_ms: from the end of one sweep to the next.  gc_batch: rows that a sweep looks at in one
    record."""

    messages_per_record_max: int = 1000
    generation_ms: int = 86_400_000
    generation_bytes: int = UNLIMITED
    """With so many bytes of messages a generation is sealed, whatever its age; see GENERATIONS_MAX_BY_SIZE."""
    retention_ms: int = 604_800_000
    tail_bytes_max: int = 16 << 20
    store_qos0: bool = False
    persistence: Persistence | None = None
    """Which wills are not stored; of other messages their gateways say it.  None: all are."""
    gc_interval_ms: int = 600_000
    gc_batch: int = 100
    await_rel_ms: int = 0
    """After this the id of a QoS 2 message is free without PUBREL (shards.incoming); 0: never."""
    delayed_max: int = 100_000
    """Messages that wait until they are due (shards.delayed); one more is refused."""
    capture: tuple[bytes, ...] = ()
    """Topics that match one of these filters are stored whether a session wants them or not."""
    takeovers_max: int = 0
    """Of one client within 30 s; then the newcomer has to wait (shards.contention).  0: never."""
    bundled_commits_min: int = 32
    """A request with so many commits changes rows of sessions together (shards.bundles)."""
    bundled_ms: int = 20_000
    """After this they are written each by itself."""
    run_min: int = 8
    """So many messages of a frame are taken all at once, if nothing of any of them has to be looked at by itself (shards.publishing)."""
    hold_unread: bool = False
    """A generation waits until all sessions have acknowledged all of it (shards.unread)."""


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """For generations made from now on. layout: a name of shards.layouts.registry; thresholds: of the learned topic structure; the others
    as in layouts.port.LayoutOptions, for wildcard_optimized only."""

    layout: str = "auto"
    thresholds: tuple[int | None, ...] = DEFAULT_THRESHOLDS
    bits_per_topic_level: int = 64
    epoch_bits: int = 20
    topic_index_bytes: int = 4
    classes: ClassMap = NO_CLASSES
    """In force from the next roll of all classes on; ``map_changed`` says that it is waited for."""

    @property
    def of_layout(self) -> LayoutOptions:
        return LayoutOptions(self.thresholds, self.bits_per_topic_level, self.epoch_bits, self.topic_index_bytes)
