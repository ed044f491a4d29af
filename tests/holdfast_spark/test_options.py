"""Options and offsets: what is read of them, and one sentence for each that is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast_spark.offsets import BadOffset, Offset, parse_offset
from holdfast_spark.options import OPTIONS, OptionError, ReadOptions, read_options
from holdfast_spark.protocol import Refused

BASE = {"brokers": "h:1", "token": "t"}
OFFSET = '{"s":{"0":5},"store":"a:1","v":1}'


def options(*, stream: bool | None = None, **given_: str) -> ReadOptions:
    return read_options({**BASE, **given_}, stream=stream)


def test_names_of_options_count_whatever_their_capitals() -> None:
    """Spark makes them small."""
    assert read_options({"BROKERS": "h:1", "ToKen": "t", "topicfilter": "a,b"}, stream=False).filters == ("a", "b")


def test_every_option_has_a_good_value_that_is_taken() -> None:
    """Each alone with what belongs to it; so no row of the table is dead."""
    good = {
        "brokers": "h:1", "token": "t", "tls": "true", "topicFilter": "a/+,b/#", "clientIds": "c,d", "shards": "1,0", "columns": "ts,topic",
        "startingOffsets": "earliest", "endingOffsets": OFFSET, "startingTimestamp": "5", "endingTimestamp": "2026-11-21T20:00:00+01:00",
        "maxRowsPerTrigger": "5", "maxBytesPerTrigger": "64MiB", "minRowsPerTrigger": "7", "maxTriggerDelay": "10 m", "minPartitions": "3",
        "maxRowsPerPartition": "9", "failOnDataLoss": "FALSE", "lease": "lake-1", "leaseTtl": "7d", "leaseMaxAge": "12h",
        "leaseMaxBytes": "10GB", "leaseBlock": "true", "capture": "x/#", "dropExpired": "true", "pushdown": "true",
        "exclude": '{"0":{"12":4711}}',
    }  # fmt: skip
    needs = {"leaseTtl": ["lease"], "leaseMaxAge": ["lease"], "leaseMaxBytes": ["lease"], "leaseBlock": ["lease"], "capture": ["lease"]}
    needs["maxTriggerDelay"] = ["minRowsPerTrigger"]
    assert good.keys() | {"tokenFile", "caFile"} == OPTIONS.keys()
    plain = options()
    for name in good:
        found = read_options(BASE | {each: good[each] for each in [name, *needs.get(name, [])]}, stream=None)
        assert found != plain or name in ("brokers", "token"), name
    found = options(
        maxBytesPerTrigger="64MiB", minRowsPerTrigger="7", maxTriggerDelay="10 m", endingTimestamp="2026-11-21T20:00:00.5+01:00"
    )
    assert (found.max_bytes, found.max_delay_ms, found.ts_before_ms) == (64 << 20, 600_000, 1_795_287_600_500)


def test_lists_may_be_json_for_what_has_commas_in_it() -> None:
    """MQTT allows commas in topics and client ids."""
    assert options(topicFilter='["a,b/#", "c"]', clientIds='["x,y"]').filters == ("a,b/#", "c")


@pytest.mark.parametrize(
    ("given_", "sentence"),
    [
        ({"topics": "a"}, "option 'topics' is unknown; wanted is one of brokers, token, "),
        ({"brokers": "h:x"}, "option brokers is 'h:x'; wanted is host:port"),
        ({"tls": "yes"}, "option tls is 'yes'; wanted is true or false"),
        (
            {"topicFilter": "a/b#"},
            "option topicFilter is 'a/b#'; wanted is topic filters such as plant/+/temp or plant/#, and 'a/b#' is none",
        ),
        ({"topicFilter": "$share/g/a"}, "wanted is topic filters"),
        ({"topicFilter": "a,,b"}, "wanted is a list without empty pieces"),
        ({"topicFilter": "[1]"}, "wanted is a list with commas between, or a JSON array of strings"),
        ({"shards": "a"}, "option shards is 'a'; wanted is numbers of shards"),
        ({"columns": "topic,user"}, "option columns is 'topic,user'; wanted is columns of the source: column 'user' is not one of topic, "),
        ({"startingOffsets": "newest"}, "option startingOffsets is 'newest'; wanted is earliest, latest, lease or an offset"),
        ({"endingOffsets": "earliest"}, "nothing is before the earliest"),
        ({"startingTimestamp": "2026-11-21T20:00:00"}, "wanted is milliseconds since 1970, or a time with its zone"),
        ({"startingTimestamp": "1", "startingOffsets": "latest"}, "options startingOffsets and startingTimestamp say the same thing twice"),
        ({"maxRowsPerPartition": "0"}, "wanted is a whole number from 1"),
        ({"maxBytesPerTrigger": "5 lots"}, "wanted is a number of bytes, or a size such as 64MiB"),
        ({"maxTriggerDelay": "5s"}, "option maxTriggerDelay is how long minRowsPerTrigger may wait, and that is not given"),
        ({"leaseTtl": "7", "lease": "a"}, "wanted is a duration with its unit"),
        ({"leaseTtl": "7d"}, "option leaseTtl belongs to a lease, and option lease is not given"),
        ({"startingOffsets": "lease"}, "offsets are to be those of a lease, and option lease is not given"),
        ({"lease": "a b"}, "option lease is 'a b'; wanted is a name"),
        ({"caFile": "/none"}, "option caFile is given and tls is not true"),
        ({"caFile": "/none", "tls": "true"}, "option caFile is '/none', which holds no certificates that can be read"),
        ({"token": ""}, "option token is not one; wanted is a text that is not empty"),
        ({"tokenFile": "/none"}, "options token and tokenFile say the same thing twice"),
    ],
)
def test_what_is_wrong_is_one_sentence(given_: dict[str, str], sentence: str) -> None:
    """The option, what was found, what is wanted."""
    with pytest.raises(OptionError) as error:
        read_options({**BASE, **given_}, stream=None)
    assert sentence in str(error.value)
    assert "\n" not in str(error.value)


def test_what_is_missing_is_one_sentence(tmp_path: Path) -> None:
    """Where to read, and with which token; a token file is read here, its first line."""
    with pytest.raises(OptionError, match="option brokers is missing"):
        read_options({"token": "t"}, stream=False)
    with pytest.raises(OptionError, match="option token is missing or empty"):
        read_options({"brokers": "h"}, stream=False)
    with pytest.raises(OptionError, match="option tokenFile is '/none/x', which cannot be read"):
        read_options({"brokers": "h", "tokenFile": "/none/x"}, stream=False)
    (tmp_path / "token").write_text("  abc \nother\n")
    assert read_options({"brokers": "h", "tokenFile": str(tmp_path / "token")}, stream=False).endpoint.token == "abc"


@pytest.mark.parametrize(("stream", "name", "value"), [(True, "endingOffsets", "latest"), (False, "maxRowsPerTrigger", "5")])
def test_options_of_the_other_kind_are_refused(stream: bool, name: str, value: str) -> None:
    """A limit that does nothing would be found out too late."""
    with pytest.raises(OptionError, match=f"option {name} is for {'batch' if stream else 'stream'} reading"):
        read_options(BASE | {name: value}, stream=stream)
    read_options(BASE | {name: value}, stream=not stream)


def test_a_token_is_in_no_text() -> None:
    """Of options that somebody prints."""
    assert "tok-secret" not in repr(read_options({"brokers": "h", "token": "tok-secret"}, stream=False))


# ---------------------------------------------------------------------------------------------- offsets


cuts = st.dictionaries(st.integers(0, 300), st.integers(0, 2**63 - 1), max_size=8)


@given(cuts, st.one_of(st.none(), st.just("lake-1")))
def test_an_offset_has_one_text(found: dict[int, int], lease: str | None) -> None:
    """However its shards were put together; and the text is the same offset."""
    first, second = Offset("a:1", found, lease), Offset("a:1", dict(reversed(found.items())), lease)
    assert first.as_json() == second.as_json()
    assert list(first.as_dict()) == list(second.as_dict()) and list(first.as_dict()["s"]) == list(second.as_dict()["s"])
    assert parse_offset(first.as_json()) == first == parse_offset(second.as_dict())


def test_the_text_of_an_offset_is_that_of_the_page() -> None:
    """Keys sorted, no blanks."""
    assert Offset("site:2", {10: 3, 2: 4}).as_json() == '{"s":{"10":3,"2":4},"store":"site:2","v":1}'
    assert Offset("site:2", {0: 1}, "l").as_json() == '{"lease":"l","s":{"0":1},"store":"site:2","v":1}'


@pytest.mark.parametrize(
    "text",
    [
        "", "[]", "{}", '{"s":{},"store":"a"}', '{"s":{},"store":"a:1","v":2}', '{"s":[],"store":"a:1","v":1}',
        '{"s":{"x":1},"store":"a:1","v":1}',
        '{"s":{"0":-1},"store":"a:1","v":1}', '{"s":{"0":1.5},"store":"a:1","v":1}', '{"s":{"0":true},"store":"a:1","v":1}',
        '{"s":{"0":9223372036854775808},"store":"a:1","v":1}', '{"s":{},"store":"a:1","v":1,"more":1}',
        '{"lease":1,"s":{},"store":"a:1","v":1}',
    ],
)  # fmt: skip
def test_what_is_no_offset_is_refused(text: str) -> None:
    """Never taken for a place."""
    with pytest.raises(BadOffset):
        parse_offset(text)


def test_an_offset_of_another_store_is_a_data_loss_error() -> None:
    """Both are named."""
    with pytest.raises(Refused, match="made by store a:1, and the reader serves a:2") as refused:
        parse_offset(OFFSET).of_store("a:2")
    assert (refused.value.code, refused.value.more) == ("STORE", {"found": "a:1", "wanted": "a:2"})
