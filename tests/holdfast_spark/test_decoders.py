"""Payloads to columns, in a query."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.needs("spark"), pytest.mark.timeout(600)]

JSON = ("plant/+/temp", "json", "celsius DOUBLE, unit STRING")


def messages(spark: SparkSession, *rows: tuple[str, bytes | None]) -> DataFrame:
    made = [(topic, None if payload is None else bytearray(payload), 0, offset) for offset, (topic, payload) in enumerate(rows)]
    return spark.createDataFrame(made, "topic string, payload binary, shard int, offset bigint").repartition(2)


def columns(df: DataFrame, *names: str) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in df.orderBy("offset").selectExpr(*names).collect()]


POISON: list[bytes | None] = [
    b"", None, b"null", b"[]", b'[{"celsius":1}]', b'{"celsius":"warm","unit":"C"}', b'{"celsius":1', b"{'celsius':1}", b'{"celsius":NaN}',
    b"12",
    b"[" * 50_000, b'{"a":' * 5_000 + b"1" + b"}" * 5_000, b'{"unit":"\xff"}', b"\x00", b" ",
]  # fmt: skip


def test_json_is_read_by_topic_and_poison_is_a_row_of_nulls(spark: SparkSession) -> None:
    """Every column of a payload that does not fit is null, also those that would; each has its reason; no row is missing."""
    from holdfast_spark.decoders import decode

    good = [
        ("plant/1/temp", b'{"celsius":21.5,"unit":"C","more":[1]}'),
        ("plant/1/temp", b'{"unit":"F"}'),
        ("plant/1", b"{"),
        ("$SYS/x", b""),
    ]
    df = messages(spark, *good, *(("plant/2/temp", poison) for poison in POISON))
    found = columns(decode(df, [JSON]), "celsius", "unit", "_decode_error")
    assert found[:4] == [(21.5, "C", None), (None, "F", None), (None, None, None), (None, None, None)]
    assert len(found) == 4 + len(POISON)
    for poison, row in zip(POISON, found[4:], strict=True):
        assert row[:2] == (None, None) and row[2], f"{poison!r:.40}: {row}"
    reasons = [row[2] for row in found[4:]]
    assert reasons[0] == reasons[1] == "it is empty"
    assert reasons[5] == "it is JSON that does not fit struct<celsius:double,unit:string>"
    assert reasons[6] == "it is not JSON"
    assert reasons[12] == "it is not UTF-8"


def test_formats_stand_side_by_side(spark: SparkSession) -> None:
    """Each topic by the first rule that matches; columns of the same name and type are one; a variant takes what it gets."""
    import cbor2
    import msgpack

    from holdfast_spark.decoders import decode

    df = messages(
        spark, ("plant/1/temp", b'{"celsius":1.5}'), ("c/1", cbor2.dumps({"celsius": 2})), ("c/1", cbor2.dumps({"celsius": "x"})),
        ("c/special", b'{"celsius":3.5}'), ("m", msgpack.packb({"n": 1 << 40})), ("m", msgpack.packb({"n": 1})[:-1]),
        ("v", cbor2.dumps({"a": [1, b"x"]})), ("w", b'{"b":{"c":null}}'), ("w", b"{"),
    )  # fmt: skip
    rules = [JSON, ("c/special", "json", "celsius DOUBLE"), ("c/#", "cbor", "celsius DOUBLE"), ("m", "msgpack", "n BIGINT")]
    made = decode(df, [*rules, ("v", "cbor", "variant"), ("w", "json", "variant")], prefix="p_")
    assert made.columns == ["topic", "payload", "shard", "offset", "p_celsius", "p_unit", "p_n", "p_value", "_decode_error"]
    found = columns(made, "p_celsius", "p_n", "to_json(p_value)", "_decode_error")
    assert [row[0] for row in found] == [1.5, 2.0, None, 3.5, None, None, None, None, None]
    assert [row[1] for row in found] == [None, None, None, None, 1 << 40, None, None, None, None]
    assert [row[2] for row in found] == [None, None, None, None, None, None, '{"a":[1,"eA=="]}', '{"b":{"c":null}}', None]
    assert [row[3] for row in found] == [
        None, None, "celsius: a text is where a number is wanted", None, None, "it ends in the middle", None, None, "it is not JSON",
    ]  # fmt: skip


def test_failfast_names_the_message(spark: SparkSession) -> None:
    """Topic, shard, offset and reason, and never the payload; also when no decoded column is asked for."""
    from holdfast_spark.decoders import decode

    df = messages(spark, ("plant/1/temp", b'{"celsius":1}'), ("plant/7/temp", b'{"celsius":"secret"}'))
    with pytest.raises(
        Exception, match="topic plant/7/temp, shard 0, offset 1: it is JSON that does not fit struct<celsius:double"
    ) as caught:
        decode(df, [JSON], "FAILFAST").count()
    assert "secret" not in str(caught.value)
    good = decode(df.where("offset = 0"), [JSON], "FAILFAST")
    assert good.columns == ["topic", "payload", "shard", "offset", "celsius", "unit"] and good.count() == 1


def test_drop_counts_what_it_leaves_out(spark: SparkSession) -> None:
    """An observed metric, which a stream has in its progress too; topics without a rule stay."""
    from pyspark.sql import Observation

    from holdfast_spark.decoders import decode

    df = messages(spark, ("plant/1/temp", b'{"celsius":1}'), ("plant/1/temp", b"{"), ("plant/1/temp", b""), ("other", b"{"))
    seen = Observation("dropped")
    assert columns(decode(df, [JSON], "DROP", dropped=seen), "offset") == [(0,), (3,)]
    assert seen.get == {"dropped": 2}


def test_a_stream_is_decoded_and_counts_as_well(spark: SparkSession, tmp_path: Any) -> None:
    """The same function on a stream: JSON and an Arrow format; its progress says what was dropped."""
    import cbor2

    from holdfast_spark.decoders import DROPPED, RuleError, decode

    messages(spark, ("plant/1/temp", b'{"celsius":1}'), ("plant/1/temp", b"{"), ("c", cbor2.dumps({"n": 7})), ("c", b"\xff")).write.parquet(
        str(tmp_path / "in")
    )
    stream = spark.readStream.schema("topic string, payload binary, shard int, offset bigint").parquet(str(tmp_path / "in"))
    with pytest.raises(RuleError, match="give the schema"):
        decode(stream, [("c", "cbor")])
    made = decode(stream, [JSON, ("c", "cbor", "n BIGINT")], "DROP")
    query = made.writeStream.format("memory").queryName("decoded").trigger(availableNow=True).start()
    assert query.awaitTermination(120)
    assert {tuple(row) for row in spark.table("decoded").select("celsius", "n").collect()} == {(1.0, None), (None, 7)}
    assert sum(progress["observedMetrics"][DROPPED]["dropped"] for progress in query.recentProgress if progress["observedMetrics"]) == 2


def test_columns_are_inferred_from_a_sample(spark: SparkSession) -> None:
    """Of the topics of the rule that no earlier rule has; unreadable payloads say nothing."""
    import cbor2

    from holdfast_spark.decoders import RuleError, decode

    df = messages(spark, ("a/1", b'{"x":1}'), ("a/2", b'{"x":2.5,"y":"q"}'), ("a/3", b"{"), ("a/b", cbor2.dumps({"z": True})))
    made = decode(df, [("a/b", "cbor"), ("a/+", "json")])
    assert made.schema.simpleString().endswith("z:boolean,x:double,y:string,_decode_error:string>")
    assert columns(made, "x", "y", "z")[:2] == [(1.0, None, None), (2.5, "q", None)]
    with pytest.raises(RuleError, match="no readable json payload"):
        decode(df, [("b", "json")])


def test_rules_that_make_no_sense_are_one_sentence_each(spark: SparkSession) -> None:
    """Before anything runs."""
    from holdfast_spark.decoders import Rule, RuleError, decode

    df = messages(spark, ("a", b""))
    wrong: list[tuple[list[Any], str]] = [
        ([], "no rules"),
        ([("a", "xml", "x INT")], "'xml' is no format: one of json, cbor, msgpack"),
        ([("a/#/b", "json", "x INT")], "# is the last level"),
        ([("a", "json", "x WHAT")], "is no schema"),
        ([("a", "json", "bigint")], "is no schema"),
        ([("a", "cbor", "x VARIANT")], "VARIANT is read from JSON only"),
        ([("a", "json", "x INT"), ("b", "cbor", "x STRING")], "the column x is int for a and string for b"),
        ([("a", "json", "Topic STRING")], "prefix="),
    ]
    for rules, sentence in wrong:
        with pytest.raises(RuleError) as caught:
            decode(df, rules)
        assert sentence in str(caught.value) and "\n" not in str(caught.value)
    with pytest.raises(RuleError, match="PERMISSIVE, FAILFAST, DROP"):
        decode(df, [JSON], "LENIENT")  # type: ignore[arg-type]  # what a notebook may say
    with pytest.raises(RuleError, match="no column payload"):
        decode(df.drop("payload"), [JSON])
    assert Rule.parse("a=b/+=json: x INT") == Rule("a=b/+", "json", "x INT")
    with pytest.raises(RuleError, match="is no rule"):
        Rule.parse("a=xml:x INT")
