"""Zones and the persistence filter: every form in which they can be given, and every mistake."""

from __future__ import annotations

from pathlib import Path

import pytest

from config.dump import dump_json, dump_toml
from config.load import ConfigError, from_json, load, load_with_sources
from config.settings import ZONES, named_settings

FILE = """\
[zones.meters]
client_id_prefixes = ["meter-"]
[zones.Halls]
topic_prefixes = ["halls/"]
[zones.Halls.durable_sessions]
batch_size = 7
idle_poll_interval = "2s"
[durable_sessions.persistence]
except_topic_prefixes = ["noise/"]
"""


def problem(*sets: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load(sets=sets, environ={})
    (found,) = caught.value.problems
    return found


def test_zones_keep_the_order_of_the_file_and_travel_as_json(tmp_path: Path) -> None:
    """The first zone that fits counts, so order is a part of the value, through every form."""
    file = tmp_path / "a.toml"
    file.write_text(FILE)
    config = load(file, environ={})
    assert list(config.zones) == ["meters", "Halls"]
    assert from_json(dump_json(config)) == config
    assert list(from_json(dump_json(config)).zones) == ["meters", "Halls"]
    again = tmp_path / "b.toml"
    again.write_text(dump_toml(config))
    assert load(again, environ={}) == config
    assert list(load(again, environ={}).zones) == ["meters", "Halls"]


def test_a_zone_says_only_what_is_different(tmp_path: Path) -> None:
    """What it leaves out is unset, which is something else than the default."""
    file = tmp_path / "a.toml"
    file.write_text(FILE)
    sessions = load(file, environ={}).zones["Halls"].durable_sessions
    assert (sessions.batch_size, str(sessions.idle_poll_interval)) == (7, "2s")
    assert sessions.enable is None
    assert sessions.renew_streams_interval is None


def test_the_environment_finds_a_zone_whatever_the_case_of_its_name(tmp_path: Path) -> None:
    """Environment variables are in upper case; a zone that only they name is in lower case."""
    file = tmp_path / "a.toml"
    file.write_text(FILE)
    environ = {
        "HOLDFAST__ZONES__HALLS__DURABLE_SESSIONS__ENABLE": "false",
        "HOLDFAST__ZONES__HALLS__DURABLE_SESSIONS__BATCH_SIZE": "9",
        "HOLDFAST__ZONES__NEW__USERS": '["ann", "bob"]',
    }
    loaded = load_with_sources(file, sets=["zones.Halls.durable_sessions.batch_size=11"], environ=environ)
    zones = loaded.config.zones
    assert list(zones) == ["meters", "Halls", "new"]
    assert (zones["Halls"].durable_sessions.enable, zones["Halls"].durable_sessions.batch_size) == (False, 11)
    assert zones["new"].users == ("ann", "bob")
    assert loaded.sources["zones.new.users"] == "the environment variable HOLDFAST__ZONES__NEW__USERS"


def test_show_prints_zones_with_their_sources() -> None:
    """What is unset is not printed: TOML has no word for it."""
    loaded = load_with_sources(sets=['zones.a.users=["x"]', "zones.a.durable_sessions.enable=false"], environ={})
    assert dump_toml(loaded.config, loaded.sources, changed_only=True) == (
        '[zones.a]\nusers = ["x"]  # from --set\n\n[zones.a.durable_sessions]\nenable = false  # from --set\n'
    )
    assert "renew" not in dump_toml(loaded.config).partition("[zones.a]")[2]


@pytest.mark.parametrize(
    ("sets", "key", "wanted"),
    [
        (("zones.a.durable_sessions.batch_size=1",), "zones.a.listeners = []", "at least one, where users"),
        (('zones.a.listeners=["ws"]',), 'zones.a.listeners = ["ws"]', 'of which there are "tcp"'),
        (('listeners.tcp.zone=a',), 'listeners.tcp.zone = "a"', "the name of a zone, of which there are none"),
        (('listeners.tcp.zone=a', 'zones.b.users=["x"]'), 'listeners.tcp.zone = "a"', 'of which there are "b"'),
        (('listeners.tcp.zone=a b',), 'listeners.tcp.zone = "a b"', "the name of a zone that there is, or nothing"),
        (('zones.a.users=[""]',), 'zones.a.users = [""]', "a list of user names"),
        (("zones.a.users=7",), "zones.a.users = 7", "a list of user names"),
        (('zones.a.client_id_prefixes=[""]',), "zones.a.client_id_prefixes", "a list of texts that client ids begin with"),
        (('zones.a.topic_prefixes=["a/#"]',), 'zones.a.topic_prefixes = ["a/#"]', "without # and +"),
        (('zones.a.users=["x"]', "zones.a.durable_sessions.batch_size=0"), "batch_size = 0", "from 1 to 10000"),
        (('zones.a.users=["x"]', "zones.a.durable_sessions.enable=1"), "enable = 1", "true or false"),
        (('zones.a.users=["x"]', "zones.a.durable_sessions.idle_poll_interval=1ms"), '= "1ms"', "a duration from 100ms"),
        (("zones.a.usres=1",), "zones.a.usres = 1", "did you mean zones.a.users?"),
        (("zones.a.colour=1",), "zones.a.colour = 1", "a zone has listeners, users"),
        (("zones.a.durable_sessions=1",), "zones.a.durable_sessions = 1", "a zone is a section with the settings"),
        (("zones.a=1",), "zones.a = 1", "a zone is a section with the settings"),
        (('zones.ä.users=["x"]',), "zones.ä.users", "1 to 64 letters, digits, _ and -"),
        (tuple(f'zones.z{n}.users=["x"]' for n in range(65)), "65 zones", "at most 64 zones"),
        (("durable_sessions.persistence.min_qos=0",), "min_qos = 0", "from 1 to 2"),
        (('durable_sessions.persistence.topic_prefixes=["+"]',), "persistence.topic_prefixes", "without # and +"),
        (('durable_sessions.persistence.except_topic_prefixes=[""]',), "persistence.except_topic_prefixes", "without # and +"),
        (
            ("durable_sessions.persistence.min_qos=2", "durable_storage.messages.store_qos0=true"),
            "durable_sessions.persistence.min_qos = 2",
            "1 while durable_storage.messages.store_qos0 is true",
        ),
        (("durable_sessions.idle_poll_interval=0",), "idle_poll_interval = 0", "a duration from 100ms to infinity"),
        (("durable_sessions.renew_streams_interval=soon",), 'renew_streams_interval = "soon"', "a duration from 0s to infinity"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_sentence_with_what_was_found_and_what_is_wanted(sets: tuple[str, ...], key: str, wanted: str) -> None:
    """Whichever key is wrong, and however."""
    found = problem(*sets)
    assert key in found
    assert wanted in found
    assert found.endswith((".", "?"))


def test_a_listener_may_say_its_zone(tmp_path: Path) -> None:
    """As EMQX has it; such a zone need not say who is in it."""
    file = tmp_path / "a.toml"
    file.write_text("[listeners.tcp]\nzone = 'a'\n[zones.a.durable_sessions]\nenable = false\n")
    config = load(file, environ={})
    assert config.listeners.tcp.zone == "a" and config.zones["a"].listeners == ()
    assert from_json(dump_json(config)) == config


def test_sixty_four_zones_are_allowed() -> None:
    """The bound itself is inside."""
    assert len(load(sets=[f'zones.z{n}.users=["x"]' for n in range(64)], environ={}).zones) == 64


def test_every_setting_of_a_zone_says_what_it_takes_and_why() -> None:
    """As those of the whole broker do (test_docs)."""
    for setting in named_settings(ZONES).values():
        assert setting.allowed and setting.why.endswith("."), setting.key
