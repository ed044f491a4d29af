"""Filters that Spark pushes down, made into a narrower scope.

Every filter is given back to Spark as well, which applies it to what comes: here they only spare reading, and what they spare is exactly
rows that they would remove. A comparison that says nothing about a range is passed over.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)

from holdfast_spark.planning import Scope

VALUES_MAX = 1000
"""Of an IN that names more, nothing is made: the reader would look for each in each generation."""


def narrowed(scope: Scope, filters: Sequence[Filter]) -> Scope:
    """The scope, with everything left out that the filters (all of which hold) rule out."""
    for each in filters:
        column = ".".join(getattr(each, "attribute", ()))
        match column, each:
            case "topic", EqualTo(value=str() as topic):
                scope = _topics(scope, [topic])
            case "topic", In(value=topics) if len(topics) <= VALUES_MAX and all(isinstance(topic, str) for topic in topics):
                scope = _topics(scope, list(topics))
            case "topic", StringStartsWith(value=str() as prefix) if scope.filters == ("#",):
                # Whole levels only, and without a wildcard in them. "#" alone does not reach topics that begin with $, nor does this then.
                levels, slash, _ = prefix.rpartition("/")
                if slash and _plain(levels) and not levels.startswith("$"):
                    scope = replace(scope, filters=(f"{levels}/#",))
            case "client_id", EqualTo(value=str() as client):
                scope = _clients(scope, [client])
            case "client_id", In(value=clients) if len(clients) <= VALUES_MAX and all(isinstance(client, str) for client in clients):
                scope = _clients(scope, list(clients))
            case "shard", EqualTo(value=int() as shard):
                scope = _shards(scope, [shard])
            case "shard", In(value=shards) if all(isinstance(shard, int) for shard in shards):
                scope = _shards(scope, list(shards))
            case "offset" | "ts", _:
                scope = _bounded(scope, column, each)
            case _:
                pass
    return scope


def _plain(topic: str) -> bool:
    return bool(topic) and not set("+#\0") & set(topic)


def matches(topic_filter: str, topic: str) -> bool:
    """As MQTT says: wildcards of the first level do not match a topic that begins with $."""
    wanted, levels = topic_filter.split("/"), topic.split("/")
    if topic.startswith("$") and wanted[0] in ("+", "#"):
        return False
    for at, level in enumerate(wanted):
        if level == "#":
            return True
        if at >= len(levels) or level not in ("+", levels[at]):
            return False
    return len(levels) == len(wanted)


def _topics(scope: Scope, topics: list[str]) -> Scope:
    # A topic that no message can have is left out: it matches nothing, and as a filter it could match something.
    kept = [topic for topic in topics if _plain(topic) and any(matches(each, topic) for each in scope.filters)]
    return replace(scope, filters=tuple(dict.fromkeys(kept))) if kept else replace(scope, nothing=True)


def _clients(scope: Scope, clients: list[str]) -> Scope:
    kept = [client for client in clients if scope.clients is None or client in scope.clients]
    return replace(scope, clients=tuple(dict.fromkeys(kept))) if kept else replace(scope, nothing=True)


def _shards(scope: Scope, shards: list[int]) -> Scope:
    kept = sorted({shard for shard in shards if scope.shards is None or shard in scope.shards})
    return replace(scope, shards=tuple(kept)) if kept else replace(scope, nothing=True)


def _bounded(scope: Scope, column: str, each: Filter) -> Scope:
    least, before = _bounds(each)
    if column == "offset":
        low = least if isinstance(least, int) else None
        high = before if isinstance(before, int) else None
        return replace(scope, offset_from=_higher(scope.offset_from, low), offset_before=_lower(scope.offset_before, high))
    low, high = _ms(least), _ms(before, up=True)
    return replace(scope, ts_from_ms=_higher(scope.ts_from_ms, low), ts_before_ms=_lower(scope.ts_before_ms, high))


def _bounds(each: Filter) -> tuple[Any, Any]:
    """(not below this, below this), as far as the filter says; for whole numbers and for times, which lie at whole milliseconds."""
    match each:
        case EqualTo(value=value):
            return value, _after(value)
        case GreaterThanOrEqual(value=value) | GreaterThan(value=value):
            return value, None
        case LessThan(value=value):
            return None, value
        case LessThanOrEqual(value=value):
            return None, _after(value)
        case _:
            return None, None


def _after(value: Any) -> Any:
    return value + 1 if isinstance(value, int) else value


def _ms(value: Any, *, up: bool = False) -> int | None:
    """A time of Spark as ms since 1970. As an upper bound it is made one later: what is spared must be surely outside."""
    if not isinstance(value, datetime):
        return None
    # Spark gives times without a zone in the zone of this process.
    since = value.astimezone(UTC) - datetime(1970, 1, 1, tzinfo=UTC)
    ms = since.days * 86_400_000 + since.seconds * 1000 + since.microseconds // 1000
    return ms + 1 if up else ms


def _higher(first: int | None, second: int | None) -> int | None:
    return second if first is None else first if second is None else max(first, second)


def _lower(first: int | None, second: int | None) -> int | None:
    return second if first is None else first if second is None else min(first, second)
