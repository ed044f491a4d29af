"""Keys that EMQX has and that are called otherwise here, or that mean nothing here.

A file that was written for EMQX shall start this broker, and nobody shall believe that something is set that is not: such a key is
taken, or left, with a notice (config.load). A key that promises something which is not kept, as `replication_factor = 3`, is not of
this kind: it is a setting, and refused.
"""

from __future__ import annotations

from collections.abc import Mapping

from config.settings import setting_of

FOREIGN_PREFIX = "EMQX_"
"""How the environment variables of EMQX begin."""

_MESSAGES = "durable_storage.messages"
RENAMED = {
    f"{_MESSAGES}.layout.local_write_buffer.max_items": f"{_MESSAGES}.local_write_buffer.max_items",
    f"{_MESSAGES}.layout.local_write_buffer.flush_interval": f"{_MESSAGES}.local_write_buffer.flush_interval",
    f"{_MESSAGES}.rocksdb.cache_size": f"{_MESSAGES}.block_cache",
    "durable_storage.n_sites": f"{_MESSAGES}.n_sites",
}
"""EMQX's key, or where its pages have it, and ours."""

_STORES = "sessions and timers are rows of the shards of durable_storage.messages; of queues and streams there are no stores"
_COUNTS = "counts are kept as they change"
_COMMIT = "a change of a session is asked of its shard again, under its number, until it is answered"
NOTHING_HERE = {
    "durable_sessions.force_persistence": "a session whose expiry is 0 ends with its connection, and every other one is durable already",
    "durable_sessions.checkpoint_interval": "what must not be lost is stored before it leaves, the rest by heartbeat_interval",
    "durable_sessions.commit_timeout": _COMMIT,
    "durable_sessions.commit_retry_interval": _COMMIT,
    "durable_sessions.commit_retries": _COMMIT,
    "durable_sessions.subscription_count_refresh_interval": _COUNTS,
    "durable_sessions.disconnected_session_count_refresh_interval": _COUNTS,
    "durable_sessions.shared_subs": "the session actor that owns the home of a group leads it; to be set is durable_sessions.groups",
    "mqtt.retry_interval": "nothing is sent again while a connection lasts, as MQTT 5 wants it",
    f"{_MESSAGES}.replication_options": "what Raft is told there has no counterpart; docs/replication.md has the bounds of copies",
    f"{_MESSAGES}.local_write_buffer.max_bytes": "what has no answer yet is bounded in bytes by gateway.link_bytes_max",
    f"{_MESSAGES}.layout.bytes_per_topic_level": "skipstream always has 8; wildcard_optimized has bits_per_topic_level",
    f"{_MESSAGES}.layout.serialization_schema": "stored messages say the version of their format themselves",
    f"{_MESSAGES}.layout.timestamp_bytes": "positions have 8 bytes",
    f"{_MESSAGES}.poll_workers_per_shard": "a shard answers polls at once, in its one process",
    f"{_MESSAGES}.poll_batch_size": "a shard answers polls at once, each with at most durable_sessions.batch_size messages",
    f"{_MESSAGES}.subscriptions": "a shard feeds a session actor once for all of its sessions, without workers",
    f"{_MESSAGES}.transaction": "all that a turn of a shard brings is one record; nothing waits for another, and nothing conflicts",
    f"{_MESSAGES}.max_retries": "who has no answer of a shard asks again, under the same number, until there is one",
    f"{_MESSAGES}.retry_interval": "who has no answer of a shard asks again when its link is back",
    f"{_MESSAGES}.rocksdb": "of RocksDB only block_cache is to be set; how the rest is set is in docs/formats.md",
    f"{_MESSAGES}.db_group": "there is one store, and storage_quota bounds it",
    "durable_storage.db_groups": "there is one store, and storage_quota bounds it",
    "durable_storage.sessions": _STORES,
    "durable_storage.timers": _STORES,
    "durable_storage.shared_subs": _STORES,
    "durable_storage.mq_states": _STORES,
    "durable_storage.mq_messages": _STORES,
    "durable_storage.streams_messages": _STORES,
    "durable_storage.queues": _STORES,
}
"""Key, or the section that it is in, and why it means nothing."""


def nothing_here(key: str) -> str | None:
    """Why this key of EMQX means nothing; None when EMQX has no such key, or it does mean something."""
    while key:
        why = NOTHING_HERE.get(key)
        if why is not None:
            return why
        key = key.rpartition(".")[0]
    return None


def foreign_variables(environ: Mapping[str, str]) -> list[str]:
    """A sentence for each variable of EMQX's that says what a setting of ours says: it is not read."""
    found: list[str] = []
    for name in sorted(environ):
        rest = name.removeprefix(FOREIGN_PREFIX)
        key = rest.lower().replace("__", ".")
        if rest == name or "." not in key:
            continue
        if setting_of(RENAMED.get(key, key)) is not None:
            ours = "HOLDFAST__" + RENAMED.get(key, key).upper().replace(".", "__")
            found.append(f"The environment variable {name} is not read: its name here is {ours}.")
        elif (why := nothing_here(key)) is not None:
            found.append(f"The environment variable {name} does nothing here: {why}.")
    return found
