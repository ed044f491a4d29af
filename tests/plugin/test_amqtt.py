"""Plugins of amqtt, unmodified, with the files that amqtt takes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pwdlib import PasswordHash
from pwdlib.hashers.argon2 import Argon2Hasher

from access.asked import Asked
from access.identity import ANONYMOUS, Identity
from access.login import Login
from actors.plugin.loading import PluginRefused, load, read_settings
from actors.plugin.port import Plugin
from tests.auth.by_hand import by_password, login

AUTH, TOPIC = "amqtt.plugins.authentication", "amqtt.plugins.topic_checking"
FILE_AUTH, ANONYMOUS_AUTH = f"{AUTH}.FileAuthPlugin", f"{AUTH}.AnonymousAuthPlugin"
ACL, TABOO = f"{TOPIC}.TopicAccessControlListPlugin", f"{TOPIC}.TopicTabooPlugin"


async def loaded(tmp_path: Path, **settings: Any) -> Plugin:
    """By the names, with what their tables are to have."""
    file = tmp_path / "plugins.yaml"
    file.write_text(json.dumps({"plugins": settings}))  # JSON is YAML
    (plugin,) = await load("amqtt", list(settings), str(file))
    return plugin


async def lets_in(plugin: Plugin, asked: Login) -> bool:
    verdict = await plugin.login(asked)
    return verdict is not None and verdict.allow


def passwords(tmp_path: Path) -> dict[str, str]:
    file = tmp_path / "amqtt-passwords"
    hasher = PasswordHash((Argon2Hasher(time_cost=1, memory_cost=8, parallelism=1),))
    file.write_text(f"# users\nann:{hasher.hash('secret')}\n")
    return {"password_file": str(file)}


async def test_the_password_file_of_amqtt_lets_its_users_in(tmp_path: Path) -> None:
    """And nobody else; what is no text is no password there."""
    plugin = await loaded(tmp_path, **{FILE_AUTH: passwords(tmp_path)})
    assert await lets_in(plugin, by_password())
    for asked in (by_password("ann", b"wrong"), by_password("bob"), by_password("ann", None), by_password("ann", b"\xff"), login()):
        assert not await lets_in(plugin, asked)


@pytest.mark.parametrize(("allow", "wanted"), [(True, (True, True)), (False, (False, True))])
async def test_the_anonymous_one_by_its_plugin(tmp_path: Path, allow: bool, wanted: tuple[bool, bool]) -> None:
    """Who has no name, and who has one."""
    plugin = await loaded(tmp_path, **{ANONYMOUS_AUTH: {"allow_anonymous": allow}})
    assert (await lets_in(plugin, login()), await lets_in(plugin, by_password())) == wanted


async def test_one_no_is_a_no(tmp_path: Path) -> None:
    """Whatever the other says; one that has no answer leaves it to the other."""
    plugin = await loaded(tmp_path, **{ANONYMOUS_AUTH: {"allow_anonymous": True}, FILE_AUTH: passwords(tmp_path)})
    assert await lets_in(plugin, by_password()) and not await lets_in(plugin, by_password("ann", b"wrong"))
    assert await lets_in(plugin, login())


async def test_topics_by_the_lists_of_a_user(tmp_path: Path) -> None:
    """For publish, subscribe and receive; the anonymous one has a list of that name."""
    lists = {"publish_acl": {"ann": ["a/+"]}, "acl": {"ann": ["a/#"], "anonymous": ["news"]}}
    plugin = await loaded(tmp_path, **{ACL: lists})
    ann = Identity("ann", "plugin")
    asked = [
        (Asked(ann, "c", "publish", "a/b"), True),
        (Asked(ann, "c", "publish", "a/b/c"), False),
        (Asked(ann, "c", "subscribe", "a/b/c"), True),
        (Asked(ann, "c", "subscribe", "b"), False),
        (Asked(Identity("bob", "plugin"), "c", "publish", "a/b"), False),
        (Asked(ANONYMOUS, "c", "subscribe", "news"), True),
        (Asked(ANONYMOUS, "c", "subscribe", "a/b"), False),
    ]
    assert [await plugin.may(each) for each, _ in asked] == [wanted for _, wanted in asked]


async def test_topics_that_are_taboo(tmp_path: Path) -> None:
    """But for the one named admin."""
    plugin = await loaded(tmp_path, **{TABOO: {}})
    ann, admin = Identity("ann", "plugin"), Identity("admin", "plugin")
    assert await plugin.may(Asked(ann, "c", "publish", "fine")) is True
    assert await plugin.may(Asked(ann, "c", "receive", "prohibited")) is False
    assert await plugin.may(Asked(admin, "c", "receive", "prohibited")) is True


async def test_without_a_plugin_for_it_nothing_is_allowed(tmp_path: Path) -> None:
    """Nobody is let in by one that checks topics, and no topic by one that checks users."""
    topics = await loaded(tmp_path, **{TABOO: {}})
    assert not await lets_in(topics, by_password())
    users = await loaded(tmp_path, **{ANONYMOUS_AUTH: {}})
    assert await users.may(Asked(ANONYMOUS, "c", "publish", "a")) is False


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("amqtt.plugins.authentication.NoPlugin", {}),
        ("nowhere.Plugin", {}),
        ("json.JSONDecoder", {}),
        (FILE_AUTH, {"password_file": "/nowhere/secret-name"}),
        (ANONYMOUS_AUTH, {"unknown": 1}),
    ],
)
async def test_what_cannot_be_loaded_is_one_sentence(tmp_path: Path, name: str, settings: dict[str, Any]) -> None:
    """With the name, and nothing of its settings."""
    with pytest.raises(PluginRefused) as refused:
        await loaded(tmp_path, **{name: settings})
    assert name in str(refused.value) and "\n" not in str(refused.value) and "secret-name" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "text", "wanted"),
    [
        ("a.toml", '[plugins."m:C"]\nx = 1\n', {"m:C": {"x": 1}}),
        ("a.toml", '["m:C"]\nx = 1\n', {"m:C": {"x": 1}}),
        ("a.yaml", "plugins:\n  m.C:\n    x: 1\n", {"m.C": {"x": 1}}),
        ("a.yml", "plugins:\n  - m.C:\n      x: 1\n  - m.D\n", {"m.C": {"x": 1}, "m.D": {}}),
    ],
)
def test_settings_are_read_in_the_forms_of_amqtt(tmp_path: Path, name: str, text: str, wanted: object) -> None:
    """TOML and YAML, with `plugins` around them or not, as tables or as a list."""
    (tmp_path / name).write_text(text)
    assert read_settings(str(tmp_path / name)) == wanted


@pytest.mark.parametrize(
    ("name", "text"), [("a.toml", "x ="), ("a.yaml", "a: [b: c"), ("a.yaml", "text"), ("a.toml", "\0"), ("a.yaml", None)]
)
def test_a_file_of_another_form_is_one_sentence(tmp_path: Path, name: str, text: str | None) -> None:
    """Also one that is not there."""
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(PluginRefused, match=name):
        read_settings(str(tmp_path / name))
