"""What becomes of a message on its way: JMESPath, and templates of it."""

from __future__ import annotations

import pytest

from bridge.core import Unfit
from bridge.port import Message
from bridge.transform import transform_of
from config.bridges import Transform, pieces_of
from config.load import ConfigError, load

MESSAGE = Message(
    number=1, shard=0, position=7, topic="plant/3/temp", payload=b'{"t": 21.5, "unit": "C"}', qos=1, retain=False,
    published_at_ms=1_764_000_000_000, publisher="meter-7", user_properties=(("site", "north"),),
)  # fmt: skip


def made(message: Message = MESSAGE, **expressions: str) -> Message | None:
    return transform_of(Transform(**expressions))(message)


def test_without_words_a_message_stays_and_its_key_is_its_topic() -> None:
    """The usual case costs no document."""
    assert made() == MESSAGE._replace(key="plant/3/temp")


@pytest.mark.parametrize(
    ("where", "kept"),
    [
        ("payload.t > `20`", True),
        ("payload.t > `30`", False),
        ("payload.nothing", False),
        ("levels[1] == '3'", True),
        ("properties.site == 'north' && qos == `1`", True),
        ("retain", False),
        ("contains(topic, 'temp')", True),
    ],
)
def test_where_leaves_out_what_it_is_false_or_empty_for(where: str, kept: bool) -> None:
    """By anything that a message is."""
    assert (made(where=where) is not None) is kept


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        ("payload.t", b"21.5"),
        ("payload.unit", b"C"),
        ("{value: payload.t, from: publisher}", b'{"value": 21.5, "from": "meter-7"}'),
        ("published_at", b"2025-11-24T16:00:00.000+00:00"),
        ("[topic, payload.unit]", b'["plant/3/temp", "C"]'),
    ],
)
def test_a_payload_is_a_string_as_it_is_and_anything_else_as_json(payload: str, expected: bytes) -> None:
    """No quotes around what is text already."""
    found = made(payload=payload)
    assert found is not None and found.payload == expected


def test_topics_and_keys_are_templates() -> None:
    """Braces in the text are doubled."""
    found = made(topic="site/{levels[1]}/{properties.site}", key="{publisher}:{payload.t}")
    assert found is not None and (found.topic, found.key) == ("site/3/north", "meter-7:21.5")
    found = made(topic="{{{levels[0]}}}")
    assert found is not None and (found.topic, found.key) == ("{plant}", "{plant}")


@pytest.mark.parametrize(
    ("expressions", "why"),
    [
        ({"payload": "payload.nothing"}, "transform.payload is null"),
        ({"topic": "x/{payload.nothing}"}, "{payload.nothing} is null"),
        ({"topic": "x/{payload.unit}/#"}, "which is no topic"),
        ({"where": "length(qos)"}, "transform.where cannot be evaluated"),
    ],
)
def test_what_cannot_be_made_of_a_message_is_said_in_one_sentence(expressions: dict[str, str], why: str) -> None:
    """It becomes the reason of a dead letter."""
    with pytest.raises(Unfit) as refused:
        transform_of(Transform(**expressions))(MESSAGE)
    assert why in str(refused.value) and "\n" not in str(refused.value)


def test_a_payload_that_is_no_json_is_text_and_one_that_is_no_text_is_null() -> None:
    """Nothing is guessed."""
    found = made(MESSAGE._replace(payload=b"open"), payload="join(' ', [payload, publisher])")
    assert found is not None and found.payload == b"open meter-7"
    assert made(MESSAGE._replace(payload=b"\xff"), where="payload") is None


@pytest.mark.parametrize("template", ["{", "}", "{}", "a{b", "a}b", "{a{b}}"])
def test_braces_that_do_not_fit_are_no_template(template: str) -> None:
    """It is refused before anything is carried."""
    assert pieces_of(template) is None


@pytest.mark.parametrize(
    ("key", "value"), [("where", "a ="), ("payload", "{"), ("topic", "x/{"), ("topic", "x/{a =}"), ("key", "{a =}")]
)  # fmt: skip
def test_an_expression_that_is_none_is_refused_with_the_configuration(key: str, value: str) -> None:
    """By the key that it stands at."""
    with pytest.raises(ConfigError, match=rf"bridges\.b\.transform\.{key}"):
        load(sets=("bridges.b.filter=a", "bridges.b.jsonl.path=x", f"bridges.b.transform.{key}={value}"), environ={})
