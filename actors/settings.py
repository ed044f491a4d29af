"""From the one configuration to the options of each core, and of the doors.  The only place that knows both vocabularies."""

from __future__ import annotations

from ipaddress import ip_network
from pathlib import Path

from actors.listening.options import ENCRYPTED, DoorOptions, ProxyOptions, TlsOptions
from actors.release import release
from config.bridges import BRIDGES_MAX
from config.listeners import Listener
from config.schema import Config
from config.selection import Zone as ZoneConfig
from config.selection import ZoneSessions
from config.values import Count, Duration, Size
from gateway.bridges import LISTENER
from gateway.options import Options as GatewayOptions
from gateway.transport.limits import Limits
from gateway.zones import Zone
from sessions.options import ReadOverrides, SessionOptions
from shards.classes import ClassMap, RetentionClass
from shards.ids import EXPIRY_NEVER
from shards.options import UNLIMITED, ShardOptions, StoreOptions
from shards.persistence import Persistence

BRIDGE_PROPERTIES_MAX = 1 << 20
"""What another broker has taken comes in with its mark, and as a dead letter with what that says; its bytes are bounded."""
BRIDGE_MORE_BYTES = 8_192
"""A dead letter is a message, and some words more."""


def shard_options(config: Config) -> ShardOptions:
    messages = config.durable_storage.messages
    return ShardOptions(
        messages_per_record_max=messages.local_write_buffer.max_items,
        generation_ms=messages.generation_length.ms,
        generation_bytes=UNLIMITED if messages.generation_size == "unlimited" else int(messages.generation_size),
        retention_ms=config.durable_sessions.message_retention_period.ms,
        tail_bytes_max=int(messages.tail_cache_bytes),
        store_qos0=messages.store_qos0,
        persistence=persistence(config),
        gc_interval_ms=config.durable_sessions.session_gc_interval.ms,
        gc_batch=config.durable_sessions.session_gc_batch_size,
        await_rel_ms=_timeout_ms(config.mqtt.await_rel_timeout),
        delayed_max=config.mqtt.delayed_messages_max,
        capture=_bytes(messages.capture),
        hold_unread=messages.hold_unread,
        takeovers_max=config.access.takeovers_max,
    )


def store_options(config: Config) -> StoreOptions:
    messages = config.durable_storage.messages
    layout, classes = messages.layout, messages.classes
    return StoreOptions(
        layout=messages.layout_type,
        thresholds=tuple(layout.wildcard_thresholds),
        bits_per_topic_level=layout.bits_per_topic_level,
        epoch_bits=layout.epoch_bits,
        topic_index_bytes=layout.topic_index_bytes,
        classes=ClassMap(tuple([RetentionClass(each.name, each.filter.encode(), each.period.ms) for each in classes])),
    )


def gateway_options(config: Config) -> GatewayOptions:
    mqtt, gateway = config.mqtt, config.gateway
    return GatewayOptions(
        session_expiry_s=_expiry_s(mqtt.session_expiry_3_1_1),
        session_expiry_max_s=_expiry_s(mqtt.session_expiry_max),
        durable=config.durable_sessions.enable,
        connect_wait_ms=gateway.connect_timeout.ms,
        auth_wait_ms=config.access.deadline.ms,
        adopt_anonymous=config.access.adopt_anonymous,
        rights_cache_ms=config.access.plugin.cache.ms,
        keep_alive_max_s=0 if mqtt.keepalive_max.is_infinite else max(1, mqtt.keepalive_max.ms // 1000),
        receive_maximum_in=mqtt.max_inflight,
        packet_bytes_max=int(gateway.packet_bytes_max),
        topic_alias_maximum=mqtt.topic_alias_max,
        sys_interval_ms=_timeout_ms(mqtt.sys_interval),
        version=release(),
        topic_alias_max_out=mqtt.topic_alias_max_out,
        delayed_max_s=mqtt.delayed_max.ms // 1000 if mqtt.delayed_publish else None,
        payload_format_check=mqtt.payload_format_check,
        server_reference=mqtt.server_reference,
        max_inflight=mqtt.max_inflight,
        queue_count_max=int(mqtt.max_mqueue_len),
        queue_bytes_max=int(mqtt.max_mqueue_bytes),
        subscriptions_max=int(mqtt.max_subscriptions),
        connections_max=sum([listener.connections_max for _, listener in config.listeners.all() if listener.enable]),
        anonymous={name: listener.anonymous for name, listener in config.listeners.all()},
        rates=_rates(config),
        plugin=config.access.plugin.kind != "none",
        awaiting_rel_max=int(mqtt.max_awaiting_rel),
        await_rel_ms=_timeout_ms(mqtt.await_rel_timeout),
        upgrade_qos=mqtt.upgrade_qos,
        retain=mqtt.retain_available,
        filter_levels_max=gateway.topic_levels_max,
        shared=mqtt.shared_subscription,
        shard_bytes_max=int(gateway.link_bytes_max),
        store_qos0=config.durable_storage.messages.store_qos0,
        persistence=persistence(config),
        zones=tuple([_zone(config, name, zone) for name, zone in config.zones.items()]),
    )


def door_options(config: Config) -> list[DoorOptions]:
    """Of each listener that listens."""
    return [_door(config, name, listener) for name, listener in config.listeners.all() if listener.enable]


def bridge_door(run_dir: Path, config: Config) -> DoorOptions:
    """Where bridges come in: a socket in the run directory, which only the broker's own user can reach."""
    return DoorOptions(
        name=LISTENER,
        kind="unix",
        limits=Limits(connections_max=BRIDGES_MAX * 4),
        path=str(bridge_socket(run_dir)),
        mode=0o600,
        connect_ms=config.gateway.connect_timeout.ms,
        packet_bytes_max=int(config.gateway.packet_bytes_max) + BRIDGE_MORE_BYTES,
        user_properties_max=BRIDGE_PROPERTIES_MAX,
    )


def bridge_socket(run_dir: Path) -> Path:
    """Of the first gateway; actors.listening.door.unix_path says where those of others are."""
    return run_dir / "bridge.sock"


def _door(config: Config, name: str, listener: Listener) -> DoorOptions:
    bind, tls = listener.bind, listener.tls
    return DoorOptions(
        name=name,
        kind=listener.type,
        limits=Limits(
            listener.connections_max,
            _limit(listener.connections_per_address_max),
            _limit(listener.connect_rate),
            _limit(listener.connect_rate_per_address),
        ),
        host=bind.host if bind else "",
        port=bind.port if bind else 0,
        path=listener.path,
        mode=int(listener.mode, 8),
        backlog=listener.backlog,
        connect_ms=config.gateway.connect_timeout.ms,
        packet_bytes_max=min(int(listener.packet_bytes_max), int(config.gateway.packet_bytes_max)),
        identity=listener.identity,
        proxy=None if listener.proxy == "off" else ProxyOptions(listener.proxy, tuple([ip_network(each) for each in listener.proxy_from])),
        tls=TlsOptions(tls.cert, tls.key, tls.key_password, tls.client_certificate, tls.ca, tls.crl, tls.version_min)
        if listener.type in ENCRYPTED
        else None,
        handshake_ms=tls.handshake_timeout.ms,
        ws_path=listener.ws.path,
        ws_origins=listener.ws.origins,
    )


def _limit(count: Count | Size) -> int | None:
    return None if count.is_infinite else int(count)


def _rates(config: Config) -> dict[str, tuple[int, int]]:
    """By listener, of those that have one: messages and bytes a second of one client."""
    rates = {name: (_limit(each.message_rate) or 0, _limit(each.byte_rate) or 0) for name, each in config.listeners.all()}
    return {name: each for name, each in rates.items() if any(each)}


def session_options(config: Config) -> SessionOptions:
    return SessionOptions(
        batch_size=config.durable_sessions.batch_size,
        idle_poll_ms=config.durable_sessions.idle_poll_interval.ms,
        renew_streams_ms=config.durable_sessions.renew_streams_interval.ms,
        topic_zones=tuple(
            [(_bytes(zone.topic_prefixes), _reads(zone.durable_sessions)) for zone in config.zones.values() if zone.topic_prefixes]
        ),
        store_qos0=config.durable_storage.messages.store_qos0,
        max_inflight=config.mqtt.max_inflight,
        max_subscriptions=int(config.mqtt.max_subscriptions),
        redelivery_limit=config.durable_sessions.redelivery_limit,
        dead_letter_topic=config.durable_sessions.dead_letter_topic.encode(),
        heartbeat_ms=config.durable_sessions.heartbeat_interval.ms,
        gc_interval_ms=config.durable_sessions.session_gc_interval.ms,
        group_strategy=config.durable_sessions.groups.strategy,
        group_given_max=config.durable_sessions.groups.member_inflight_max,
        redelivery_after_ms=config.durable_sessions.groups.redelivery_after.ms,
        queue_count_max=int(config.mqtt.max_mqueue_len),
        queue_bytes_max=int(config.mqtt.max_mqueue_bytes),
        memory_bytes_max=int(config.mqtt.memory_bytes_max),
    )


def persistence(config: Config) -> Persistence | None:
    """The messages that are not stored for durable sessions, by the filter and by the zones of topics; None: all are stored."""
    given = config.durable_sessions.persistence
    zones = [zone for zone in config.zones.values() if zone.topic_prefixes]
    rules = tuple([(_bytes(zone.topic_prefixes), zone.durable_sessions.enable is not False) for zone in zones])
    found = Persistence(
        # At 1 there is nothing to exclude: whether QoS 0 is stored is the business of store_qos0.
        min_qos=given.min_qos if given.min_qos > 1 else 0,
        prefixes=_bytes(given.topic_prefixes),
        except_prefixes=_bytes(given.except_topic_prefixes),
        rules=() if all(stored for _, stored in rules) else rules,
    )
    return None if found == Persistence() else found


def _zone(config: Config, name: str, zone: ZoneConfig) -> Zone:
    sessions = zone.durable_sessions
    by_listener = [each for each, listener in config.listeners.all() if listener.zone == name]
    return Zone(
        name=name,
        listeners=frozenset((*zone.listeners, *by_listener)),
        users=frozenset(zone.users),
        client_prefixes=_bytes(zone.client_id_prefixes),
        enable=sessions.enable,
        reads=_reads(sessions),
    )


def _reads(sessions: ZoneSessions) -> ReadOverrides:
    idle, renew = sessions.idle_poll_interval, sessions.renew_streams_interval
    return ReadOverrides(sessions.batch_size, None if idle is None else idle.ms, None if renew is None else renew.ms)


def _bytes(texts: tuple[str, ...]) -> tuple[bytes, ...]:
    return tuple([text.encode() for text in texts])


def _timeout_ms(setting: Duration) -> int:
    """0: never."""
    return 0 if setting.is_infinite else setting.ms


def _expiry_s(duration: Duration) -> int:
    """Seconds as MQTT counts them; what never ends is EXPIRY_NEVER."""
    return EXPIRY_NEVER if duration.is_infinite else min(duration.ms // 1000, EXPIRY_NEVER)
