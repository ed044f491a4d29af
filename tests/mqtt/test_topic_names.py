"""Topics of messages are checked once, many at a time, and are remembered as one object each."""

from __future__ import annotations

import pytest

from mqtt import topics
from mqtt.decode import DecodeError, Decoder
from mqtt.encode import encode
from mqtt.packets import PublishRun
from mqtt.reason import ReasonCode as R
from mqtt.topics import TopicNames
from mqtt.wire import varint


def test_an_invalid_topic_is_not_remembered_as_valid() -> None:
    """The memory of checked topics takes none that was refused, and forgets nothing that matters when full."""
    names = TopicNames(count_max=2)
    for _ in range(2):
        for topic in (b"a/+", b"\xff", b"", b"x\0"):
            with pytest.raises(DecodeError):
                Decoder(4, 1000, names=names).feed(encode(4, PublishRun([0], [0], [topic], [b"\0"])))
    for topic in (b"a", b"b", b"c", b"a", b"long" * 100):
        run = PublishRun([0], [0], [topic], [b"\0"])
        assert Decoder(4, 1000, names=names).feed(encode(4, run)) == [run]
    assert len(names.known) <= 2


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
            Decoder(version, 1 << 20, names=TopicNames()).feed(wire)
        assert caught.value.reason is R.TOPIC_NAME_INVALID
        before = PublishRun([2] * place, [7, 8, 9][:place], several[:place], [body] * place)
        assert caught.value.items == ([before] if place else [])


@pytest.mark.needs("interpreted")
def test_messages_with_a_topic_alias_are_not_gone_through_again_and_again() -> None:
    """A run ends at the first without a topic; it does not read all that follow to find that out."""
    names = TopicNames()
    lengths = list[int]()

    class Noting(TopicNames):
        def valid(self, topics: list[bytes]) -> list[bytes]:
            lengths.append(len(topics))
            return names.valid(topics)

    content = b"\0\0\x03\x23\0\x01x"
    aliased = b"\x30" + varint(len(content)) + content
    decoder = Decoder(5, 1 << 20, names=Noting())
    assert len(decoder.feed(aliased * 50)) == 50
    assert sum(lengths) == 0


@pytest.mark.needs("interpreted")
def test_a_topic_that_comes_again_is_not_checked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of as many as are remembered none is, in whatever order they come; for one more the first is forgotten, and no other."""
    names, checked = TopicNames(count_max=8), list[bytes]()
    monkeypatch.setattr(topics, "check_topic_name", lambda topic, levels_max: checked.append(topic))
    several = [b"t/%d" % number for number in range(8)]
    for _ in range(3):
        for topic in (*several, *reversed(several)):
            names.check(topic)
    assert checked == several
    for topic in (b"new", *several[1:], b"new", several[0], *several[2:]):
        names.check(topic)
        assert len(names.known) == 8
    assert checked == [*several, b"new", several[0]]


def test_equal_topics_are_one_object() -> None:
    """However many messages and connections have them, and whatever was remembered between them."""
    names = TopicNames(count_max=5)
    wire = encode(4, PublishRun([0] * 3, [0] * 3, [b"a", b"b", b"a"], [b"\0"] * 3))
    seen = list[bytes]()
    for number in range(4):
        (run,) = Decoder(4, 1000, names=names).feed(wire)
        assert isinstance(run, PublishRun) and run.topics == [b"a", b"b", b"a"]
        seen += run.topics
        names.check(b"other/%d" % number)
    assert len({id(topic) for topic in seen}) == 2
