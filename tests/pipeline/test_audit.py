"""Audit of messages: gaps, duplicates, order, what was promised; against a brute-force count of the same rows."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pipeline.audit import AuditError, Sequence

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SLOW = [pytest.mark.slow, pytest.mark.needs("spark"), pytest.mark.timeout(600)]


def slow(test: Any) -> Any:
    for mark in SLOW:
        test = mark(test)
    return test


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("json:n", Sequence("json", "n")), ("json:a.b", Sequence("json", "a.b")), ("property:seq", Sequence("property", "seq")),
        ("bytes:4:8", Sequence("bytes", "", 4, 8)), ("last-level", Sequence("last-level")),
    ],
)  # fmt: skip
def test_a_sequence_is_named_in_one_word(text: str, wanted: Sequence) -> None:
    """As on the command line."""
    assert Sequence.parse(text) == wanted


@pytest.mark.parametrize(
    "text", ["", "json", "json:", "json:a[0]", "json:a'b", "bytes:1", "bytes:1:9", "bytes:-1:4", "last-level:x", "xml:n"]
)
def test_what_names_no_sequence_is_said_to_name_none(text: str) -> None:
    """One sentence that lists what does."""
    with pytest.raises(AuditError, match="names no sequence: json:FIELD"):
        Sequence.parse(text)


# ---------------------------------------------------------------------------------------------------- in Spark

COLUMNS = "topic string, payload binary, client_id string, qos tinyint, shard int, offset bigint, user_properties " + (
    "array<struct<key:string,value:string>>"
)
Row = tuple[str, bytes, str, int, int, int, list[tuple[str, str]] | None]


def stored(spark: SparkSession, rows: list[Row]) -> DataFrame:
    shuffled = list(rows)
    random.Random(1).shuffle(shuffled)
    return spark.createDataFrame([(t, bytearray(p), *rest) for t, p, *rest in shuffled], COLUMNS).repartition(3)


def message(client: str, topic: str, number: Any, offset: int, qos: int = 1) -> Row:
    return (topic, json.dumps({"n": number}).encode(), client, qos, 0, offset, None)


@slow
def test_what_is_whole_is_said_to_be(spark: SparkSession) -> None:
    """Publishers and topics that count apart, two QoS that overtake each other, a publisher that begins anywhere."""
    from pipeline import audit

    rows = [message(client, topic, number, 10 * number + place)
            for place, (client, topic) in enumerate([("a", "x"), ("a", "y"), ("b", "x")]) for number in range(7, 20)]  # fmt: skip
    # Order is promised for each QoS.
    rows += [message("c", "x", 2, 1000, 0), message("c", "x", 1, 1001, 1)]
    report = audit.run(spark, stored(spark, rows), sequence="json:n")
    assert (report.rows, report.publishers, report.wrong) == (41, 4, False)
    assert report.worst == () and report.expected is None


@slow
def test_each_fault_is_counted_as_what_it_is(spark: SparkSession) -> None:
    """One fault for each publisher, so that no count can hide in another; the worst come first, with their gaps."""
    from pipeline import audit

    rows = [message("gap", "t", number, number) for number in (1, 2, 3, 7, 8, 10)]
    rows += [message("twice", "t", number, offset) for offset, number in enumerate([1, 2, 2, 3], 100)]
    rows += [message("order", "t", number, offset) for offset, number in enumerate([1, 3, 2, 4], 200)]
    # Sent again long after: once, and in no wrong place.
    rows += [message("late again", "t", number, offset) for offset, number in enumerate([1, 2, 3, 1], 300)]
    again = message("again", "t", 1, 400)
    rows += [again, again, again]
    rows += [message("unreadable", "t", number, offset) for offset, number in enumerate([1, 2, "x", None, 1.5], 500)]
    report = audit.run(spark, stored(spark, rows), sequence="json:n")
    counts = (report.missing, report.duplicates, report.disordered, report.repeated, report.unreadable, report.wrong)
    assert counts == (4, 2, 1, 2, 3, True)
    found = {each.client_id: each for each in report.worst}
    assert set(found) == {"gap", "twice", "order", "late again", "again", "unreadable"}
    assert [each.client_id for each in report.worst][:2] == ["gap", "unreadable"]
    gap = found["gap"]
    assert (gap.rows, gap.first, gap.last, gap.missing, gap.gaps) == (6, 1, 10, 4, ((4, 6), (9, 9)))
    assert (found["twice"].duplicates, found["order"].disordered, found["late again"].duplicates, found["late again"].disordered) == (
        1,
        1,
        1,
        0,
    )
    assert (found["again"].repeated, found["again"].duplicates, found["unreadable"].unreadable) == (2, 0, 3)
    assert json.loads(json.dumps(report.facts()))["worst"][0]["gaps"] == [[4, 6], [9, 9]]


@slow
def test_random_rows_are_judged_as_by_hand(spark: SparkSession) -> None:
    """Sixty publishers with whatever comes; each count of each is what a loop over its rows in order finds."""
    from pipeline import audit

    rng = random.Random(5)
    rows: list[Row] = []
    for client in range(60):
        numbers: list[Any] = list(range(rng.randrange(3), rng.randrange(4, 12)))
        for _ in range(rng.randrange(4)):
            what = rng.randrange(4)
            place = rng.randrange(len(numbers))
            if what == 0:
                numbers.insert(rng.randrange(len(numbers) + 1), numbers[place])
            elif what == 1 and len(numbers) > 2:
                del numbers[place]
            elif what == 2:
                numbers[place], numbers[-1] = numbers[-1], numbers[place]
            else:
                numbers.insert(place, "?")
        mine = [message(str(client), "t", number, rng.randrange(1 << 40), rng.randrange(2)) for number in numbers]
        mine += rng.sample(mine, rng.randrange(2))
        rows += mine
    report = audit.run(spark, stored(spark, rows), sequence="json:n", worst=100)
    wanted = by_hand(rows)
    found = {each.client_id: (each.missing, each.duplicates, each.disordered, each.repeated, each.unreadable) for each in report.worst}
    assert found == {client: counts for client, counts in wanted.items() if any(counts)}
    totals = tuple(sum(counts[place] for counts in wanted.values()) for place in range(5))
    assert (report.missing, report.duplicates, report.disordered, report.repeated, report.unreadable) == totals
    assert report.rows == len(rows) and report.publishers == 60
    assert all(totals), "the rows have all kinds of faults"


def by_hand(rows: list[Row]) -> dict[str, tuple[int, int, int, int, int]]:
    wanted = {}
    mine = defaultdict(list)
    for topic, payload, client, qos, _, offset, _ in rows:
        assert topic == "t"
        mine[client].append((offset, qos, json.loads(payload)["n"]))
    for client, of in mine.items():
        seen: set[int] = set()
        places: set[int] = set()
        highest: dict[int, int] = {}
        duplicates = disordered = repeated = unreadable = 0
        for offset, qos, number in sorted(of, key=lambda row: row[0]):
            if offset in places:
                repeated += 1
            elif not isinstance(number, int):
                unreadable += 1
            elif number in seen:
                duplicates += 1
            else:
                disordered += number < highest.get(qos, -1)
                highest[qos] = max(number, highest.get(qos, -1))
                seen.add(number)
            places.add(offset)
        missing = max(seen) - min(seen) + 1 - len(seen) if seen else 0
        wanted[client] = (missing, duplicates, disordered, repeated, unreadable)
    return wanted


@slow
def test_numbers_are_found_where_they_are_said_to_stand(spark: SparkSession) -> None:
    """In a field below another, in a user property, in bytes, in the last level of the topic, where topics that differ in it are one."""
    from pipeline import audit

    def numbered(text: str, rows: list[tuple[str, bytes, list[tuple[str, str]] | None]]) -> tuple[int, int, int]:
        made: list[Row] = [(topic, payload, "c", 1, 0, place, pairs) for place, (topic, payload, pairs) in enumerate(rows)]
        report = audit.run(spark, stored(spark, made), sequence=text)
        return report.publishers, report.missing, report.unreadable

    assert numbered(
        "json:a.b", [("t", b'{"a":{"b":1}}', None), ("t", b'{"a":{"b":"3"}}', None), ("t", b"\xff", None), ("t", b"", None)]
    ) == (1, 1, 2)
    assert numbered("property:n", [("t", b"", [("m", "9"), ("n", "1")]), ("t", b"", [("n", "2"), ("n", "9")]), ("t", b"", None)]) == (
        1,
        0,
        1,
    )
    high = (1 << 63) - 1
    rows: list[tuple[str, bytes, list[tuple[str, str]] | None]]
    rows = [("t", b"\0" + number.to_bytes(8, "big"), None) for number in (high, high - 2, 1 << 63)]
    assert numbered("bytes:1:8", [*rows, ("t", b"\0" * 8, None)]) == (1, 1, 2)
    assert numbered("last-level", [("a/1", b"", None), ("a/3", b"", None), ("b/1", b"", None), ("7", b"", None), ("a/x", b"", None)]) == (
        3,
        1,
        1,
    )
    rows = [("t", number.to_bytes(8, "big"), None) for number in (0, high)]
    assert numbered("bytes:0:8", rows) == (1, high - 1, 0)


@slow
def test_what_was_promised_and_is_not_there_is_named(spark: SparkSession, tmp_path: Path) -> None:
    """Also the last of a sequence, which leaves no gap, and a publisher of whom nothing is left; by a table, a CSV or a Parquet file."""
    from pipeline import audit

    df = stored(spark, [message("a", "t", number, number) for number in (1, 2)] + [message("b", "t", 5, 9)])
    promised = [("a", "t", 1), ("a", "t", 2), ("a", "t", 3), ("gone", "u,v", 1), ("a", "t", 3)]
    expect = spark.createDataFrame(promised, "client_id string, topic string, sequence bigint")
    (tmp_path / "expect.csv").write_text('client_id,topic,sequence\na,t,1\na,t,2\na,t,3\ngone,"u,v",1\n')
    expect.coalesce(1).write.parquet(str(tmp_path / "expect.parquet"))
    for given in (expect, str(tmp_path / "expect.csv"), str(tmp_path / "expect.parquet")):
        report = audit.run(spark, df, sequence="json:n", expect=given)
        assert (report.expected, report.lost, report.wrong, report.missing) == (4, 2, True, 0)
        assert report.lost_named == (("a", "t", 3), ("gone", "u,v", 1))
    levels = spark.createDataFrame([("c", "x/1", 1), ("c", "x/2", 2)], "client_id string, topic string, sequence bigint")
    report = audit.run(spark, stored(spark, [("x/1", b"", "c", 1, 0, 0, None)]), sequence="last-level", expect=levels)
    assert report.lost_named == (("c", "x/+", 2),)


@slow
def test_without_a_sequence_rows_that_came_twice_are_found(spark: SparkSession) -> None:
    """The identity of a stored message is enough for that."""
    from pipeline import audit

    one, other = message("a", "t", 1, 1), message("a", "t", 1, 2)
    assert not audit.run(spark, stored(spark, [one, other])).wrong
    report = audit.run(spark, stored(spark, [one, other, other]))
    assert (report.repeated, report.duplicates, report.unreadable, report.wrong) == (1, 0, 0, True)
    nothing = audit.run(spark, stored(spark, [one]).where("false"), sequence="json:n")
    assert (nothing.rows, nothing.publishers, nothing.wrong) == (0, 0, False)


@slow
def test_an_audit_that_makes_no_sense_is_one_sentence(spark: SparkSession) -> None:
    """Before anything is read."""
    from pipeline import audit

    df = stored(spark, [message("a", "t", 1, 1)])
    with pytest.raises(AuditError, match="say where that stands"):
        audit.run(spark, df, expect="x.csv")
    with pytest.raises(AuditError, match="no column payload"):
        audit.run(spark, df.drop("payload"), sequence="json:n")
    with pytest.raises(AuditError, match=r"neither \.parquet nor \.csv"):
        audit.run(spark, df, sequence="json:n", expect="x.json")
    with pytest.raises(AuditError, match="no column sequence"):
        audit.run(spark, df, sequence="json:n", expect=df)
    senseless = spark.createDataFrame([("a", "t", "seven")], "client_id string, topic string, sequence string")
    with pytest.raises(AuditError, match="'seven' for a sequence"):
        audit.run(spark, df, sequence="json:n", expect=senseless)
