"""Audit: of each publisher and topic, whether every message is there, once, and in its order.

    audit.run(spark, {"topicFilter": "plant/#"}, sequence="json:n", expect="acknowledged.parquet")

Messages carry a number that their publisher counts up; where it stands says a Sequence. What was promised may be named one by one
(`expect`): then what is lost is known by name, at the end of a sequence as well, where no gap shows. What lies in an archive is compared
with the store by pipeline.verify.

What always holds:

1. a row counts as exactly one of: first with its number, duplicate (another row with that number), repeated (the very same stored message
   once more: same shard, same offset), unreadable (no number in it);
2. order is judged among first ones by shard and offset, as sessions get them: per publisher, topic and QoS, which is what is promised;
3. the driver holds `worst` publishers and NAMED_MAX messages, however many there are; the rest stays in Spark, which spills.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

WORST: Final = 20
NAMED_MAX: Final = 100
GAPS_MAX: Final = 10
"""Of one publisher and topic."""
EXPECTED: Final = ("client_id", "topic", "sequence")


class AuditError(ValueError):
    """What was asked for makes no sense; one sentence."""


@dataclass(frozen=True, slots=True)
class Sequence:
    """Where the number of a message stands."""

    kind: Literal["json", "property", "bytes", "last-level"]
    name: str = ""
    """Of the field, dots between the levels; or of the user property."""
    start: int = 0
    length: int = 0

    @classmethod
    def parse(cls, text: str) -> Sequence:
        kind, _, rest = text.partition(":")
        if kind == "last-level" and not rest:
            return cls("last-level")
        if kind == "json" and rest and not set(rest) & set("'[]$*\\"):
            return cls("json", rest)
        if kind == "property" and rest:
            return cls("property", rest)
        if kind == "bytes":
            start, _, length = rest.partition(":")
            if start.isdecimal() and length.isdecimal() and 1 <= int(length) <= 8 and int(start) < 1 << 28:
                return cls("bytes", "", int(start), int(length))
        raise AuditError(
            f"{text!r} names no sequence: json:FIELD, property:NAME, bytes:OFFSET:LENGTH (big-endian, 1 to 8) or last-level is wanted"
        )

    def number(self) -> Column:
        """Null where there is none."""
        from pyspark.sql import functions as f

        payload = f.col("payload")
        if self.kind == "json":
            path = "$" + "".join(f"['{level}']" for level in self.name.split("."))
            text = f.get_json_object(payload.cast("string"), path)
        elif self.kind == "property":
            named = f.filter(f.col("user_properties"), lambda pair: pair["key"] == self.name)
            text = f.get(named, 0)["value"]
        elif self.kind == "bytes":
            cut = f.when(f.octet_length(payload) >= self.start + self.length, f.substring(payload, self.start + 1, self.length))
            text = f.conv(f.hex(cut), 16, 10)
        else:
            text = f.element_at(f.split(f.col("topic"), "/"), -1)
        return text.try_cast("bigint")

    def topic(self) -> Column:
        """What the numbers of a publisher are counted in."""
        from pyspark.sql import functions as f

        if self.kind != "last-level":
            return f.col("topic")
        levels = f.split(f.col("topic"), "/")
        return f.array_join(f.array_append(f.slice(levels, 1, f.size(levels) - 1), f.lit("+")), "/")


@dataclass(frozen=True, slots=True)
class Publisher:
    """One publisher and topic of which something is wrong."""

    client_id: str
    topic: str
    rows: int
    first: int | None
    last: int | None
    missing: int
    duplicates: int
    disordered: int
    repeated: int
    unreadable: int
    gaps: tuple[tuple[int, int], ...]
    """The first GAPS_MAX: first and last number that is missing."""


@dataclass(frozen=True, slots=True)
class Report:
    """What was found; numbers are of rows or of numbers of sequences."""

    sequence: str | None
    rows: int
    publishers: int
    missing: int
    duplicates: int
    disordered: int
    repeated: int
    unreadable: int
    expected: int | None
    """How many messages were promised; None: nobody said."""
    lost: int
    lost_named: tuple[tuple[str, str, int], ...]
    worst: tuple[Publisher, ...]
    damage: tuple[str, ...] = ()
    """Of the archive, one sentence each."""
    archived_units: int | None = None

    @property
    def wrong(self) -> bool:
        counts = (self.missing, self.duplicates, self.disordered, self.repeated, self.unreadable, self.lost)
        return any(counts) or bool(self.damage)

    def facts(self) -> dict[str, Any]:
        """As JSON: fields are added, never renamed."""
        worst = [{name: getattr(each, name) for name in Publisher.__slots__} for each in self.worst]
        lost = [dict(zip(EXPECTED, each, strict=True)) for each in self.lost_named]
        return {
            "wrong": self.wrong, "sequence": self.sequence, "rows": self.rows, "publishers": self.publishers, "missing": self.missing,
            "duplicates": self.duplicates, "disordered": self.disordered, "repeated": self.repeated, "unreadable": self.unreadable,
            "expected": self.expected, "lost": self.lost, "lost_named": lost, "worst": worst,
            "archived_units": self.archived_units, "damage": list(self.damage),
        }  # fmt: skip


def run(
    spark: SparkSession,
    source: DataFrame | Mapping[str, str],
    *,
    sequence: Sequence | str | None = None,
    expect: DataFrame | str | None = None,
    worst: int = WORST,
) -> Report:
    """Audit messages: a DataFrame with the columns of the source, or options of `format("holdfast")`.

    expect: what publishers were promised, as a table or the path of a Parquet or CSV file (with a header): client_id, topic, sequence.
    """
    if isinstance(sequence, str):
        sequence = Sequence.parse(sequence)
    if expect is not None and sequence is None:
        raise AuditError("what is expected is named by its number: say where that stands with a sequence")
    df = spark.read.format("holdfast").options(**source).load() if isinstance(source, Mapping) else source
    rows = _rows(df, sequence)
    judged = _judged(rows).persist()
    try:
        return _report(spark, rows, judged, sequence, expect, worst)
    finally:
        judged.unpersist()


def _rows(df: DataFrame, sequence: Sequence | None) -> DataFrame:
    """publisher, topic, qos, shard, offset, number; no more than that goes through the sorts."""
    from pyspark.sql import functions as f

    wanted = {"client_id", "topic", "shard", "offset"} | ({"payload"} if sequence and sequence.kind in ("json", "bytes") else set())
    if sequence and sequence.kind == "property":
        wanted.add("user_properties")
    if missing := sorted(wanted - set(df.columns)):
        raise AuditError(f"there is no column {missing[0]} to audit: the columns are {', '.join(df.columns)}")
    return df.select(
        "client_id",
        (sequence.topic() if sequence else f.col("topic")).alias("topic"),
        (f.col("qos") if "qos" in df.columns else f.lit(0)).alias("qos"),
        "shard",
        "offset",
        (sequence.number() if sequence else f.lit(None).cast("bigint")).alias("number"),
        f.lit(sequence is not None).alias("numbered"),
    )


def _judged(rows: DataFrame) -> DataFrame:
    """One row for each publisher and topic."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    # Without a number a row is compared with what has its own place.
    same = Window.partitionBy("client_id", "topic", "number", f.when(f.col("number").isNull(), f.col("offset"))).orderBy("shard", "offset")
    again = (f.lag("shard").over(same) == f.col("shard")) & (f.lag("offset").over(same) == f.col("offset"))
    marked = rows.select("*", f.coalesce(again, f.lit(False)).alias("repeated"), (f.row_number().over(same) == 1).alias("first_of_number"))
    first = f.col("first_of_number") & f.col("number").isNotNull()
    earlier = Window.partitionBy("client_id", "topic", "qos").orderBy("shard", "offset").rowsBetween(Window.unboundedPreceding, -1)
    ordered = marked.withColumn("before", f.max(f.when(first, f.col("number"))).over(earlier))
    one = f.lit(1)

    def count(what: Column) -> Column:
        return f.count(f.when(what, one))

    repeated = f.col("repeated")
    counted = ordered.groupBy("client_id", "topic").agg(
        f.count(one).alias("rows"),
        f.min("number").alias("first"),
        f.max("number").alias("last"),
        count(first).alias("distinct"),
        count(f.col("number").isNotNull() & ~f.col("first_of_number") & ~repeated).alias("duplicates"),
        count(first & (f.col("number") < f.col("before"))).alias("disordered"),
        count(repeated).alias("repeated"),
        count(f.col("numbered") & f.col("number").isNull() & ~repeated).alias("unreadable"),
    )
    # Numbers from both ends of 64 bits are further apart than 64 bits hold.
    span = f.col("last").cast("decimal(21,0)") - f.col("first").cast("decimal(21,0)") + 1
    return counted.withColumn("missing", f.coalesce(span - f.col("distinct"), f.lit(0)).cast("decimal(21,0)")).drop("distinct")


COUNTS: Final = ("missing", "duplicates", "disordered", "repeated", "unreadable")


def _report(
    spark: SparkSession, rows: DataFrame, judged: DataFrame, sequence: Sequence | None, expect: DataFrame | str | None, worst: int
) -> Report:
    from pyspark.sql import functions as f

    totals = judged.agg(
        f.count(f.lit(1)).alias("publishers"), f.sum("rows").alias("rows"), *(f.sum(name).alias(name) for name in COUNTS)
    ).first()
    assert totals is not None
    sums = {name: int(totals[name] or 0) for name in COUNTS}
    amiss = f.col("missing") + f.col("duplicates") + f.col("disordered") + f.col("repeated") + f.col("unreadable")
    found = judged.withColumn("amiss", amiss).where("amiss > 0").orderBy(f.desc("amiss"), "client_id", "topic").limit(worst).collect()
    gaps = _gaps(rows, [(row.client_id, row.topic) for row in found if row.missing])
    expected: int | None = None
    lost, named = 0, list[tuple[str, str, int]]()
    if expect is not None:
        assert sequence is not None
        expected, lost, named = _lost(rows, _expected(spark, expect, sequence))
    return Report(
        sequence=None if sequence is None else sequence.kind,
        rows=int(totals["rows"] or 0),
        publishers=totals["publishers"],
        missing=sums["missing"],
        duplicates=sums["duplicates"],
        disordered=sums["disordered"],
        repeated=sums["repeated"],
        unreadable=sums["unreadable"],
        expected=expected,
        lost=lost,
        lost_named=tuple(named),
        worst=tuple(
            Publisher(
                row.client_id, row.topic, row.rows, row["first"], row["last"], **{name: int(row[name]) for name in COUNTS},
                gaps=tuple(gaps.get((row.client_id, row.topic), ())),
            )
            for row in found
        ),
    )  # fmt: skip


def _gaps(rows: DataFrame, publishers: list[tuple[str, str]]) -> dict[tuple[str, str], list[tuple[int, int]]]:
    """The rows are read once more for this, and only when something is missing."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    if not publishers:
        return {}
    mine = f.lit(False)
    for client, topic in publishers:
        mine |= f.col("client_id").eqNullSafe(client) & (f.col("topic") == topic)
    by_number = Window.partitionBy("client_id", "topic").orderBy("number")
    before = f.lag("number").over(by_number)
    numbers = rows.where(mine & f.col("number").isNotNull()).select("client_id", "topic", "number").distinct().withColumn("before", before)
    # Not a difference: it may be more than 64 bits hold.
    holes = numbers.where(f.col("number") > f.try_add(f.col("before"), f.lit(1)))
    nth = holes.withColumn("nth", f.row_number().over(by_number)).where(f.col("nth") <= GAPS_MAX).orderBy("client_id", "topic", "number")
    found: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for row in nth.collect():
        found.setdefault((row.client_id, row.topic), []).append((row.before + 1, row.number - 1))
    return found


def _expected(spark: SparkSession, expect: DataFrame | str, sequence: Sequence) -> DataFrame:
    if isinstance(expect, str):
        if expect.endswith(".csv"):
            expect = spark.read.csv(expect, header=True, escape='"')
        elif expect.endswith(".parquet"):
            expect = spark.read.parquet(expect)
        else:
            raise AuditError(f"{expect!r} is neither .parquet nor .csv")
    if absent := [name for name in EXPECTED if name not in expect.columns]:
        raise AuditError(
            f"what is expected has no column {absent[0]}: {', '.join(EXPECTED)} are wanted, found are {', '.join(expect.columns)}"
        )
    from pyspark.sql import functions as f

    number = f.col("sequence").try_cast("bigint")
    return expect.select(
        "client_id", sequence.topic().alias("topic"), number.alias("number"), f.col("sequence").cast("string").alias("as_text")
    )


def _lost(rows: DataFrame, expected: DataFrame) -> tuple[int, int, list[tuple[str, str, int]]]:
    from pyspark.sql import functions as f

    if (senseless := expected.where(f.col("number").isNull()).select("as_text").first()) is not None:
        raise AuditError(f"what is expected has {senseless.as_text!r} for a sequence: a whole number of 64 bits is wanted")
    wanted = expected.drop("as_text").distinct()
    there = rows.select("client_id", "topic", "number")
    lost = wanted.join(there, ["client_id", "topic", "number"], "left_anti").persist()
    try:
        named = lost.orderBy("client_id", "topic", "number").limit(NAMED_MAX).collect()
        return wanted.count(), lost.count(), [(row.client_id, row.topic, row.number) for row in named]
    finally:
        lost.unpersist()
