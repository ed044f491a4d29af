"""`format("holdfast")`: stored messages as a DataFrame, batch and stream (docs/reader.md, docs/pipeline.md).

    spark.read.format("holdfast").options(brokers="127.0.0.1:7883", tokenFile="...", topicFilter="plant/#").load()

Here: the data source itself and reading at once. A stream is `holdfast_spark.streaming`. Options are read where the driver is; what tasks
need of them travels with the reader, and they read no file and no setting.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    Filter,
    InputPartition,
)
from pyspark.sql.types import StructType

from holdfast_spark.client import Client
from holdfast_spark.collecting import spare_imported
from holdfast_spark.leases import lease_cuts
from holdfast_spark.offsets import Offset
from holdfast_spark.options import ReadOptions, read_options
from holdfast_spark.planning import Gap, Plan, State, at_time, behind_time, cuts_of, look, make_plan, report, scope_of
from holdfast_spark.pushing import narrowed
from holdfast_spark.reading import read_work, reading_of
from holdfast_spark.schema import TYPES, strict_ddl
from holdfast_spark.sink import batch_writer, stream_writer
from holdfast_spark.streaming import HoldfastStreamReader


class HoldfastDataSource(DataSource):
    """Known to Spark as `holdfast`. Made anew by Spark for each reading, in a process of its own on the driver."""

    @classmethod
    def name(cls) -> str:
        return "holdfast"

    def schema(self) -> str:
        spare_imported()
        columns = read_options(self.options, stream=None).columns
        return strict_ddl(columns or tuple(TYPES))

    def reader(self, schema: StructType) -> DataSourceReader:
        spare_imported()
        options = read_options(self.options, stream=False)
        return (PushingReader if options.pushdown else HoldfastReader)(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return HoldfastStreamReader(read_options(self.options, stream=True), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return batch_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        return stream_writer(self.options, schema, overwrite)


class HoldfastReader(DataSourceReader):
    """Reading at once: what is committed when the query is planned, or less where options say so. Spark plans a DataFrame of this source
    once, so everything made of one shows the same messages; who wants the newer ones loads it again."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._reading = reading_of(options, schema)
        self._scope = scope_of(options)

    def partitions(self) -> Sequence[InputPartition]:
        with Client(self._options.endpoint, who="spark driver") as client:
            return list(self._plan(client).parts)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_work(self._reading, self._scope, partition.value)

    def _plan(self, client: Client) -> Plan:
        options = self._options
        state = look(client)
        start, promised = self._starts(client, state)
        stop = self._stops(client, state)
        plan = make_plan(
            client,
            state,
            self._scope,
            start,
            stop,
            rows_per_partition=options.rows_per_partition,
            min_partitions=options.min_partitions,
            expired_at_ms=int(time.time() * 1000) if options.drop_expired else None,
            exclude=options.exclude,
        )
        if plan.gaps and promised:
            report(plan.gaps, fail=options.fail_on_loss)
        return plan

    def _starts(self, client: Client, state: State) -> tuple[dict[int, int], bool]:
        """Where to begin, and whether all from there on was promised: what was gone before anybody named a place is no loss."""
        match self._options.starting:
            case None | "earliest":
                start, promised = state.earliest, False
            case "latest":
                start, promised = state.cuts, False
            case "lease":
                start, promised = self._lease_cuts(client), True
            case offset:
                start, promised = cuts_of(offset, state, "startingOffsets"), True
        if self._scope.ts_from_ms is None:
            return start, promised
        at = at_time(client, state, self._scope.ts_from_ms)
        return {shard: max(cut, at[shard]) for shard, cut in start.items()}, promised

    def _stops(self, client: Client, state: State) -> dict[int, int]:
        match self._options.ending:
            case None | "latest" | "earliest":
                stop = state.cuts
            case "lease":
                stop = self._lease_cuts(client)
            case offset:
                stop = cuts_of(offset, state, "endingOffsets")
        if self._scope.ts_before_ms is None:
            return stop
        behind = behind_time(client, state, self._scope.ts_before_ms)
        return {shard: min(cut, behind[shard]) for shard, cut in stop.items()}

    def _lease_cuts(self, client: Client) -> dict[int, int]:
        assert self._options.lease is not None, "the options are checked together"
        return lease_cuts(client, self._options.lease, start="earliest")


class PushingReader(HoldfastReader):
    """Reads less where Spark tells of filters. Only for option pushdown=true, since Spark 4.3 keeps the narrowed reader with the DataFrame
    and uses it for whatever else is made of that: the same DataFrame without the filter, or twice in one query, would miss rows."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        self._scope = narrowed(self._scope, filters)
        return filters


def losses(options: Mapping[str, str], start: Offset, stop: Offset) -> list[Gap]:
    """What of [start, stop) is gone, for who reads with failOnDataLoss=false; ``options`` as for reading."""
    parsed = read_options(options, stream=None)
    with Client(parsed.endpoint, who="losses") as client:
        state = look(client)
        begins, ends = cuts_of(start, state, "start"), cuts_of(stop, state, "stop")
        return make_plan(client, state, scope_of(parsed), begins, ends, rows_per_partition=2**40, min_partitions=1, expired_at_ms=None).gaps
