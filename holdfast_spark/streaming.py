"""Reading as a stream: offsets, how much each trigger takes, and what a lease is told.

Spark makes one reader a run of a query, in a process of its own on the driver, and one more for each plan of tasks; so a reader keeps
nothing that another would miss, asks nobody before it is called, and its connection stays behind when it travels.

Holds:
1. latestOffset is never below its start, never beyond what is committed, and with AvailableNow never beyond what was when that began;
2. while something is left to read, it goes on: a limit never stops a query;
3. a lease is acknowledged only for what Spark has committed. Spark calls ``commit`` a batch late, and never for the last one; but it asks
   for the next offset only after the commit log of the batch before is written, so the start of that question is committed too. (Not so
   with asynchronous progress tracking: do not use it with a lease.) `holdfast_spark.acks` is sooner by one trigger.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from holdfast_spark.client import Client
from holdfast_spark.leases import lease_cuts, put_lease
from holdfast_spark.offsets import Offset, parse_offset
from holdfast_spark.options import ReadOptions
from holdfast_spark.planning import Gap, State, at_time, cuts_of, look, make_plan, report, scope_of
from holdfast_spark.reading import read_work, reading_of

MOVES_AFTER_S: Final = 10.0
"""A cut moves without messages too. For those alone no batch is made, but for one in so long: the count of rows may be of a moment
before a message was committed that it has."""


class HoldfastStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._reading = reading_of(options, schema)
        self._scope = scope_of(options)
        self._client: Client | None = None
        self._renewed_at: float | None = None
        self._initial: Offset | None = None
        self._acked: Offset | None = None
        # What was dropped before this query began was never promised to it.
        self._forgiven: tuple[Gap, ...] = ()
        self._latest: Offset | None = None
        self._target: dict[int, int] | None = None
        self._moved_at = time.monotonic()
        self._quiet = _Quiet()

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_client": None}

    # ------------------------------------------------------------------------------------------ offsets

    def initialOffset(self) -> dict[str, Any]:
        """Where a query without a checkpoint begins. Asked again when it ended within its first batch, so "latest" with a lease is where
        the lease was put the first time."""
        client = self._reached()
        state = look(client)
        lease = self._options.lease
        place = self._options.starting
        if place is None and self._scope.ts_from_ms is None:
            place = "lease" if lease else "latest"
        match place:
            case None:
                assert self._scope.ts_from_ms is not None
                at = at_time(client, state, self._scope.ts_from_ms)
                cuts = {shard: max(cut, state.earliest[shard]) for shard, cut in at.items()}
            case "earliest":
                cuts = state.earliest
            case "latest":
                cuts = lease_cuts(client, lease, start="latest") if lease else state.cuts
            case "lease":
                assert lease is not None, "the options are checked together"
                cuts = lease_cuts(client, lease, start="earliest")
            case offset:
                cuts = cuts_of(offset, state, "startingOffsets")
        if place in (None, "earliest", "latest"):
            self._forgiven = state.dropped
        self._initial = self._offset(state.store, cuts)
        return self._initial.as_dict()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        begin = parse_offset(start)
        client = self._connected()
        state = look(client)
        begin.of_store(state.store)
        self._committed(begin)
        self._latest = self._offset(state.store, state.cuts)
        goal = self._target if self._target is not None else state.cuts
        stop = {shard: max(cut, goal.get(shard, cut)) for shard, cut in begin.cuts.items()}
        if stop == dict(begin.cuts) or (self._target is None and self._quiet.nothing_since(begin, state)):
            return start
        if not isinstance(limit, ReadAllAvailable):
            if self._target is None and self._too_few(client, begin, stop):
                return start
            stop = self._limited(client, begin, stop, limit)
        self._moved_at = time.monotonic()
        self._quiet.moved_to(stop, state)
        made = self._offset(state.store, stop)
        return replace(made, at_ms=_now_ms() if self._options.drop_expired else None).as_dict()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Spark carries one limit about; those that the options name besides are kept to all the same."""
        options = self._options
        if options.max_rows is not None:
            return ReadMaxRows(options.max_rows)
        if options.max_bytes is not None:
            return ReadMaxBytes(options.max_bytes)
        if options.min_rows is not None:
            return ReadMinRows(options.min_rows)
        return ReadAllAvailable()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """For the progress that people look at: how far behind a query is."""
        return None if self._latest is None else self._latest.as_dict()

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = look(self._reached()).cuts

    def _limited(self, client: Client, begin: Offset, stop: Mapping[int, int], limit: ReadLimit) -> dict[int, int]:
        rows, size = self._options.max_rows, self._options.max_bytes
        if isinstance(limit, ReadMaxRows):
            rows = limit.max_rows
        elif isinstance(limit, ReadMaxBytes):
            size = limit.max_bytes
        if rows is None and size is None:
            return dict(stop)
        found = client.limit(begin.cuts, stop, rows, size)
        bounded = {shard: min(max(found.get(shard, begin.cuts[shard]), begin.cuts[shard]), cut) for shard, cut in stop.items()}
        # The reader goes on unless there is nothing: and then there is nothing that a limit could be for.
        return bounded if bounded != dict(begin.cuts) else dict(stop)

    def _too_few(self, client: Client, begin: Offset, stop: Mapping[int, int]) -> bool:
        """Whether fewer rows wait than a trigger is worth, and not for too long yet."""
        least = self._options.min_rows
        if least is None or time.monotonic() - self._moved_at > self._options.max_delay_ms / 1000:
            return False
        return least > 1 and client.limit(begin.cuts, stop, least - 1, None) == dict(stop)

    def _offset(self, store: str, cuts: Mapping[int, int]) -> Offset:
        return Offset(store, cuts, None if self._options.lease is None else self._options.lease.name)

    # ------------------------------------------------------------------------------------------ a batch

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        begin, stop = parse_offset(start), parse_offset(end)
        client = self._connected()
        state = look(client)
        begin.of_store(state.store)
        stop.of_store(state.store)
        # "latest" asked again after a crash within the first batch may lie beyond the end that Spark had written down.
        begins = {shard: min(begin.cuts[shard], cut) for shard, cut in stop.cuts.items()}
        plan = make_plan(
            client,
            state,
            self._scope,
            begins,
            stop.cuts,
            rows_per_partition=self._options.rows_per_partition,
            min_partitions=self._options.min_partitions,
            expired_at_ms=(stop.at_ms or _now_ms()) if self._options.drop_expired else None,
        )
        gaps = _beyond(plan.gaps, self._forgiven)
        if gaps:
            report(gaps, fail=self._options.fail_on_loss)
        return plan.parts

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_work(self._reading, self._scope, partition.value)

    def commit(self, end: dict[str, Any]) -> None:
        self._acknowledge(parse_offset(end))

    def stop(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    # ------------------------------------------------------------------------------------------ the lease

    def _committed(self, begin: Offset) -> None:
        """Spark asks what comes behind ``begin``: so that is committed, unless it is only where the query began."""
        if begin != self._initial:
            self._acknowledge(begin)

    def _acknowledge(self, offset: Offset) -> None:
        if self._options.lease is None or offset == self._acked:
            return
        client = self._connected()
        # Another broker may have a lease of this name, and positions like these.
        offset.of_store(client.hello()["store"])
        client.ack(self._options.lease.name, offset.cuts)
        self._acked = offset

    def _reached(self) -> Client:
        if self._client is None:
            self._client = Client(self._options.endpoint, who="spark stream")
        return self._client

    def _connected(self) -> Client:
        """The client; and the lease is there, and lives for longer than until the next question. One that has gone meanwhile is put at the
        earliest: from there it comes to where the checkpoint is."""
        client = self._reached()
        lease = self._options.lease
        now = time.monotonic()
        if lease is not None and (self._renewed_at is None or now - self._renewed_at > lease.ttl_ms / 4000):
            put_lease(client, lease, start="earliest")
            self._renewed_at = now
        return client


def _beyond(gaps: Sequence[Gap], known: Sequence[Gap]) -> list[Gap]:
    """What of the gaps was not gone when the known ones were told. Generation 0 is all that is remembered no more, so it grows."""
    ends = {(gap.shard, gap.generation): gap.stop for gap in known}
    begins = [max(gap.start, ends.get((gap.shard, gap.generation), 0)) for gap in gaps]
    return [replace(gap, start=begin) for gap, begin in zip(gaps, begins, strict=True) if begin < gap.stop]


def _now_ms() -> int:
    return int(time.time() * 1000)


class _Quiet:
    """Whether messages came since the offset that was given last: by what the reader counts of rows, in each generation."""

    def __init__(self) -> None:
        self._at: dict[int, int] | None = None
        self._counted: tuple[tuple[int, int, int], ...] | None = None
        self._before: tuple[tuple[int, int, int], ...] | None = None
        self._until = 0.0

    def nothing_since(self, begin: Offset, state: State) -> bool:
        same = self._counted is not None and self._counted == state.counted and self._at == dict(begin.cuts)
        quiet = same and time.monotonic() < self._until
        if quiet:
            self._before = state.counted
        return quiet

    def moved_to(self, stop: Mapping[int, int], state: State) -> None:
        """An offset is given. What was counted *before* its cut was made is surely not more than what lies below it."""
        self._at = dict(stop)
        self._counted = self._before if self._at == state.cuts else None
        self._before = state.counted
        self._until = time.monotonic() + MOVES_AFTER_S
