"""From the one configuration to the options of each core.  The only place that knows both vocabularies."""

from __future__ import annotations

from config.schema import Config
from config.values import Duration
from gateway.options import Options as GatewayOptions
from sessions.options import SessionOptions
from shards.core import ShardOptions
from shards.ids import EXPIRY_NEVER
from shards.store import StoreOptions


def shard_options(config: Config) -> ShardOptions:
    messages = config.durable_storage.messages
    return ShardOptions(
        messages_per_record_max=messages.local_write_buffer.max_items,
        generation_ms=config.roll_after.ms,
        retention_ms=config.durable_sessions.message_retention_period.ms,
        tail_bytes_max=int(messages.tail_cache_bytes),
        store_qos0=messages.store_qos0,
    )


def store_options(config: Config) -> StoreOptions:
    layout = config.durable_storage.messages.layout
    return StoreOptions(layout=layout.type, thresholds=tuple(layout.wildcard_thresholds))


def gateway_options(config: Config) -> GatewayOptions:
    mqtt, gateway = config.mqtt, config.gateway
    return GatewayOptions(
        session_expiry_s=_expiry_s(mqtt.session_expiry_3_1_1),
        session_expiry_max_s=_expiry_s(mqtt.session_expiry_max),
        connect_wait_ms=gateway.connect_timeout.ms,
        keep_alive_max_s=0 if mqtt.keepalive_max.is_infinite else max(1, mqtt.keepalive_max.ms // 1000),
        receive_maximum_in=mqtt.max_inflight,
        packet_bytes_max=int(gateway.packet_bytes_max),
        topic_alias_maximum=mqtt.topic_alias_max,
        max_inflight=mqtt.max_inflight,
        queue_count_max=int(mqtt.max_mqueue_len),
        queue_bytes_max=int(mqtt.max_mqueue_bytes),
        subscriptions_max=int(mqtt.max_subscriptions),
        connections_max=config.listeners.tcp.connections_max,
        awaiting_rel_max=int(mqtt.max_awaiting_rel),
        retain=mqtt.retain_available,
        filter_levels_max=gateway.topic_levels_max,
        shared=mqtt.shared_subscription,
        shard_bytes_max=int(gateway.link_bytes_max),
    )


def session_options(config: Config) -> SessionOptions:
    return SessionOptions(
        batch_size=config.durable_sessions.batch_size,
        max_inflight=config.mqtt.max_inflight,
        max_subscriptions=int(config.mqtt.max_subscriptions),
        heartbeat_ms=config.durable_sessions.heartbeat_interval.ms,
    )


def _expiry_s(duration: Duration) -> int:
    """Seconds as MQTT counts them; what never ends is EXPIRY_NEVER."""
    return EXPIRY_NEVER if duration.is_infinite else min(duration.ms // 1000, EXPIRY_NEVER)
