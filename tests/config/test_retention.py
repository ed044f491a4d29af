"""Retention classes and captured filters in the configuration: what they take, and one sentence for each mistake."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.dump import dump_json, dump_toml
from config.load import ConfigError, from_json, load
from config.retention import is_topic_filter
from config.values import Duration, Size
from mqtt.reason import ProtocolError
from mqtt.topics import check_topic_filter

CLASSES = "durable_storage.messages.classes"
CAPTURE = "durable_storage.messages.capture"
GOOD = '[{name = "alarms", filter = "alarms/#", period = "90d"}, {name = "a-b_1", filter = "+/x", period = "1h"}]'


def test_classes_come_from_a_file_from_the_environment_and_from_the_command_line(tmp_path: Path) -> None:
    """All forms give the same, and what is written is read back."""
    file = tmp_path / "holdfast.toml"
    file.write_text(
        '[[durable_storage.messages.classes]]\nname = "alarms"\nfilter = "alarms/#"\nperiod = "90d"\n'
        '[[durable_storage.messages.classes]]\nname = "a-b_1"\nfilter = "+/x"\nperiod = 3600\n'
    )
    config = load(file, environ={})
    assert [(each.name, each.filter, each.period) for each in config.durable_storage.messages.classes] == [
        ("alarms", "alarms/#", Duration.parse("90d")),
        ("a-b_1", "+/x", Duration.parse("1h")),
    ]
    assert load(sets=[f"{CLASSES}={GOOD}"], environ={}) == config
    assert load(environ={"HOLDFAST__DURABLE_STORAGE__MESSAGES__CLASSES": GOOD}) == config
    file.write_text(dump_toml(config))
    assert load(file, environ={}) == config
    assert from_json(dump_json(config)) == config


def _one(name: str = "a", topic_filter: str = "a/#", period: str = '"1h"') -> str:
    return f"{{name = {json.dumps(name)}, filter = {json.dumps(topic_filter)}, period = {period}}}"


@pytest.mark.parametrize(
    ("classes", "said"),
    [
        ([_one("Gold")], 'it takes names of 1 to 32 of a-z, 0-9, _ and -, and "Gold" is none.'),
        ([_one("")], 'it takes names of 1 to 32 of a-z, 0-9, _ and -, and "" is none.'),
        ([_one("a" * 33)], "is none."),
        ([_one("default")], 'it takes no class with the name "default", as that is the class of all topics that no filter matches.'),
        ([_one("a"), _one("a", "b")], 'it takes every name once, and "a" is there twice.'),
        ([_one(f"a{n}") for n in range(9)], "it takes at most 8 classes, and there are 9."),
        ([_one(topic_filter="a/#/b")], 'it takes topic filters such as "alarms/#", and "a/#/b" is none.'),
        ([_one(topic_filter="")], 'it takes topic filters such as "alarms/#", and "" is none.'),
        ([_one(topic_filter="$share/g/a")], 'it takes topic filters without $share, and "$share/g/a" begins with it.'),
        ([_one(period='"1ms"')], "it takes a list of at most 8 classes"),
        (['{name = "a", filter = "a"}'], "it takes a list of at most 8 classes"),
        (['{name = "a", filter = "a", period = "1h", color = "red"}'], "it takes a list of at most 8 classes"),
        (["5"], "it takes a list of at most 8 classes"),
    ],
)
def test_each_mistake_in_classes_is_one_sentence(classes: list[str], said: str) -> None:
    """The value, where it is from, and what is wrong with it."""
    with pytest.raises(ConfigError) as raised:
        load(sets=[f"{CLASSES}=[{', '.join(classes)}]"], environ={})
    (problem,) = raised.value.problems
    assert problem.startswith(f"{CLASSES} = [") and said in problem and problem.endswith("."), problem


@pytest.mark.parametrize("filters", ['["a/+b"]', '["$share/g/a"]', "[5]", '"a"', '[""]'])
def test_each_mistake_in_capture_is_one_sentence(filters: str) -> None:
    """Filters are checked like those of classes."""
    with pytest.raises(ConfigError) as raised:
        load(sets=[f"{CAPTURE}={filters}"], environ={})
    (problem,) = raised.value.problems
    assert problem.startswith(f"{CAPTURE} = ") and "it takes" in problem


def test_eight_classes_and_many_filters_are_allowed() -> None:
    """The bounds themselves are within."""
    classes = ", ".join(_one(f"c{n}", f"c{n}/#") for n in range(8))
    config = load(sets=[f"{CLASSES}=[{classes}]", f"{CAPTURE}={json.dumps([f'c/{n}' for n in range(1000)])}"], environ={})
    assert len(config.durable_storage.messages.classes) == 8 and len(config.durable_storage.messages.capture) == 1000


@pytest.mark.parametrize(("text", "value"), [("unlimited", "unlimited"), ("1MiB", Size(2**20)), ("8GiB", Size(8 * 2**30))])
def test_a_generation_has_a_size_or_none(text: str, value: object) -> None:
    """Both forms are taken, and travel to other processes as they are."""
    config = load(sets=[f"durable_storage.messages.generation_size={text}"], environ={})
    assert config.durable_storage.messages.generation_size == value
    assert from_json(dump_json(config)) == config


@pytest.mark.parametrize("text", ["1KiB", "infinity", "none", "true"])
def test_a_generation_of_no_size_is_refused_with_one_sentence(text: str) -> None:
    """Neither so small that nothing but rolls would happen, nor another word for no limit."""
    with pytest.raises(ConfigError, match=r'generation_size = .* is not allowed: it takes a size from 1MiB to .* or "unlimited"\.'):
        load(sets=[f"durable_storage.messages.generation_size={text}"], environ={})


@given(st.text(alphabet="a/+#$é\0\ud800", max_size=12))
def test_what_is_a_filter_here_is_one_to_mqtt(text: str) -> None:
    """The two floors agree on every text."""
    try:
        check_topic_filter(text)
        valid = True
    except ProtocolError:
        valid = False
    assert is_topic_filter(text) == valid


@pytest.mark.parametrize(("text", "valid"), [("a" * 65_535, True), ("a" * 65_536, False), ("/" * 127, True), ("/" * 128, False)])
def test_the_bounds_of_a_filter_are_those_of_mqtt(text: str, valid: bool) -> None:
    """Bytes and levels."""
    assert is_topic_filter(text) is valid
    if valid:
        check_topic_filter(text)
    else:
        with pytest.raises(ProtocolError):
            check_topic_filter(text)
