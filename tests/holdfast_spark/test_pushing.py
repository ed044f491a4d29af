"""Filters pushed down: whatever they are, a row that they keep is never spared."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from holdfast_spark.planning import Scope
from holdfast_spark.pushing import matches, narrowed

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

topics = st.sampled_from(("a", "a/b", "a/b/c", "b", "$SYS/a", "a/+", "#", "/", "a/"))
clients = st.sampled_from(("c", "d", ""))
numbers = st.integers(0, 6)
times = st.integers(0, 6000).map(lambda us: EPOCH + timedelta(microseconds=us))


def compared(column: str, values: st.SearchStrategy[Any]) -> st.SearchStrategy[Filter]:
    kinds = st.sampled_from((EqualTo, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual))
    return st.builds(lambda kind, value: kind((column,), value), kinds, values)


filters = st.one_of(
    compared("topic", topics),
    compared("client_id", clients),
    compared("shard", numbers),
    compared("offset", numbers),
    compared("ts", times),
    st.lists(topics, max_size=3).map(lambda values: In(("topic",), tuple(values))),
    st.lists(clients, max_size=3).map(lambda values: In(("client_id",), tuple(values))),
    st.lists(numbers, max_size=3).map(lambda values: In(("shard",), tuple(values))),
    st.sampled_from(("", "a", "a/", "a/b/", "$SYS/", "+/", "/")).map(lambda prefix: StringStartsWith(("topic",), prefix)),
    st.just(IsNotNull(("topic",))),
    topics.map(lambda topic: Not(EqualTo(("topic",), topic))),
)
rows = st.fixed_dictionaries(
    {
        "topic": topics.filter(lambda topic: not set("+#") & set(topic)),
        "client_id": clients,
        "shard": numbers,
        "offset": numbers,
        "ts": st.integers(0, 6).map(lambda ms: EPOCH + timedelta(milliseconds=ms)),
    }
)


def keeps(each: Filter, row: dict[str, Any]) -> bool:
    """What Spark makes of the filter."""
    match each:
        case Not(child=child):
            return not keeps(child, row)
        case IsNotNull():
            return True
    found, value = row[each.attribute[0]], each.value
    match each:
        case EqualTo():
            return bool(found == value)
        case GreaterThan():
            return bool(found > value)
        case GreaterThanOrEqual():
            return bool(found >= value)
        case LessThan():
            return bool(found < value)
        case LessThanOrEqual():
            return bool(found <= value)
        case In():
            return found in value
        case StringStartsWith():
            return bool(found.startswith(value))
    raise AssertionError(each)


def within(scope: Scope, row: dict[str, Any]) -> bool:
    """Whether the row is read under this scope."""
    ts_ms = (row["ts"] - EPOCH) // timedelta(milliseconds=1)
    return (
        not scope.nothing
        and any(matches(each, row["topic"]) for each in scope.filters)
        and (scope.clients is None or row["client_id"] in scope.clients)
        and (scope.shards is None or row["shard"] in scope.shards)
        and (scope.ts_from_ms is None or ts_ms >= scope.ts_from_ms)
        and (scope.ts_before_ms is None or ts_ms < scope.ts_before_ms)
        and (scope.offset_from is None or row["offset"] >= scope.offset_from)
        and (scope.offset_before is None or row["offset"] < scope.offset_before)
    )


scopes = st.builds(
    Scope,
    st.sampled_from((("#",), ("a/#",), ("a/+", "b"), ("$SYS/#", "#"))),
    st.sampled_from((None, ("c",), ("c", "d"))),
    st.sampled_from((None, (1, 2))),
    st.sampled_from((None, 2)),
    st.sampled_from((None, 5)),
)


@pytest.mark.slow
@given(scopes, st.lists(filters, max_size=4), rows)
def test_a_row_that_the_filters_keep_is_never_spared(scope: Scope, pushed: list[Filter], row: dict[str, Any]) -> None:
    """And one that was outside of the scope before does not come in."""
    after = narrowed(scope, pushed)
    if within(scope, row) and all(keeps(each, row) for each in pushed):
        assert within(after, row)
    if not within(scope, row):
        assert not within(after, row)


def test_filters_do_narrow() -> None:
    """Else there would be no use in them."""
    found = narrowed(
        Scope(("#",)),
        [
            EqualTo(("topic",), "a/b"),
            In(("client_id",), ("c", "d")),
            EqualTo(("shard",), 1),
            GreaterThan(("offset",), 5),
            LessThan(("offset",), 9),
            GreaterThanOrEqual(("ts",), EPOCH + timedelta(milliseconds=7)),
            LessThan(("ts",), EPOCH + timedelta(milliseconds=9)),
        ],
    )
    assert found == Scope(("a/b",), ("c", "d"), (1,), 7, 10, 5, 9)
    assert narrowed(Scope(("#",)), [StringStartsWith(("topic",), "a/b/x")]).filters == ("a/b/#",)
    assert narrowed(Scope(("a/#",)), [EqualTo(("topic",), "b")]).nothing


@pytest.mark.parametrize(
    ("topic_filter", "topic", "found"),
    [
        ("#", "a", True), ("#", "$a", False), ("+/b", "$a/b", False), ("$a/#", "$a", True), ("a/#", "a", True), ("a/+", "a", False),
        ("a/+", "a/", True), ("+", "/", False), ("+/+", "/", True), ("a", "a/b", False), ("a/b", "a", False),
    ],
)  # fmt: skip
def test_filters_match_as_mqtt_has_it(topic_filter: str, topic: str, found: bool) -> None:
    """4.7: levels, wildcards, $-topics."""
    assert matches(topic_filter, topic) is found
