"""Settings of access: what belongs together, and that a secret is in nothing that is printed."""

from __future__ import annotations

from pathlib import Path

import pytest

from access.jwks import FAMILIES
from config.access import ALGORITHMS
from config.dump import dump_json, dump_toml
from config.load import ConfigError, from_json, load, secrets
from config.schema import Config
from config.secrets import KEYS_BYTES_MAX, Keys, Secret, SecretError, read_secret
from tests.config.given import given


def problem(**tables: object) -> str:
    with pytest.raises(ConfigError) as caught:
        given(**tables)
    (found,) = caught.value.problems
    return found


def test_the_algorithms_are_those_that_are_checked() -> None:
    """The list stands here once more, as settings are below the floor that checks tokens."""
    assert set(ALGORITHMS) == set(FAMILIES)


@pytest.mark.parametrize(
    ("access", "key", "wanted"),
    [
        ({"rules": "rules.toml"}, 'access.rules = "rules.toml"', "an absolute path or nothing"),
        ({"rules": "/a\0b"}, "access.rules", "an absolute path or nothing"),
        ({"rules": 5}, "access.rules = 5", "an absolute path or nothing"),
        ({"deadline": "1ms"}, 'access.deadline = "1ms"', "a duration from 100ms to 1m"),
        ({"takeovers_max": 1001}, "access.takeovers_max = 1001", "from 0 to 1000"),
        ({"password": {"file": "users"}}, 'access.password.file = "users"', "an absolute path or nothing"),
        ({"password": {"threads": 0}}, "access.password.threads = 0", "from 1 to 16"),
        ({"password": {"remember": "8d"}}, 'access.password.remember = "8d"', "from 0s to 7d"),
        ({"password": {"user_prefix": "a\nb"}}, "access.password.user_prefix", "without control characters"),
        ({"password": {"user_prefix": "x" * 65}}, "access.password.user_prefix", "at most 64 bytes"),
        ({"jwt": {"algorithms": []}}, "access.jwt.algorithms = []", "at least one of RS256"),
        ({"jwt": {"algorithms": ["none"]}}, 'access.jwt.algorithms = ["none"]', "at least one of RS256"),
        ({"jwt": {"algorithms": ["HS256"], "keys": "https://id.ex/k"}}, "access.jwt.algorithms", "what anybody may fetch is no secret"),
        ({"jwt": {"keys": "http://id.example/jwks"}}, "access.jwt.keys = (a text that is not shown)", '"file:///absolute/path"'),
        ({"jwt": {"user_claim": ""}}, 'access.jwt.user_claim = ""', "the name of a claim"),
        ({"plugin": {"kind": "amqtt"}}, "access.plugin.plugins = []", 'at least one while access.plugin.kind is "amqtt"'),
        ({"plugin": {"decides": True}}, "access.plugin.decides = true", "as nobody would answer"),
        ({"plugin": {"cache": "2s"}}, 'access.plugin.cache = "2s"', "from 0s to 1s"),
        ({"plugin": {"plugins": [""]}}, 'access.plugin.plugins = [""]', "at most 16 names"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_sentence(access: dict[str, object], key: str, wanted: str) -> None:
    """Whichever key is wrong, and however; of two that do not fit each other the one to change."""
    found = problem(access=access)
    assert key in found and wanted in found and found.endswith(".")


PLANTED = "correct-horse-battery"


@pytest.mark.parametrize("key", ["jwt.keys", "jwt.keyz", "jwt.key"])
def test_a_secret_in_plain_text_is_refused_without_repeating_it(key: str) -> None:
    """Also where the name of its setting is mistyped."""
    table, name = key.split(".")
    assert PLANTED not in problem(access={table: {name: PLANTED}})


def test_a_configuration_has_the_place_of_a_secret_and_never_the_secret(tmp_path: Path) -> None:
    """It is printed, travels, and is logged."""
    file = secret_file(tmp_path, PLANTED)
    config = given(access={"jwt": {"keys": f"file://{file}"}})
    assert secrets(config, environ={}) == {f"file://{file}": PLANTED.encode()}
    assert from_json(dump_json(config)) == config
    assert PLANTED not in dump_json(config) + dump_toml(config) + repr(config)
    assert f"file://{file}" in dump_toml(config)


def secret_file(directory: Path, text: str, mode: int = 0o600) -> Path:
    file = directory / "key"
    file.write_bytes(text.encode())
    file.chmod(mode)
    return file


@pytest.mark.parametrize(
    ("text", "mode", "found"),
    [
        ("one\ntwo\n", 0o600, b"one"),
        ("one\r\n", 0o640, b"one"),
        (" a b ", 0o400, b" a b "),
        ('\n{"keys": [\n]}\n', 0o644, b'\n{"keys": [\n]}\n'),
    ],
)
def test_the_first_line_is_the_secret_and_a_set_of_public_keys_is_whole(tmp_path: Path, text: str, mode: int, found: bytes) -> None:
    """What is public everybody may read."""
    assert read_secret(Keys(f"file://{secret_file(tmp_path, text, mode)}"), {}) == found


@pytest.mark.parametrize(
    ("text", "mode", "said"),
    [
        ("one\n", 0o604, "everybody may read"),
        ("", 0o600, "nothing in its first line"),
        ("\nsecond", 0o600, "nothing in its first line"),
        ("x" * (KEYS_BYTES_MAX + 1), 0o600, "has more than 1048576 bytes"),
        ("{" + "x" * KEYS_BYTES_MAX, 0o600, "has more than 1048576 bytes"),
    ],
)
def test_a_file_that_is_no_secret_is_one_sentence(tmp_path: Path, text: str, mode: int, said: str) -> None:
    """It names the file and has nothing of what is in it."""
    file = secret_file(tmp_path, text, mode)
    with pytest.raises(SecretError, match=said) as caught:
        read_secret(Keys(f"file://{file}"), {})
    assert str(file) in str(caught.value) and "one" not in str(caught.value).replace(str(file), "")


def test_a_file_that_is_not_there_and_a_directory_are_one_sentence(tmp_path: Path) -> None:
    """The setting is named, and what the system said."""
    for path, said in ((tmp_path / "none", "No such file"), (tmp_path, "Is a directory")):
        with pytest.raises(ConfigError, match=f"access.jwt.keys = .*cannot be read: {said}"):
            secrets(given(access={"jwt": {"keys": f"file://{path}"}}), environ={})


def test_a_secret_of_the_environment_may_be_gone_from_there_later() -> None:
    """`holdfast reload` comes from another shell than `holdfast up`."""
    config = given(access={"jwt": {"keys": "env:JWT_KEY"}})
    known = secrets(config, environ={"JWT_KEY": "abc"})
    assert known == {"env:JWT_KEY": b"abc"}
    assert secrets(config, environ={"JWT_KEY": "of another shell"}, known=known) == secrets(config, environ={}, known=known) == known
    with pytest.raises(ConfigError, match=r"access.jwt.keys = \"env:JWT_KEY\": the environment has no variable JWT_KEY\."):
        secrets(config, environ={})


def test_what_is_fetched_is_not_read_here() -> None:
    """Whoever checks tokens fetches a set of keys, again and again."""
    config = given(access={"jwt": {"keys": "https://id.example/keys.json"}})
    assert not config.access.jwt.keys.is_local and secrets(config, environ={}) == {}
    assert secrets(Config(), environ={}) == {}


@pytest.mark.parametrize(
    "text", ["file://relative", "file:///", "env:", "env:1A", "env:A-B", "plain", "https://", "https://a@b/c", "ftp://a/b"]
)
def test_what_is_no_place_of_a_secret_is_none(text: str) -> None:
    """Half a reference is not taken for the secret itself."""
    for kind in (Secret, Keys):
        with pytest.raises(ValueError):
            kind.parse(text)


def test_nothing_of_access_is_on_by_default() -> None:
    """An empty configuration asks nobody who he is, and lets in who is on this machine."""
    access = load(environ={}).access
    assert (access.rules, access.password.file, access.jwt.keys, access.plugin.kind) == ("", "", "", "none")
