"""What a task does: reads its units from the reader and gives Spark record batches. On executors.

Holds: either all rows of the work are given, or an exception ends the task; with failOnDataLoss=false, except for what is gone for good, of
which a line in the log says what.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.types import StructType

from holdfast_spark.blocks import Decoder, Wanted
from holdfast_spark.client import Client, Endpoint
from holdfast_spark.collecting import spare_imported
from holdfast_spark.options import OptionError, ReadOptions
from holdfast_spark.planning import Scope, Work, gaps_of
from holdfast_spark.properties import DamagedValue
from holdfast_spark.protocol import Code, Refused
from holdfast_spark.schema import FROM_PROPERTIES, arrow_schema, check_types

log = logging.getLogger("holdfast_spark")


@dataclass(frozen=True, slots=True)
class Reading:
    """What all tasks of a reading have in common; travels to them with the reader."""

    endpoint: Endpoint
    schema: pa.Schema
    fail_on_loss: bool


def reading_of(options: ReadOptions, schema: StructType) -> Reading:
    """What tasks need; the schema as Spark compares it with what they give."""
    names = check_types([(each.name, each.dataType.simpleString()) for each in schema.fields])
    if options.columns is not None and options.columns != names:
        raise OptionError(
            f"option columns is {','.join(options.columns)}, and the schema that was given has {','.join(names)}; wanted is one of both"
        )
    for each in schema.fields:
        if each.name in FROM_PROPERTIES and not each.nullable:
            raise OptionError(
                f"column {each.name} is NOT NULL in the schema that was given; messages without such a property have null there"
            )
    ours = arrow_schema(names)
    arrow = pa.schema([ours.field(each.name).with_nullable(each.nullable) for each in schema.fields])
    return Reading(options.endpoint, arrow, options.fail_on_loss)


def read_work(reading: Reading, scope: Scope, work: Work | None) -> Iterator[pa.RecordBatch]:
    if work is None:
        return
    spare_imported()
    incarnation = incarnation_of(work.store)
    with Client(reading.endpoint, who="spark task") as client:
        for unit in work.units:
            wanted = Wanted(
                reading.schema,
                unit.shard,
                unit.generation,
                incarnation,
                work.wall,
                scope.ts_from_ms,
                scope.ts_before_ms,
                work.expired_at_ms,
            )
            decoder = Decoder(wanted)
            try:
                for block in client.scan(work.store, unit, scope.filters, scope.clients):
                    batch = decoder.batch(block)
                    if batch.num_rows:
                        yield batch
            except DamagedValue as error:
                where = {"shard": unit.shard, "generation": unit.generation}
                raise Refused(Code.DAMAGED, f"shard {unit.shard}, generation {unit.generation}: {error}", where) from error
            except Refused as refused:
                if refused.code != Code.LOST or reading.fail_on_loss:
                    raise
                for gap in gaps_of(refused.more.get("gaps", ())):
                    log.warning("messages are gone and were left out: %s", gap)


def incarnation_of(store: str) -> int:
    """Of a store id `site:incarnation`."""
    _, _, number = store.rpartition(":")
    if not number.isascii() or not number.isdigit():
        raise Refused(Code.STORE, f"the reader calls its store {store!r}; wanted is site:incarnation", {"found": store})
    return int(number)
