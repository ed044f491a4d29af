"""Settings of listeners: names of their own, what belongs together, and what becomes of each when it changes."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from config.changes import changes
from config.dump import dump_json, dump_toml, json_schema
from config.load import ConfigError, from_json, load
from config.schema import Config
from config.settings import LISTENERS, named_settings, setting_of, value_at
from config.unbuilt import is_unbuilt
from tests.config.given import given

FRONT = {"bind": "0.0.0.0:8883", "type": "tls", "tls": {"cert": "/c.pem", "key": "/k.pem"}}


def problem(**listeners: object) -> str:
    with pytest.raises(ConfigError) as caught:
        given(listeners=listeners)
    (found,) = caught.value.problems
    return found


def test_listeners_have_the_names_and_the_order_of_the_file() -> None:
    """Through every form in which they travel; `tcp` is always there and always first."""
    config = given(
        listeners={"zz": FRONT, "tcp": {"enable": False}, "all": {"bind": "[::1]:1"}, "named": {"type": "unix", "path": "/run/s"}}
    )
    assert [name for name, _ in config.listeners.all()] == ["tcp", "zz", "all", "named"]
    assert list(config.listeners.named) == ["zz", "all", "named"]
    front = config.listeners.named["zz"]
    assert (front.type, front.bind, front.tls.cert, front.packet_bytes_max.is_infinite) == ("tls", "0.0.0.0:8883", "/c.pem", True)
    assert value_at(config, "listeners.named.path") == "/run/s"
    assert from_json(dump_json(config)) == config
    assert given(**tomllib.loads(dump_toml(config))) == config
    assert [name for name, _ in from_json(dump_json(config)).listeners.all()] == ["tcp", "zz", "all", "named"]


@pytest.mark.parametrize(
    ("listener", "key", "wanted"),
    [
        ({}, "listeners.x = {}", "a listener is a section with the settings type, enable, bind"),
        ({"enable": True}, "listeners.x.bind = nothing (from the default)", 'unless type is "unix"'),
        ({"bind": "8883"}, 'listeners.x.bind = "8883"', "an address such as"),
        ({"bind": "127.0.0.1:1883"}, "listeners.x.bind", "something else than listeners.tcp, as one of them could not listen"),
        ({"bind": "a:1", "type": "quic"}, 'listeners.x.type = "quic"', '"tcp", "tls", "ws", "wss" or "unix"'),
        ({"bind": "a:1", "type": "tls"}, "listeners.x.tls.cert", 'an absolute path while type is "tls"'),
        ({"bind": "a:1", "type": "wss"}, "listeners.x.tls.cert", 'an absolute path while type is "wss"'),
        ({"bind": "a:1", "tls": {"cert": "/c", "key": "/k"}}, "listeners.x.type", '"tls" or "wss" where tls.cert'),
        ({**FRONT, "tls": {"cert": "/c"}}, "listeners.x.tls.key", "a path where the other of tls.cert and tls.key is one"),
        ({**FRONT, "tls": {"cert": "c", "key": "/k"}}, 'listeners.x.tls.cert = "c"', "an absolute path"),
        ({**FRONT, "tls": {**FRONT["tls"], "client_certificate": "required"}}, "listeners.x.tls.ca", "an absolute path while"),  # type: ignore[dict-item]
        ({**FRONT, "tls": {**FRONT["tls"], "crl": "/r"}}, "listeners.x.tls.crl", 'nothing while tls.client_certificate is "none"'),  # type: ignore[dict-item]
        ({**FRONT, "identity": "cn"}, "listeners.x.identity", "as no client shows a certificate"),
        ({**FRONT, "tls": {**FRONT["tls"], "key_password": "abc"}}, "listeners.x.tls.key_password = (a text", "never the secret itself"),  # type: ignore[dict-item]
        ({"type": "unix"}, "listeners.x.path", 'an absolute path of at most 100 bytes while type is "unix"'),
        ({"type": "unix", "path": "a/b"}, "listeners.x.path", "an absolute path"),
        ({"type": "unix", "path": "/" + "ä" * 50}, "listeners.x.path", "at most 100 bytes"),
        ({"type": "unix", "path": "/s", "mode": "660"}, 'listeners.x.mode = "660"', "four octal digits"),
        ({"type": "unix", "path": "/s", "proxy": "any", "proxy_from": ["10.0.0.0/8"]}, "listeners.x.proxy", '"off" while type is "unix"'),
        ({"bind": "a:1", "proxy": "v2"}, "listeners.x.proxy_from = []", 'not an empty one while proxy is "v2"'),
        ({"bind": "a:1", "proxy_from": ["10.0.0.1/8"]}, "listeners.x.proxy_from", "a list of networks"),
        ({"bind": "a:1", "ws": {"path": "mqtt"}}, 'listeners.x.ws.path = "mqtt"', 'a path such as "/mqtt"'),
        ({"bind": "a:1", "ws": {"origins": ["example.org"]}}, "listeners.x.ws.origins", "a list of origins"),
        ({"bind": "a:1", "packet_bytes_max": "2MiB"}, "listeners.x.packet_bytes_max", "at most 1MiB, which is gateway.packet_bytes_max"),
        ({"bind": "a:1", "connect_rate": 0}, "listeners.x.connect_rate = 0", 'from 1 or "infinity"'),
        ({"bind": "a:1", "anonymous": "maybe"}, "listeners.x.anonymous", '"loopback", "yes" or "no"'),
    ],
)  # fmt: skip
def test_a_mistake_is_one_sentence_that_names_the_setting_to_change(listener: dict[str, object], key: str, wanted: str) -> None:
    """Of settings that do not fit each other too."""
    if not listener:
        with pytest.raises(ConfigError, match="a listener is a section with the settings type, enable, bind"):
            load(sets=["listeners.x={}"], environ={})
        return
    found = problem(x=listener)
    assert key in found and wanted in found and found.endswith(".")


@pytest.mark.parametrize(
    ("given_set", "sentence"),
    [
        ("listeners.x.bnd=1", "is not a setting: did you mean listeners.x.bind?"),
        ("listeners.x.colour=1", "is not a setting: a listener has type, enable, bind"),
        ("listeners.x.tls=1", "a listener is a section with the settings type"),
        ("listeners.ä.bind=a:1", "the name of a listener takes 1 to 64 letters, digits, _ and -."),
        ("listeners.tcp.bnd=1", "is not a setting: did you mean listeners.tcp.bind?"),
    ],
)
def test_a_name_that_is_not_known_is_one_sentence(given_set: str, sentence: str) -> None:
    """With what was probably meant."""
    with pytest.raises(ConfigError, match=r"^listeners") as caught:
        load(sets=[given_set], environ={})
    assert sentence in caught.value.problems[0]


def test_thirty_two_further_listeners_are_allowed_and_no_more() -> None:
    """The bound itself is inside."""
    sets = [f"listeners.l{n}.bind=127.0.0.1:{n + 2000}" for n in range(33)]
    with pytest.raises(ConfigError, match="33 further listeners are not allowed: a configuration takes at most 32 further listeners"):
        load(sets=sets, environ={})
    assert len(load(sets=sets[:32], environ={}).listeners.named) == 32


def test_zones_name_listeners_that_there_are() -> None:
    """Of whatever name."""
    zones = {"a": {"listeners": ["front", "tcp"]}}
    assert given(listeners={"front": FRONT}, zones=zones).zones["a"].listeners == ("front", "tcp")
    with pytest.raises(ConfigError, match=r'zones.a.listeners = .*of which there are "tcp"'):
        given(zones=zones)


def test_a_listener_comes_and_goes_with_the_broker_and_its_limits_change_at_once() -> None:
    """What is listened on is decided at the start."""
    running = given(listeners={"front": FRONT})
    wanted = given(
        listeners={"front": {**FRONT, "connections_max": 5, "bind": "0.0.0.0:8884"}, "new": {"bind": "a:1", "connections_max": 7}}
    )
    found = changes(running, wanted, 1)
    assert [change.key for change in found.applied] == ["listeners.front.connections_max"]
    assert found.config == given(listeners={"front": {**FRONT, "connections_max": 5}})
    later = {change.key: change.before for change in found.at_next_start}
    assert later["listeners.new.connections_max"] == "unset" and later["listeners.front.bind"] == '"0.0.0.0:8883"'
    gone = changes(running, Config(), 1)
    assert gone.applied == [] and {change.after for change in gone.at_next_start} == {"unset"} and gone.config == running


def test_any_free_port_of_a_listener_is_the_one_that_was_taken() -> None:
    """As of `tcp`."""
    running = given(listeners={"x": {"bind": "127.0.0.1:31000"}})
    assert changes(running, given(listeners={"x": {"bind": "127.0.0.1:0"}}), 1).found == ()


def test_every_setting_of_a_listener_says_what_it_takes_and_why() -> None:
    """As those of the whole broker do (test_docs); and the JSON Schema knows that there may be others than tcp."""
    for setting in named_settings(LISTENERS).values():
        assert setting.allowed and setting.why.endswith("."), setting.key
        assert setting.unit or setting.kind not in ("whole", "count", "list")
    assert json_schema()["$defs"]["Listeners"]["additionalProperties"] == {"$ref": "#/$defs/Listener"}


def test_what_is_not_built_takes_its_default_only(tmp_path: Path) -> None:
    """A setting that is taken and not honoured would be worst where it is to keep somebody out."""
    file = tmp_path / "holdfast.toml"
    file.write_text(dump_toml(Config()))
    assert load(file, environ={}) == Config()
    for key in ("access.rules", "listeners.tcp.anonymous"):
        setting = setting_of(key)
        assert setting is not None
        if is_unbuilt(key):
            value = "/rules.toml" if key == "access.rules" else "no"
            with pytest.raises(ConfigError, match=rf'{key} = "{value}" .*: it takes its default only'):
                load(sets=[f"{key}={value}"], environ={})
