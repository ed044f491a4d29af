"""From configuration to the options of the cores: what zones and the persistence filter become."""

from __future__ import annotations

from typing import get_args

import pytest

from actors.reader.options import reader_options
from actors.settings import door_options, gateway_options, persistence, session_options, shard_options, store_options
from config.changes import changes
from config.load import load
from config.settings import ZONES, all_settings, named_settings, value_at
from config.unbuilt import is_unbuilt
from sessions.options import ReadOverrides, Reads
from shards.layouts.registry import LAYOUTS, layout_named
from shards.options import StoreOptions
from shards.persistence import Persistence


def test_what_says_how_often_things_are_looked_at_reaches_shards_and_session_actors() -> None:
    """The sweep in both, the heartbeat in the session actor; the defaults are those of the page of settings."""
    config = load(environ={})
    assert (shard_options(config).gc_interval_ms, shard_options(config).gc_batch) == (600_000, 100)
    assert (session_options(config).gc_interval_ms, session_options(config).heartbeat_ms) == (600_000, 5_000)
    names = ("session_gc_interval=7", "session_gc_batch_size=3", "heartbeat_interval=2")
    other = load(sets=tuple(f"durable_sessions.{name}" for name in names), environ={})
    assert (shard_options(other).gc_interval_ms, shard_options(other).gc_batch) == (7_000, 3)
    assert (session_options(other).gc_interval_ms, session_options(other).heartbeat_ms) == (7_000, 2_000)


@pytest.mark.parametrize(
    ("sets", "expected"),
    [
        ((), None),
        (("durable_sessions.persistence.min_qos=1",), None),
        (("durable_sessions.persistence.min_qos=2",), Persistence(min_qos=2)),
        (('durable_sessions.persistence.topic_prefixes=["ä/"]',), Persistence(prefixes=("ä/".encode(),))),
        (('durable_sessions.persistence.except_topic_prefixes=["a"]',), Persistence(except_prefixes=(b"a",))),
        (('zones.z.topic_prefixes=["a"]', "zones.z.durable_sessions.enable=true"), None),
        (('zones.z.users=["a"]', "zones.z.durable_sessions.enable=false"), None),
        (
            (
                'zones.keep.topic_prefixes=["a/b"]',
                'zones.users.users=["a"]',
                'zones.drop.topic_prefixes=["a", "b"]',
                "zones.drop.durable_sessions.enable=false",
            ),
            Persistence(rules=(((b"a/b",), True), ((b"a", b"b"), False))),
        ),
    ],
)
def test_a_filter_is_there_only_when_it_excludes_something(sets: tuple[str, ...], expected: Persistence | None) -> None:
    """None costs nothing per message; gateways and shards have the same one."""
    config = load(sets=sets, environ={})
    assert persistence(config) == expected
    assert gateway_options(config).persistence == shard_options(config).persistence == expected


def test_whose_sessions_are_reaches_gateways_and_shards() -> None:
    """The defaults are those of the page of settings."""
    config = load(environ={})
    options = gateway_options(config)
    assert (options.auth_wait_ms, options.adopt_anonymous, options.anonymous) == (5_000, False, {"tcp": "loopback"})
    assert shard_options(config).takeovers_max == 5
    other = load(sets=("access.deadline=200ms", "access.adopt_anonymous=true", "access.takeovers_max=0"), environ={})
    options = gateway_options(other)
    assert (options.auth_wait_ms, options.adopt_anonymous, shard_options(other).takeovers_max) == (200, True, 0)


def test_zones_of_topics_go_to_session_actors_and_those_of_connections_to_gateways() -> None:
    """In their order; what a zone leaves open stays open."""
    sets = (
        'zones.b.users=["ann"]',
        'zones.b.topic_prefixes=["t/"]',
        "zones.b.durable_sessions.idle_poll_interval=3s",
        'zones.a.listeners=["tcp"]',
        "zones.a.durable_sessions.batch_size=5",
        "zones.a.durable_sessions.enable=false",
        "durable_sessions.renew_streams_interval=2s",
    )
    config = load(sets=sets, environ={})
    b, a = gateway_options(config).zones
    assert (b.name, b.users, b.enable, b.reads) == ("b", frozenset(("ann",)), None, ReadOverrides(None, 3_000, None))
    assert (a.name, a.listeners, a.enable, a.reads) == ("a", frozenset(("tcp",)), False, ReadOverrides(5, None, None))
    options = session_options(config)
    assert options.topic_zones == (((b"t/",), ReadOverrides(None, 3_000, None)),)
    assert options.reads == Reads(512, 10_000, 2_000)
    assert options.reads_of(options.reads.changed_by(a.reads), b"t/1") == Reads(5, 3_000, 2_000)
    assert options.reads_of(options.reads, b"other") == options.reads


def test_the_zone_of_a_listener_is_that_of_its_connections() -> None:
    """Whether the listener names its zone, or the zone its listener."""
    by_listener = ("listeners.tcp.zone=z", "zones.z.durable_sessions.enable=false")
    by_zone = ('zones.z.listeners=["tcp"]', "zones.z.durable_sessions.enable=false")
    assert gateway_options(load(sets=by_listener, environ={})).zones == gateway_options(load(sets=by_zone, environ={})).zones


SAMPLES = {
    "listeners": '["tcp"]',
    "users": '["ann"]',
    "client_id_prefixes": '["meter-"]',
    "topic_prefixes": '["t/"]',
    "durable_sessions.enable": "false",
    "durable_sessions.batch_size": "5",
    "durable_sessions.idle_poll_interval": "3s",
    "durable_sessions.renew_streams_interval": "3s",
}


@pytest.mark.parametrize("key", [key.removeprefix("zones.NAME.") for key in named_settings(ZONES)])
def test_every_setting_of_a_zone_reaches_a_core(key: str) -> None:
    """A setting that changes nothing would be a promise that nobody keeps."""
    base = ['zones.z.users=["x"]', 'zones.z.topic_prefixes=["x/"]']
    plain, changed = (load(sets=[*base, *more], environ={}) for more in ([], [f"zones.z.{key}={SAMPLES[key]}"]))
    cores = (gateway_options, session_options, shard_options)
    assert [options(plain) for options in cores] != [options(changed) for options in cores]


def test_store_qos0_reaches_all_three() -> None:
    """Whoever did not know would lose messages or give them twice."""
    for stored in (False, True):
        config = load(sets=[f"durable_storage.messages.store_qos0={str(stored).lower()}"], environ={})
        assert gateway_options(config).store_qos0 is session_options(config).store_qos0 is shard_options(config).store_qos0 is stored


def test_a_layout_and_the_options_of_its_keys_reach_the_store() -> None:
    """Every type that the configuration takes is a layout that there is; auto is the same on both sides, and depends on the sites."""
    assert store_options(load(environ={})) == StoreOptions("pagestream")
    assert layout_named("auto") == "pagestream"
    sites = ("durable_storage.messages.n_sites=3", 'register.endpoints=["http://127.0.0.1:2379"]', "cluster.secret=env:WORD")
    several = load(sets=(*sites, "cluster.listen=127.0.0.1:7883"), environ={"WORD": "w"})
    assert store_options(several) == StoreOptions("skipstream")
    sets = ("type=wildcard_optimized", "wildcard_thresholds=[7]", "bits_per_topic_level=32", "epoch_bits=17", "topic_index_bytes=6")
    config = load(sets=tuple(f"durable_storage.messages.layout.{name}" for name in sets), environ={})
    assert store_options(config) == StoreOptions("wildcard_optimized", (7,), 32, 17, 6)
    names = get_args(type(config.durable_storage.messages.layout).model_fields["type"].annotation)
    assert {layout_named(name) for name in names} == set(LAYOUTS)
    assert layout_named("auto") != "wildcard_optimized", "it delays, so nobody gets it without asking for it"


OTHERS = {
    "access.deadline": "7s",
    "listeners.tcp.anonymous": "no",
    "listeners.tcp.zone": "z",
    "durable_sessions.groups.strategy": "round_robin",
    "durable_storage.messages.layout.type": "record_batch",
    "durable_storage.messages.local_write_buffer.flush_interval": "20ms",
    "durable_storage.messages.layout.bits_per_topic_level": "32",
    "durable_storage.messages.generation_size": "3MiB",
    "durable_storage.messages.classes": '[{name = "alarms", filter = "alarms/#", period = "90d"}]',
    "durable_storage.messages.capture": '["alarms/#"]',
    "log.level": "error",
    "mqtt.server_reference": "other:1883",
    "storage_quota": "3MiB",
    "pipeline.reader": "never",
    "pipeline.bytes_per_s": "3MiB",
    "listeners.tcp.packet_bytes_max": "2KiB",
    "listeners.tcp.proxy_from": '["10.0.0.0/8"]',
    "listeners.tcp.ws.origins": '["https://example.org"]',
    "listeners.tcp.tls.version_min": '"1.3"',
    "listeners.tcp.tls.client_certificate": "optional",
    "listeners.tcp.tls.handshake_timeout": "2s",
    "listeners.tcp.identity": "cn",
    "listeners.tcp.proxy": "v2",
    "access.jwt.algorithms": '["ES384"]',
    "access.plugin.plugins": '["a:B"]',
    "access.plugin.cache": "100ms",
    "access.plugin.deadline": "1s",
    "pipeline.tokens": f'[{{name = "lake", sha256 = "{"0" * 64}", filters = ["#"]}}]',
}
"""Another value of those for which there is none by the kind alone."""
TELLING = (
    'listeners.tcp.type="wss"', 'listeners.tcp.proxy="v1"', 'listeners.tcp.proxy_from=["192.0.2.0/24"]',
    "listeners.tcp.tls.cert=/cert", "listeners.tcp.tls.key=/key", "listeners.tcp.tls.ca=/ca", "listeners.tcp.tls.crl=/crl",
    'listeners.tcp.tls.client_certificate="required"', 'zones.z.users=["x"]',
)  # fmt: skip
"""A listener for which each of its settings means something."""
PLUGGED = ("access.plugin.kind=holdfast", 'access.plugin.plugins=["a:C"]')
CHANGING = ("at once", "with the next generation")
BY_SHELLS = (
    "log.level", "gateway.connect_bytes_max", "mqtt.filters_per_packet_max", "mqtt.user_properties_max", "storage_quota", "access.",
    "admin.", "durable_storage.messages.local_write_buffer.flush_interval", "cluster.spread_leaders",
)  # fmt: skip
"""Taken by the processes themselves, not by their cores; what ends in a dot: all that begin so."""


def another(key: str) -> str:
    kind, default = all_settings()[key].kind, all_settings()[key].default
    by_kind = {
        "flag": str(not default).lower(),
        "count": "77",
        "duration": "61s",
        "size": "3MiB",
        "list": "[7]",
        "text": "/x",
        "secret": "env:X",
    }
    return OTHERS.get(key) or by_kind.get(kind) or str(int(str(default)) + 1)


@pytest.mark.parametrize("key", [key for key, one in all_settings().items() if one.effect in CHANGING and not is_unbuilt(key)])
def test_every_setting_that_may_change_while_the_broker_runs_reaches_a_core(key: str) -> None:
    """What the page of settings promises and nobody keeps would be worse than a restart."""
    base = TELLING if key.startswith("listeners.tcp.") else PLUGGED if key.startswith("access.plugin.") else ()
    running, wanted = load(sets=base, environ={}), load(sets=[*base, f"{key}={another(key)}"], environ={})
    found = changes(running, wanted, 1)
    assert [change.key for change in found.applied] == [key] and value_at(found.config, key) == value_at(wanted, key)
    cores = (gateway_options, session_options, shard_options, store_options, reader_options, door_options)
    by_shells = any(key == each or (each.endswith(".") and key.startswith(each)) for each in BY_SHELLS)
    assert by_shells or any(options(running) != options(found.config) for options in cores)
