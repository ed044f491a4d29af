"""Loading: which source wins, and that every mistake is one sentence that says all."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from config.dump import dump_json, dump_toml, json_schema
from config.load import ConfigError, from_json, load, load_with_sources
from config.schema import Config
from config.settings import Setting, all_settings, value_at
from config.values import INFINITY

ENV = "the environment variable"


def problems_of(*sets: str, file: Path | None = None, environ: dict[str, str] | None = None) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        load(file, sets=sets, environ=environ or {})
    return caught.value.problems


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "holdfast.toml"
    path.write_text(text)
    return path


def test_nothing_given_is_all_defaults() -> None:
    """An empty configuration runs, and no key claims to come from anywhere."""
    loaded = load_with_sources(environ={})
    assert loaded.config == Config()
    assert loaded.sources == {}


def test_later_sources_win_over_earlier_ones(tmp_path: Path) -> None:
    """Defaults < file < environment < --set, key by key."""
    file = written(tmp_path, "[mqtt]\nmax_inflight = 1\ntopic_alias_max = 1\nmax_mqueue_len = 1\n")
    environ = {"HOLDFAST__MQTT__MAX_INFLIGHT": "2", "HOLDFAST__MQTT__TOPIC_ALIAS_MAX": "2"}
    loaded = load_with_sources(file, sets=["mqtt.max_inflight=3"], environ=environ)
    mqtt = loaded.config.mqtt
    assert (mqtt.max_inflight, mqtt.topic_alias_max, mqtt.max_mqueue_len) == (3, 2, 1)
    assert loaded.sources == {
        "mqtt.max_inflight": "--set",
        "mqtt.topic_alias_max": f"{ENV} HOLDFAST__MQTT__TOPIC_ALIAS_MAX",
        "mqtt.max_mqueue_len": str(file),
    }


def test_the_last_set_of_a_key_wins() -> None:
    """A script may append its own --set to those of its caller."""
    assert load(sets=["gateway.count=2", "gateway.count=3"], environ={}).gateway.count == 3


def test_options_of_the_command_line_win_over_everything() -> None:
    """--data-dir and --port are the last word, and --port leaves the host alone."""
    config = load(sets=["data_dir=a", "listeners.tcp.bind=[::1]:5"], data_dir="b", port=0, environ={})
    assert config.data_dir == "b"
    assert config.listeners.tcp.bind == "[::1]:0"


@pytest.mark.parametrize("port", [-1, 65536])
def test_a_port_out_of_range_is_one_sentence(port: int) -> None:
    """--port is checked like any key."""
    with pytest.raises(ConfigError, match=r"--port .* is not allowed: it takes a whole number from 0 to 65535"):
        load(port=port, environ={})


def test_values_from_the_environment_have_the_types_of_a_file() -> None:
    """Numbers, truth values, lists, durations and plain words all come through as text."""
    environ = {
        "HOLDFAST__DURABLE_STORAGE__MESSAGES__N_SHARDS": "3",
        "HOLDFAST__DURABLE_STORAGE__MESSAGES__LAYOUT__WILDCARD_THRESHOLDS": "[7, 8, 9]",
        "HOLDFAST__GATEWAY__WATCHDOG": "false",
        "HOLDFAST__DURABLE_SESSIONS__MESSAGE_RETENTION_PERIOD": "90",
        "HOLDFAST__RAY__NAMESPACE": "5",
        "HOLDFAST__DATA_DIR": "/var/lib/holdfast",
        "HOLDFAST_REQUIRE": "not ours: one underscore",
        "PATH": "/bin",
    }
    config = load(environ=environ)
    messages = config.durable_storage.messages
    assert messages.n_shards == 3
    assert messages.layout.wildcard_thresholds == (7, 8, 9)
    assert not config.gateway.watchdog
    assert config.durable_sessions.message_retention_period.seconds == 90
    assert (config.ray.namespace, config.data_dir) == ("5", "/var/lib/holdfast")


@pytest.mark.parametrize(
    ("given_set", "sentence"),
    [
        ("mqtt.max_inflight=0", "mqtt.max_inflight = 0 (from --set) is not allowed: it takes a whole number from 1 to 65535."),
        (
            "mqtt.max_inflight=infinity",
            'mqtt.max_inflight = "infinity" (from --set) is not allowed: it takes a whole number from 1 to 65535.',
        ),
        ("mqtt.max_inflight=true", "mqtt.max_inflight = true (from --set) is not allowed: it takes a whole number from 1 to 65535."),
        ("gateway.watchdog=yes", 'gateway.watchdog = "yes" (from --set) is not allowed: it takes true or false.'),
        ("gateway.watchdog=1", "gateway.watchdog = 1 (from --set) is not allowed: it takes true or false."),
        (
            "mqtt.max_subscriptions=0",
            'mqtt.max_subscriptions = 0 (from --set) is not allowed: it takes a whole number from 1 or "infinity".',
        ),
        (
            "gateway.watchdog_after=1h",
            'gateway.watchdog_after = "1h" (from --set) is not allowed: '
            'it takes a duration from 500ms to 1m, such as "10s" or a number of seconds.',
        ),
        (
            "gateway.packet_bytes_max=1mb",
            'gateway.packet_bytes_max = "1mb" (from --set) is not allowed: '
            'it takes a size from 1KiB to 256MiB, such as "64MiB" or a number of bytes.',
        ),
        (
            "durable_storage.messages.n_shards=65",
            'durable_storage.messages.n_shards = 65 (from --set) is not allowed: it takes "auto" or a whole number from 1 to 64.',
        ),
        (
            "durable_storage.messages.n_sites=true",
            "durable_storage.messages.n_sites = true (from --set) is not allowed: it takes a whole number from 1 to 7.",
        ),
        (
            "durable_storage.messages.layout.wildcard_thresholds=[0]",
            "durable_storage.messages.layout.wildcard_thresholds = [0] (from --set) is not allowed: "
            "it takes a list of 1 to 16 whole numbers from 1 to 1000000, such as [100, 10].",
        ),
        (
            "durable_storage.messages.layout.wildcard_thresholds=[1, x]",
            'durable_storage.messages.layout.wildcard_thresholds = "[1, x]" (from --set) is not allowed: '
            "it takes a list of 1 to 16 whole numbers from 1 to 1000000, such as [100, 10].",
        ),
        (
            "durable_storage.messages.layout.bits_per_topic_level=20",
            "durable_storage.messages.layout.bits_per_topic_level = 20 (from --set) is not allowed: "
            "it takes a multiple of 8 from 16 to 64.",
        ),
        (
            "durable_storage.messages.layout.bits_per_topic_level=8",
            "durable_storage.messages.layout.bits_per_topic_level = 8 (from --set) is not allowed: it takes a multiple of 8 from 16 to 64.",
        ),
        (
            "durable_storage.messages.layout.topic_index_bytes=3",
            "durable_storage.messages.layout.topic_index_bytes = 3 (from --set) is not allowed: it takes a whole number from 4 to 8.",
        ),
        ("mqtt.shared_subscription=0", "mqtt.shared_subscription = 0 (from --set) is not allowed: it takes true or false."),
        ("log.level=loud", 'log.level = "loud" (from --set) is not allowed: it takes "debug", "info", "warning" or "error".'),
        (
            "listeners.tcp.bind=1883",
            'listeners.tcp.bind = "1883" (from --set) is not allowed: it takes an address such as "127.0.0.1:1883" or "[::1]:1883".',
        ),
        ("ray.namespace=a b", 'ray.namespace = "a b" (from --set) is not allowed: it takes 1 to 64 letters, digits and _ . -.'),
        ("mqtt.max_inflght=5", "mqtt.max_inflght = 5 (from --set) is not a setting: did you mean mqtt.max_inflight?"),
        ("mqtt.batch_size=5", "mqtt.batch_size = 5 (from --set) is not a setting: did you mean durable_sessions.batch_size?"),
        ("mqtt.zzz=5", "mqtt.zzz = 5 (from --set) is not a setting: mqtt has session_expiry_interval, session_expiry_max, "),
        ("zzz=5", "zzz = 5 (from --set) is not a setting: the file has data_dir, storage_reserve, storage_quota, profile, listeners, "),
        ("log=5", "log = 5 (from --set) is not allowed: log is a section with the settings level, format."),
        ("log.level.x=5", "log.level.x = 5 (from --set) is not a setting: nothing is below log.level, which takes "),
        ("gateway.count", "--set gateway.count is not allowed: it takes section.key=value, such as --set mqtt.max_inflight=64."),
        (
            "gateway.link_bytes_max=1MiB",
            'gateway.link_bytes_max = "1MiB" (from --set) is not allowed: it takes at least 2MiB, twice gateway.packet_bytes_max.',
        ),
    ],
)
def test_every_mistake_is_one_sentence_naming_key_value_source_and_what_is_allowed(given_set: str, sentence: str) -> None:
    """The operator can mend it without opening a page."""
    (problem,) = problems_of(given_set)
    assert problem.startswith(sentence)
    assert problem.endswith((".", "?"))
    assert "\n" not in problem


def test_all_mistakes_of_all_sources_are_told_at_once(tmp_path: Path) -> None:
    """Nobody mends a file five times to read five sentences."""
    file = written(tmp_path, '[mqtt]\nmax_inflight = "many"\nfoo = 1\n[empty]\n[log]\nlevel = { a = 1 }\n')
    problems = problems_of("gateway.count=0", file=file, environ={"HOLDFAST__LOG__FORMAT": "xml"})
    assert len(problems) == 6
    text = "\n".join(problems)
    assert f'mqtt.max_inflight = "many" (from {file})' in text
    assert f"mqtt.foo = 1 (from {file}) is not a setting" in text
    assert f"empty = {{}} (from {file}) is not a setting" in text
    assert f"log.level = {{a = 1}} (from {file}) is not allowed" in text
    assert f'log.format = "xml" (from {ENV} HOLDFAST__LOG__FORMAT) is not allowed: it takes "console" or "json".' in text


def test_a_conflict_names_the_setting_to_change_although_another_was_given() -> None:
    """What stands in the way is a default; the sentence says so."""
    (problem,) = problems_of("gateway.packet_bytes_max=64MiB")
    assert problem == (
        'gateway.link_bytes_max = "16MiB" (from the default) is not allowed: it takes at least 128MiB, twice gateway.packet_bytes_max.'
    )


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"[mqtt\n", "is not TOML: expected ']'"),
        (b"a = 1\na = 2\n", "is not TOML: cannot overwrite a value"),
        (b"\xff", "is not UTF-8 at byte 0"),
    ],
)
def test_a_file_that_is_no_toml_is_one_sentence_with_the_place(tmp_path: Path, content: bytes, said: str) -> None:
    """The file is named, and nothing else is complained about."""
    path = tmp_path / "broken.toml"
    path.write_bytes(content)
    (problem,) = problems_of(file=path)
    assert problem.startswith(f"{path} {said}")


def test_a_file_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    """--config with a wrong path never falls back to defaults."""
    path = tmp_path / "none.toml"
    assert problems_of(file=path) == (f"{path} cannot be read: No such file or directory.",)


def fitting(setting: Setting) -> st.SearchStrategy[object]:
    """Values of the kind of a setting, mostly allowed ones."""
    match setting.kind:
        case "flag":
            return st.booleans()
        case "whole":
            return st.integers(0, 70_000)
        case "count":
            return st.one_of(st.integers(1, 10**15), st.just("infinity"))
        case "duration":
            return st.one_of(st.just("infinity"), st.integers(0, 10**6).map(lambda n: f"{n}ms"), st.integers(0, 40).map(lambda n: f"{n}d"))
        case "size":
            return st.one_of(st.integers(0, 10**12), st.integers(0, 4096).map(lambda n: f"{n}MiB"))
        case "text":
            return st.text(alphabet="ab .\\\"'#\n\x7fé→", min_size=1, max_size=8)
        case "list":
            return st.lists(st.integers(0, 1000), max_size=4)
        case _:
            return st.just(setting.default)


@settings(max_examples=25)
@given(st.data())
def test_what_is_written_as_toml_or_json_is_read_back_the_same(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """`config show` is a file that `--config` takes, and JSON carries every value to other processes."""
    chosen = data.draw(st.sets(st.sampled_from(sorted(all_settings())), max_size=4))
    sets = [f"{key}={json.dumps(data.draw(fitting(all_settings()[key])))}" for key in sorted(chosen)]
    try:
        config = load(sets=sets, environ={})
    except ConfigError:
        assume(False)
        raise
    path = tmp_path_factory.getbasetemp() / "again.toml"
    path.write_text(dump_toml(config), encoding="utf-8")
    assert load(path, environ={}) == config
    assert from_json(dump_json(config)) == config


def test_show_says_where_a_value_comes_from() -> None:
    """A comment behind each value that is not the default, and --changed leaves the rest out."""
    loaded = load_with_sources(sets=["log.level=debug", "gateway.count=auto"], environ={})
    assert dump_toml(loaded.config, loaded.sources, changed_only=True) == '[log]\nlevel = "debug"  # from --set\n'
    assert tomllib.loads(dump_toml(loaded.config, loaded.sources))["log"]["level"] == "debug"


def test_the_json_schema_describes_every_setting() -> None:
    """An editor that reads the schema knows each key, its default and its description."""
    schema = json_schema()

    def resolve(node: dict[str, object], key: str) -> dict[str, object]:
        for name in key.split("."):
            if "$ref" in node:
                node = schema["$defs"][str(node["$ref"]).rpartition("/")[2]]
            properties = node["properties"]
            assert isinstance(properties, dict)
            node = properties[name]
        return node

    for key, setting in all_settings().items():
        described = resolve(schema, key)
        assert setting.why in str(described["description"])
        assert "default" in described
        assert not {"ge", "le", "allowed", "effect"} & described.keys()


def test_a_configuration_cannot_be_changed_once_it_is_made() -> None:
    """Parts keep references to it, so a change would reach some and not others."""
    config = Config()
    with pytest.raises(ValueError, match="frozen"):
        config.mqtt.max_inflight = 5


def test_limits_that_depend_on_each_other_take_the_stricter_one() -> None:
    """Lowering one of a pair is enough; nobody has to lower both."""
    config = load(sets=["gateway.packet_bytes_max=2KiB", "mqtt.session_expiry_max=1h"], environ={})
    assert config.gateway.connect_limit == 2048
    assert config.mqtt.session_expiry_3_1_1.seconds == 3600


@pytest.mark.parametrize(("cores", "shards"), [(1, 1), (2, 1), (4, 2), (7, 3), (32, 16), (128, 16)])
def test_auto_shards_are_half_the_cores_between_1_and_16(cores: int, shards: int) -> None:
    """A number that is given counts as it is."""
    assert Config().shard_count(cores) == shards
    assert load(sets=["durable_storage.messages.n_shards=64"], environ={}).shard_count(cores) == 64


def test_every_default_is_a_value_the_setting_takes() -> None:
    """Given explicitly, each default is accepted and changes nothing."""
    for key in all_settings():
        default = value_at(Config(), key)
        assert default == all_settings()[key].default
        assert not isinstance(default, int) or default <= INFINITY
    text = dump_toml(Config())
    assert set(tomllib.loads(text)) == {key.split(".")[0] for key in all_settings()}
