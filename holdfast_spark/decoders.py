"""Payloads to columns: which topics hold which format, and what becomes of a payload that is not what was said.

    decode(df, [Rule("plant/+/temp", "json", "celsius DOUBLE"), Rule("meters/#", "cbor", "kwh DOUBLE, at TIMESTAMP")])

JSON is read on the JVM by Spark's own from_json, CBOR and MessagePack in Python an Arrow batch at a time (holdfast_spark.payloads).
The first rule whose filter matches a topic is the one; topics without a rule get nulls, and that is no error.

What always holds: a row comes out at most once, with all columns it came with.  A payload that cannot be read as its rule says has nulls
in every decoded column, never in some of them, and `_decode_error` says why; FAILFAST ends the query instead, DROP leaves the row out and
counts it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, Literal, get_args

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as f
from pyspark.sql import types as t
from pyspark.sql.pandas.types import to_arrow_type

from holdfast_spark.inference import inferred
from holdfast_spark.payloads import ERROR_FIELD, RULE_FIELD, Format, Plan, Unreadable, coerced, levels_of, load, matches, regex_of

Mode = Literal["PERMISSIVE", "FAILFAST", "DROP"]
INFER: Final = "infer"
VARIANT: Final = "variant"
SAMPLE_ROWS: Final = 1_000
DROPPED: Final = "holdfast_dropped"
"""Name of the observed metric that counts what DROP left out: a query listener and a stream's progress have it under this name."""
_JSON: Final = "_decode_json_"
_TEXT: Final = "_decode_text"
# What JSON is, and not what some take for it.
_OPTIONS: Final = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": "_corrupt",
    "allowSingleQuotes": "false",
    "allowNonNumericNumbers": "false",
}


class RuleError(ValueError):
    """The rules make no sense, alone or together; one sentence."""


@dataclass(frozen=True, slots=True)
class Rule:
    """Payloads of these topics are in this format, with these columns."""

    topics: str
    """A topic filter."""
    format: Format
    schema: str = INFER
    """Columns as in CREATE TABLE, or "infer": those that a sample has, or "variant": one column of that type, `value`."""

    @classmethod
    def parse(cls, text: str) -> Rule:
        """From `FILTER=FORMAT` or `FILTER=FORMAT:SCHEMA`, as on the command line; a filter may hold =, a format does not."""
        for number, char in enumerate(text):
            format, _, schema = text[number + 1 :].partition(":")
            if char == "=" and format in get_args(Format):
                return cls(text[:number], format, schema.strip() or INFER)  # type: ignore[arg-type]  # looked up just before
        raise RuleError(f"{text!r} is no rule: FILTER=FORMAT:SCHEMA is wanted, with one of the formats {', '.join(get_args(Format))}")


@dataclass(frozen=True, slots=True)
class _Read:
    """A rule, with what it makes."""

    rule: Rule
    levels: tuple[str, ...]
    schema: t.StructType | None
    """None: a variant."""

    @property
    def in_python(self) -> bool:
        return self.rule.format != "json"

    @property
    def columns(self) -> list[tuple[str, t.DataType]]:
        return [("value", t.VariantType())] if self.schema is None else [(field.name, field.dataType) for field in self.schema.fields]


def decode(
    df: DataFrame,
    rules: Sequence[Rule | tuple[str, str] | tuple[str, str, str]],
    mode: Mode = "PERMISSIVE",
    *,
    prefix: str = "",
    dropped: Observation | str = DROPPED,
) -> DataFrame:
    """The messages with the columns of all rules, their names after `prefix`; with PERMISSIVE also `_decode_error`.

    dropped: where DROP counts, as a metric of the same name as the observation has: `dropped`.  "infer" reads a sample of a batch at once;
    of a stream it cannot be known beforehand, so there a schema has to be given.
    """
    if mode not in get_args(Mode):
        raise RuleError(f"{mode!r} is no mode: one of {', '.join(get_args(Mode))} is wanted")
    for name in ("topic", "payload"):
        if name not in df.columns:
            raise RuleError(f"there is no column {name} to decode: the columns are {', '.join(df.columns)}")
    # Whether the format of a tuple is one is looked up in a moment.
    given = [each if isinstance(each, Rule) else Rule(*each) for each in rules]
    reads = _resolved(df, given)
    columns = _columns(reads, df.columns, prefix)
    if any(read.in_python for read in reads):
        made = _in_python(df, reads, columns, prefix)
    else:
        made = df.withColumns({RULE_FIELD: _number(reads), ERROR_FIELD: f.lit(None).cast("string")})
    made = _on_jvm(made, reads, columns, prefix)
    kept = [f.col(f"`{name}`") for name in df.columns]
    made = made.select(*kept, *(f.col(f"`{prefix}{name}`") for name in columns), ERROR_FIELD)
    return _judged(made, mode, dropped)


# ---------------------------------------------------------------------------------------------------- rules


def _resolved(df: DataFrame, rules: Iterable[Rule]) -> list[_Read]:
    reads: list[_Read] = []
    for rule in rules:
        if rule.format not in get_args(Format):
            raise RuleError(f"{rule.topics}: {rule.format!r} is no format: one of {', '.join(get_args(Format))} is wanted")
        try:
            levels = tuple(levels_of(rule.topics))
        except ValueError as error:
            raise RuleError(str(error)) from None
        schema = _schema(df, rule, levels, [read.levels for read in reads])
        reads.append(_Read(rule, levels, schema))
    if not reads:
        raise RuleError("there are no rules: nothing would be decoded")
    return reads


def _schema(df: DataFrame, rule: Rule, levels: tuple[str, ...], earlier: list[tuple[str, ...]]) -> t.StructType | None:
    if rule.schema.strip().lower() == VARIANT:
        return None
    if rule.schema.strip().lower() == INFER:
        return _sampled(df, rule, levels, earlier)
    try:
        schema = t.StructType.fromDDL(rule.schema)
    except Exception as error:  # the JVM's parser, with a page of its own about it
        raise RuleError(f"{rule.topics}: {rule.schema!r} is no schema: {str(error).strip().splitlines()[0]}") from None
    if not isinstance(schema, t.StructType):
        raise RuleError(f"{rule.topics}: {rule.schema!r} is no schema: columns with names are wanted")
    if rule.format != "json":
        try:
            for field in schema.fields:
                coerced(field.dataType)
        except ValueError as error:
            raise RuleError(f"{rule.topics}: {error}") from None
    return schema


def _sampled(df: DataFrame, rule: Rule, levels: tuple[str, ...], earlier: list[tuple[str, ...]]) -> t.StructType:
    if df.isStreaming:
        raise RuleError(f"{rule.topics}: of a stream nothing can be inferred beforehand: give the schema")
    rows = df.where(f.col("topic").rlike(regex_of(rule.topics))).select("topic", "payload").limit(SAMPLE_ROWS).toLocalIterator()
    values = []
    for topic, payload in islice(rows, SAMPLE_ROWS):
        if not any(matches(each, topic) for each in earlier):
            try:
                values.append(load(rule.format, bytes(payload) if payload is not None else None))
            except Unreadable:
                continue
    try:
        schema = inferred(values)
    except Unreadable as why:
        raise RuleError(f"{rule.topics}: the columns cannot be inferred, {why}: give a schema or say {VARIANT}") from None
    if not schema.fields:
        raise RuleError(f"{rule.topics}: there is no readable {rule.format} payload to infer the columns from: give a schema")
    return schema


def _columns(reads: list[_Read], taken: list[str], prefix: str) -> dict[str, t.DataType]:
    columns: dict[str, t.DataType] = {}
    owners: dict[str, str] = {}
    # Spark's names are the same in either case.
    known = {name.lower() for name in (*taken, ERROR_FIELD, RULE_FIELD)}
    for read in reads:
        for name, of in read.columns:
            if f"{prefix}{name}".lower() in known:
                raise RuleError(
                    f"{read.rule.topics}: there is a column {prefix}{name} already: say prefix='p_', so that it becomes p_{name}"
                )
            if name in columns and columns[name] != of:
                was = columns[name].simpleString()
                now = of.simpleString()
                raise RuleError(f"the column {name} is {was} for {owners[name]} and {now} for {read.rule.topics}: one type is possible")
            columns.setdefault(name, of)
            owners.setdefault(name, read.rule.topics)
    return columns


# ---------------------------------------------------------------------------------------------------- the query


def _number(reads: list[_Read]) -> Column:
    """The number of the first rule that matches, else -1.  Never null, or the rows would be somebody else's."""
    found = f.lit(-1)
    for number in reversed(range(len(reads))):
        found = f.when(f.col("topic").rlike(regex_of(reads[number].rule.topics)), f.lit(number)).otherwise(found)
    return found


def _in_python(df: DataFrame, reads: list[_Read], columns: dict[str, t.DataType], prefix: str) -> DataFrame:
    """`df` with the columns of the binary rules, the reasons of what cannot be read, and the number of each row's rule."""
    wanted = {name for read in reads if read.in_python and read.schema is not None for name, _ in read.columns}
    fields = [t.StructField(prefix + name, of) for name, of in columns.items() if name in wanted]
    # Variants are made on the JVM, of JSON.
    text = [t.StructField(_TEXT, t.StringType())] if any(read.in_python and read.schema is None for read in reads) else []
    plan = Plan(
        tuple((read.levels, read.rule.format, read.schema) for read in reads),
        tuple((field.name, to_arrow_type(field.dataType, timezone="UTC")) for field in (*fields, *text)),
        prefix,
        _TEXT,
    )
    more = [*fields, *text, t.StructField(ERROR_FIELD, t.StringType()), t.StructField(RULE_FIELD, t.IntegerType())]
    return df.mapInArrow(plan.batches, t.StructType([*df.schema.fields, *more]))


def _on_jvm(df: DataFrame, reads: list[_Read], columns: dict[str, t.DataType], prefix: str) -> DataFrame:
    """`df` with the payloads of JSON rules read; then every column is made of the rules that have it."""
    payload = f.col("payload").cast("string")
    parsed: dict[str, Column] = {}
    for number, read in enumerate(reads):
        if not read.in_python:
            mine = f.when(f.col(RULE_FIELD) == number, payload)
            if read.schema is None:
                parsed[f"{_JSON}{number}"] = f.try_parse_json(mine)
            else:
                schema = t.StructType([*read.schema.fields, t.StructField("_corrupt", t.StringType())])
                parsed[f"{_JSON}{number}"] = f.from_json(mine, schema, _OPTIONS)
    df = df.withColumns(parsed) if parsed else df
    df = df.withColumn(ERROR_FIELD, f.coalesce(f.col(ERROR_FIELD), _json_error(reads, payload)))
    made: dict[str, Column] = {}
    for name in columns:
        mine_first = [(number, read) for number, read in enumerate(reads) if name in dict(read.columns)]
        sources = [_source(number, read, name) for number, read in mine_first if not read.in_python]
        if any(read.in_python and read.schema is not None for _, read in mine_first):
            sources.append(f.col(f"`{prefix}{name}`"))
        if any(read.in_python and read.schema is None for _, read in mine_first):
            sources.append(f.try_parse_json(f.col(_TEXT)))
        made[prefix + name] = f.when(f.col(ERROR_FIELD).isNull(), f.coalesce(*sources))
    return df.withColumns(made)


def _source(number: int, read: _Read, name: str) -> Column:
    parsed = f.col(f"{_JSON}{number}")
    return parsed if read.schema is None else parsed.getField(name)


def _json_error(reads: list[_Read], payload: Column) -> Column:
    found = f.lit(None).cast("string")
    for number, read in enumerate(reads):
        if read.in_python:
            continue
        parsed = f.col(f"{_JSON}{number}")
        broken = parsed.isNull() if read.schema is None else (parsed.isNull() | parsed.getField("_corrupt").isNotNull())
        why = (
            f.when(f.col("payload").isNull() | (f.octet_length("payload") == 0), "it is empty")
            .when(~f.is_valid_utf8(payload), "it is not UTF-8")
            .when(f.try_parse_json(payload).isNull(), "it is not JSON")
            .otherwise(f"it is JSON that does not fit {read.schema.simpleString() if read.schema else VARIANT}")
        )
        found = f.when((f.col(RULE_FIELD) == number) & (broken | ~f.is_valid_utf8(payload)), why).otherwise(found)
    return found


def _judged(df: DataFrame, mode: Mode, dropped: Observation | str) -> DataFrame:
    if mode == "PERMISSIVE":
        return df
    if mode == "DROP":
        counted = df.observe(dropped, f.count(ERROR_FIELD).alias("dropped"))
        return counted.where(f.col(ERROR_FIELD).isNull()).drop(ERROR_FIELD)
    where: list[Any] = [f.lit("a payload cannot be decoded: topic "), f.col("topic")]
    for name in ("shard", "offset"):
        if name in df.columns:
            where += [f.lit(f", {name} "), f.col(name).cast("string")]
    story = f.concat(*where, f.lit(": "), f.col(ERROR_FIELD))
    return df.where(f.when(f.col(ERROR_FIELD).isNotNull(), f.raise_error(story).cast("boolean")).otherwise(True)).drop(ERROR_FIELD)
