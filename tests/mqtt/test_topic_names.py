"""Topics of messages that come together are checked all at once."""

from __future__ import annotations

from contextlib import suppress
from itertools import takewhile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqtt import decode
from mqtt.decode import DecodeError, Decoder
from mqtt.encode import encode
from mqtt.packets import PublishRun
from mqtt.reason import ProtocolError
from mqtt.reason import ReasonCode as R
from mqtt.topics import check_topic_name, valid_names
from mqtt.wire import varint
from tests.mqtt.generated import topic_names

WRONG = [b"", b"a/+", b"#", b"+", b"x\0", b"\xff", b"a\xc3", b"\xed\xa0\x80", b"/" * 8, b"a/" * 70, b"a" * 65_536]
"""With eight levels at most."""
LONG = [b"a" * 65_535, b"/" * 7, b"a/" * 7, b"aaaaaaaa" * 16, "é/水".encode()]


def _valid(topic: bytes, levels_max: int) -> bool:
    with suppress(ProtocolError):
        return check_topic_name(topic, levels_max) == topic
    return False


@given(st.lists(topic_names | st.sampled_from([*WRONG, *LONG]), max_size=6), st.integers(1, 9))
def test_many_are_valid_up_to_the_first_that_is_not_by_itself(topics: list[bytes], levels_max: int) -> None:
    """Whatever stands before it and behind it."""
    assert valid_names(topics, levels_max) == len(list(takewhile(lambda topic: _valid(topic, levels_max), topics)))


@pytest.mark.parametrize("wrong", WRONG)
def test_what_is_no_topic_name_is_none_among_others(wrong: bytes) -> None:
    """Each way to be wrong, at each place."""
    for place in range(3):
        topics = [b"a/b", b"c", *LONG]
        topics.insert(place, wrong)
        assert valid_names(topics, 8) == place


@pytest.mark.needs("interpreted")
def test_topics_that_are_valid_are_not_looked_at_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also such as are long, and such as are not in ASCII."""
    monkeypatch.delattr("mqtt.topics.check_topic_name")
    assert valid_names(LONG, 8) == len(LONG)


@pytest.mark.parametrize("version", [3, 4, 5])
@pytest.mark.parametrize("size", [1, 200, 20_000])
def test_what_comes_before_an_invalid_topic_is_decoded(version: int, size: int) -> None:
    """The topics of a run are checked all at once: the run ends before the first that is not valid, wherever that is."""
    body = b"\0" + b"x" * size
    for place in range(4):
        several = [b"a", b"b/c", b"d", b"e"]
        several[place] = b"a/+"
        wire = encode(version, PublishRun([2] * 4, [7, 8, 9, 10], several, [body] * 4))
        with pytest.raises(DecodeError) as caught:
            Decoder(version, 1 << 20).feed(wire)
        assert caught.value.reason is R.TOPIC_NAME_INVALID
        before = PublishRun([2] * place, [7, 8, 9][:place], several[:place], [body] * place)
        assert caught.value.items == ([before] if place else [])


@pytest.mark.parametrize("count", [1, 5])
def test_the_bound_on_levels_is_its_owners(count: int) -> None:
    """For a message that comes alone and for one among others."""
    wire = encode(4, PublishRun([0] * count, [0] * count, [b"a/b/c"] * count, [b"\0"] * count))
    assert len(Decoder(4, 1_000, topic_levels_max=3).feed(wire)) == 1
    with pytest.raises(DecodeError, match="topic name of 3 levels, at most 2"):
        Decoder(4, 1_000, topic_levels_max=2).feed(wire)


@pytest.mark.needs("interpreted")
def test_messages_with_a_topic_alias_are_not_gone_through_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run ends at the first without a topic; it does not read all that follow to find that out."""
    lengths = list[int]()

    def noting(topics: list[bytes], levels_max: int) -> int:
        lengths.append(len(topics))
        return valid_names(topics, levels_max)

    monkeypatch.setattr(decode, "valid_names", noting)
    content = b"\0\0\x03\x23\0\x01x"
    aliased = b"\x30" + varint(len(content)) + content
    decoder = Decoder(5, 1 << 20)
    assert len(decoder.feed(aliased * 50)) == 50
    assert sum(lengths) == 0
