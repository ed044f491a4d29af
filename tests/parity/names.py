"""What people who run durable sessions with EMQX know by name: each has a row in docs/parity.md."""

from __future__ import annotations


def _of(prefix: str, names: str) -> tuple[str, ...]:
    return tuple([prefix + name for name in names.split()])


CONCEPTS = (
    "ephemeral session", "persistent session", "RAM session", "durable session", "which session is which", "durable message", "storage",
    "shard", "generation", "slab", "stream", "learned topic structure", "iterator", "batch", "site", "replica", "transition", "epoch",
    "logical order", "retention", "selective persistence", "sizing hints", "message replay", "durable shared subscription", "environment",
)  # fmt: skip

DURABLE_SESSIONS = _of(
    "durable_sessions.",
    """enable batch_size idle_poll_interval heartbeat_interval renew_streams_interval session_gc_interval session_gc_batch_size
    message_retention_period force_persistence checkpoint_interval commit_timeout commit_retry_interval commit_retries
    subscription_count_refresh_interval disconnected_session_count_refresh_interval shared_subs""",
)
ZONES = (
    *_of("zones.NAME.durable_sessions.", "enable batch_size idle_poll_interval renew_streams_interval"),
    "listeners.NAME.zone",
)
MQTT = _of(
    "mqtt.",
    """session_expiry_interval max_inflight await_rel_timeout max_awaiting_rel max_subscriptions max_mqueue_len upgrade_qos
    retry_interval""",
)
DURABLE_STORAGE = _of(
    "durable_storage.",
    """n_sites messages.backend messages.data_dir messages.n_shards messages.n_sites messages.replication_factor
    messages.replication_options messages.local_write_buffer.max_items messages.local_write_buffer.max_bytes
    messages.local_write_buffer.flush_interval
    messages.layout.local_write_buffer.max_items messages.layout.local_write_buffer.flush_interval
    messages.layout.type messages.layout.bits_per_topic_level messages.layout.epoch_bits messages.layout.topic_index_bytes
    messages.layout.bytes_per_topic_level messages.layout.serialization_schema messages.layout.wildcard_thresholds
    messages.layout.timestamp_bytes messages.poll_workers_per_shard messages.poll_batch_size messages.subscriptions messages.transaction
    messages.max_retries messages.retry_interval messages.rocksdb messages.rocksdb.cache_size messages.db_group db_groups
    sessions timers shared_subs mq_states mq_messages streams_messages queues""",
)
PARAMETERS = (*DURABLE_SESSIONS, *ZONES, *MQTT, *DURABLE_STORAGE)

COMMANDS = (
    "emqx_ctl ds", "holdfast ds", "holdfast ds info", "holdfast ds set-replicas", "holdfast ds set_replicas", "holdfast ds join",
    "holdfast ds leave", "holdfast ds forget",
)  # fmt: skip
"""Our own, without a model, are held against the program."""

ENDPOINTS = (
    "GET /api/v5/ds/sites", "GET /api/v5/ds/sites/{site}", "PUT /api/v5/ds/sites/{site}/forget", "GET /api/v5/ds/storages",
    "GET /api/v5/ds/storages/{ds}", "GET /api/v5/ds/storages/{ds}/replicas", "PUT /api/v5/ds/storages/{ds}/replicas",
    "PUT /api/v5/ds/storages/{ds}/replicas/{site}", "DELETE /api/v5/ds/storages/{ds}/replicas/{site}", "GET /api/v5/clients",
    "GET /api/v5/clients/{clientid}", "DELETE /api/v5/clients/{clientid}", "GET /api/v5/clients/{clientid}/subscriptions",
    "GET /api/v5/clients/{clientid}/mqueue_messages", "GET /api/v5/clients/{clientid}/inflight_messages",
    "GET /api/v5/durable_queues", "GET /api/v5/message_queues", "GET /api/v5/message_streams", "GET /api/v5/monitor_current",
)  # fmt: skip

_EGRESS = "batches batches_retry batches_failed messages bytes flush_time"
_RAFT = """cluster_sites_num db_shards_num db_shards_online_num db_sites_num shard_replication_factor shard_transition_queue_len
    shard_transitions shard_transition_errors current_timestamp_us rasrvs_started rasrvs_terminated rasrv_state_changes rasrv_commands
    rasrv_replication_msgs rasrv_term rasrv_index rasrv_commit_latency_ms rasrv_snapshot_writes rasrv_snapshot_reads"""
METRICS = (
    *_of("emqx_ds_egress_", _EGRESS),
    *_of("emqx_ds_buffer_", f"{_EGRESS} latency"),
    *_of("emqx_ds_", "store_batch_time builtin_next_time"),
    *_of("emqx_ds_storage_bitfield_lts_counter_", "seek next collision"),
    *_of("emqx_ds_storage_skipstream_lts_", "seek next hash_collision hit miss future end_of_stream"),
    *_of(
        "emqx_ds_",
        """poll_requests poll_requests_fulfilled poll_requests_dropped poll_requests_expired poll_request_sharing poll_waitq_len
        poll_pendingq_len subs subs_handover subs_beams_sent_total subs_request_sharing subs_stuck_total subs_unstuck_total
        subs_fulfill_time subs_process_commands_time subs_scan_time subs_fanout_time disk_usage write_buffer_memory_usage
        total_trash_size""",
    ),
    *_of("emqx_ds_raft_", _RAFT),
    *_of("emqx_durable_subscriptions_", "count max"),
    "disconnected_durable_sessions", "sessions.count", "subscriptions.durable.count", "messages.persisted", "cluster_sessions",
)  # fmt: skip
