"""Settings of bridges: what is wrong is one sentence, the file of commands counts more than the configuration's, all changes at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from config.bridges import BRIDGES_MAX
from config.changes import changes
from config.load import BRIDGES_FILE, ConfigError, load, load_with_sources
from config.loops import overlap
from config.settings import BRIDGES, named_settings

GOOD = ("bridges.b.filter=a/#", "bridges.b.jsonl.path=x")


@pytest.mark.parametrize("text", ["a", "a/#", "+/b", "#", "/", "a//b", "$SYS/#"])
def test_a_topic_filter_is_one(text: str) -> None:
    """As MQTT has them."""
    assert load(sets=(*GOOD, f"bridges.b.filter={text}"), environ={}).bridges["b"].filter == text


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ("filter=", "a topic filter without $share"),
        ("filter=a/#/b", "a topic filter without $share"),
        ("filter=a+", "a topic filter without $share"),
        ("filter=$share/g/a", "a topic filter without $share"),
        ("start=noon", '"latest", "earliest"'),
        ("jsonl.path=", "a path"),
        ("type=plugin", '"module:Class"'),
        ("retry_max=1ms", "at least 500ms, which is retry_min"),
        ("inflight_max=0", "a whole number from 1 to 20000"),
        ("dead_letter_topic=a/#", "a topic without"),
        ("filtre=a", "did you mean bridges.b.filter"),
        ("nothing.at.all=1", "a bridge has"),
    ],
)
def test_what_is_wrong_is_one_sentence(setting: str, sentence: str) -> None:
    """With the key, what was found and what is allowed."""
    with pytest.raises(ConfigError) as refused:
        load(sets=(*GOOD, f"bridges.b.{setting}"), environ={})
    key = "plugin.target" if setting == "type=plugin" else setting.partition("=")[0]
    assert any(f"bridges.b.{key}" in problem and sentence in problem for problem in refused.value.problems)


@pytest.mark.parametrize("version", ["5", "3.1.1", '"5"'])
def test_a_word_that_looks_like_a_number_is_one(version: str) -> None:
    """By --set, a variable of the environment and `holdfast bridge add` as well, quoted or not."""
    sets = (*GOOD, "bridges.b.type=mqtt", "bridges.b.mqtt.url=mqtt://there:1883", f"bridges.b.mqtt.version={version}")
    assert load(sets=sets, environ={}).bridges["b"].mqtt.version == version.strip('"')


def test_no_more_than_so_many() -> None:
    """Each holds messages in memory."""
    many = [f"bridges.b{n}.{each}" for n in range(BRIDGES_MAX + 1) for each in ("filter=a", "jsonl.path=x")]
    with pytest.raises(ConfigError, match=f"at most {BRIDGES_MAX} bridges"):
        load(sets=many, environ={})


def test_what_commands_have_set_counts_more_than_the_file_and_less_than_the_command_line(tmp_path: Path) -> None:
    """And is said to come from there; nothing else may stand in that file."""
    file, own = tmp_path / "holdfast.toml", tmp_path / BRIDGES_FILE
    file.write_text(f'data_dir = "{tmp_path}"\n[bridges.b]\nfilter = "a"\njsonl.path = "x"\nlinger = "1s"\n')
    own.write_text("[bridges.b]\npaused = true\nlinger = '2s'\n")
    given = load_with_sources(file, environ={})
    assert (given.config.bridges["b"].paused, given.config.bridges["b"].linger.ms) == (True, 2_000)
    assert given.sources["bridges.b.paused"] == str(own)
    assert load(file, sets=("bridges.b.linger=3s",), environ={}).bridges["b"].linger.ms == 3_000
    own.write_text("[mqtt]\nmax_inflight = 1\n")
    with pytest.raises(ConfigError, match="takes settings of bridges only"):
        load(file, environ={})


def test_every_setting_of_a_bridge_takes_effect_at_once() -> None:
    """Bridges come and go while the broker runs."""
    assert {setting.effect for setting in named_settings(BRIDGES).values()} == {"at once"}
    none, one, other = (load(sets=sets, environ={}) for sets in ((), GOOD, (*GOOD, "bridges.b.paused=true")))
    for before, after in ((none, one), (one, other), (one, none)):
        found = changes(before, after, 1)
        assert found.config.bridges == after.bridges and not found.at_next_start and found.applied


IN = ("bridges.i.direction=in", "bridges.i.type=mqtt", "bridges.i.mqtt.url=mqtt://there", "bridges.i.filter=a/#")
OUT = ("bridges.o.type=mqtt", "bridges.o.mqtt.url=mqtt://there:1883", "bridges.o.filter=a/+/b")
OLD = "bridges.i.mqtt.version=3.1.1"


@pytest.mark.parametrize(
    ("settings", "loops"),
    [
        ((), False),
        ((OLD,), True),
        (("bridges.o.mqtt.version=3.1.1",), True),
        ((OLD, "bridges.i.filter=b/#"), False),
        ((OLD, "bridges.o.mqtt.url=mqtt://elsewhere"), False),
        ((OLD, "bridges.i.transform.topic=from-there/{topic}"), False),
        ((OLD, "bridges.o.transform.topic=from-here/{topic}"), False),
        ((OLD, "bridges.i.transform.topic=a/{topic}"), True),
        ((OLD, "bridges.i.transform.topic={topic}/b"), True),
        ((OLD, "bridges.i.transform.topic=a/x/b"), True),
        ((OLD, "bridges.i.filter=#"), True),
    ],
)
def test_without_marks_two_bridges_of_one_broker_keep_their_topics_apart(settings: tuple[str, ...], loops: bool) -> None:
    """MQTT 3.1.1 has nothing that could end a loop; a template is taken for all topics that begin as it does."""
    if not loops:
        assert set(load(sets=(*IN, *OUT, *settings), environ={}).bridges) == {"i", "o"}
        return
    with pytest.raises(ConfigError, match="keeps it apart from what o carries to that broker"):
        load(sets=(*IN, *OUT, *settings), environ={})


@pytest.mark.parametrize(
    ("one", "other", "meet"),
    [
        ("a", "a", True), ("a", "b", False), ("a/#", "a", True), ("a/#", "a/b/c", True), ("+/b", "a/+", True), ("+", "a/b", False),
        ("#", "x/y", True), ("a/+/c", "a/b/d", False), ("a/b", "a/b/c", False), ("a/b/#", "a/+", True),
    ],
)  # fmt: skip
def test_two_filters_meet_where_some_topic_matches_both(one: str, other: str, meet: bool) -> None:
    """Whichever is named first."""
    assert overlap(one, other) is meet and overlap(other, one) is meet


def test_what_brings_messages_in_is_a_broker_and_one_connection() -> None:
    """Everything else has no direction."""
    for setting, sentence in (("type=http", '"mqtt", while direction'), ("parallel=2", '1, while direction is "in"')):
        with pytest.raises(ConfigError, match=sentence):
            load(sets=(*IN, f"bridges.i.{setting}"), environ={})
