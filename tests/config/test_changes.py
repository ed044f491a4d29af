"""What becomes of each setting that differs from the one in force."""

from __future__ import annotations

import pytest

from config.changes import changes
from config.dump import dump_json
from config.fields import Effect
from config.load import ConfigError, from_json, load
from config.schema import Config
from config.settings import ZONES, named_settings


def made(*sets: str) -> Config:
    return load(sets=sets, environ={})


def keys(running: Config, wanted: Config) -> dict[str, Effect]:
    return {change.key: change.effect for change in changes(running, wanted, 2).found}


def test_nothing_differs_from_itself_also_after_a_journey() -> None:
    """A configuration reaches the processes as JSON, and what comes from there is compared with what a file says."""
    config = made("mqtt.session_expiry_max=infinity", "durable_storage.messages.layout.wildcard_thresholds=[7]", 'zones.a.users=["x"]')
    found = changes(from_json(dump_json(config)), config, 1)
    assert found.found == () and found.config == config


def test_what_may_change_is_in_force_and_the_rest_is_as_it_was() -> None:
    """Whatever is started on the way has the old value of what cannot change, as everybody else has."""
    wanted = made(
        "durable_storage.messages.layout.type=record_batch", "durable_storage.messages.generation_length=2s", "gateway.count=3",
        "log.level=debug", 'zones.new.users=["x"]', "durable_storage.messages.store_qos0=true",
    )  # fmt: skip
    found = changes(made(), wanted, 1)
    assert [change.key for change in found.applied] == [
        "durable_storage.messages.generation_length", "durable_storage.messages.layout.type", "log.level"
    ]  # fmt: skip
    later = [change.key for change in found.at_next_start]
    assert later[:2] == ["gateway.count", "durable_storage.messages.store_qos0"] and "zones.new.users" in later
    expected = made("durable_storage.messages.layout.type=record_batch", "durable_storage.messages.generation_length=2s", "log.level=debug")
    assert found.config == expected
    assert str(found.applied[1]) == 'durable_storage.messages.layout.type: "auto" -> "record_batch"'
    again = changes(found.config, wanted, 1)
    assert again.applied == [] and again.found == tuple(found.at_next_start) and again.config == found.config


def test_a_zone_that_is_gone_is_a_difference() -> None:
    """It stays until the next start, whole."""
    running = made('zones.a.users=["x"]', "zones.a.durable_sessions.batch_size=5")
    found = changes(running, made("log.level=debug"), 1)
    assert {change.key: change.after for change in found.at_next_start}["zones.a.users"] == "unset"
    assert found.config == made('zones.a.users=["x"]', "zones.a.durable_sessions.batch_size=5", "log.level=debug")


@pytest.mark.parametrize(("n_shards", "same"), [('"auto"', True), ("2", True), ("3", False)])
def test_the_number_of_shards_may_be_said_and_not_changed(n_shards: str, same: bool) -> None:
    """`auto` and the number that the store has mean the same; any other is refused, with everything that comes along."""
    wanted = made(f"durable_storage.messages.n_shards={n_shards}", "log.level=debug")
    if same:
        assert keys(made(), wanted) == {"log.level": "at once"}
        return
    with pytest.raises(ConfigError, match="n_shards = 3 is not possible: the store was made with 2"):
        changes(made(), wanted, 2)


def test_any_free_port_is_the_one_that_was_taken() -> None:
    """The launcher has chosen it; the file still says 0. Another address is another one."""
    running = made("listeners.tcp.bind=127.0.0.1:32801")
    assert keys(running, made("listeners.tcp.bind=127.0.0.1:0")) == {}
    assert keys(running, made("listeners.tcp.bind=0.0.0.0:0")) == {"listeners.tcp.bind": "at the next start"}


def test_who_is_in_a_zone_and_how_it_reads_changes_at_once() -> None:
    """What decides which messages are stored does not: gateways and shards would differ about it for a moment.  Nor does a zone come
    or go, nor its topics."""
    effects = {key.removeprefix("zones.NAME."): setting.effect for key, setting in named_settings(ZONES).items()}
    assert {key for key, effect in effects.items() if effect != "at once"} == {"topic_prefixes", "durable_sessions.enable"}
    running = made('zones.a.users=["x"]', "zones.a.durable_sessions.batch_size=5")
    wanted = made('zones.a.users=["y"]', "zones.a.durable_sessions.idle_poll_interval=3s", "listeners.tcp.zone=a")
    found = changes(running, wanted, 1)
    assert {change.key: change.after for change in found.applied} == {
        "listeners.tcp.zone": '"a"', "zones.a.users": '["y"]',
        "zones.a.durable_sessions.batch_size": "unset", "zones.a.durable_sessions.idle_poll_interval": '"3s"',
    }  # fmt: skip
    assert found.config == wanted


def test_a_listener_of_a_zone_that_is_not_there_yet_waits_for_it() -> None:
    """Nothing is in force by half."""
    with pytest.raises(
        ConfigError, match=r"listeners\.tcp\.zone, log\.level cannot change before zones\.new\.listeners, .* does: restart the broker"
    ):
        changes(made(), made("listeners.tcp.zone=new", 'zones.new.users=["x"]', "log.level=debug"), 1)
