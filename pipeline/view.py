"""One SQL view over the archive and the store: every message once, at one moment.

    view(spark, endpoint, "/lake")
    spark.sql("select topic, count(*) from messages group by topic")

The archive's part is read by the JVM from the files of one state of its manifest; the store's part by `format("holdfast")`, from which is
left out, generation by generation, what that state has. Both are pinned when the view is made: the files by the state, the store by a cut,
and by a lease of an hour, so that nothing goes while queries run. Later messages are in the next view that is made.

Holds: a message that archive or store had when the view was made is in it once, whatever is archived, dropped or compacted meanwhile; or a
query ends with an error that says what is gone. Files of a state stay for a day after they were rewritten.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Final

from holdfast_spark.client import Client, Endpoint, NoReader
from holdfast_spark.offsets import Offset
from holdfast_spark.payloads import regex_of
from holdfast_spark.planning import State as Store
from holdfast_spark.planning import look
from holdfast_spark.protocol import Refused, WireError
from holdfast_spark.schema import TYPES, ddl
from mqtt.cover import covers
from pipeline.archived import ArchiveError, ArchiveFile, State, site_of
from pipeline.manifest import Manifest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

HELD_MS: Final = 3_600_000
LEASE: Final = "view-"


@dataclass(frozen=True, slots=True)
class Pinned:
    """What a view is of. start and stop: of the store's part, for each shard; exclude: what of it is in the archive, or had gone before."""

    root: Path
    commit: int
    files: tuple[ArchiveFile, ...]
    store: str
    start: Mapping[int, int]
    stop: Mapping[int, int]
    exclude: Mapping[int, Mapping[int, int]]
    lease: str
    filters: tuple[str, ...]
    """Of the archive."""


def pin(client: Client, root: str | Path, name: str, *, held_ms: int = HELD_MS) -> Pinned:
    """The moment. First the lease, so that nothing goes any more; then the archive; then the store, which has all that it lacks."""
    lease = LEASE + name
    # One that an earlier view of this name left would hold more than this one needs.
    _drop(client, lease)
    client.lease("put", name=lease, ttl_ms=held_ms, max_age_ms=None, max_bytes=None, block=False, filters=[], start="earliest")
    try:
        state = Manifest(Path(root)).load()
        store = look(client)
        _of_one_site(root, state, store)
    except (ArchiveError, Refused):
        _drop(client, lease)
        raise
    files = tuple(state.files[path] for path in sorted(state.files))
    where = Path(root).absolute()
    return Pinned(where, state.number, files, store.store, store.earliest, store.cuts, _exclude(state, store), lease, state.filters)


def view(
    spark: SparkSession,
    endpoint: Endpoint,
    root: str | Path,
    name: str = "messages",
    *,
    topics: Sequence[str] = (),
    options: Mapping[str, str] | None = None,
) -> DataFrame:
    """Make the view, in the place of one of that name. topics: filters; none: as the archive has them, or else `#`. options: of the
    source; when they name brokers, they say all of where these are, which is how a `caFile` can be said.

    ArchiveError with one sentence.
    """
    try:
        with Client(endpoint, who="view") as client:
            pinned = pin(client, root, name)
            try:
                filters = _filters(root, pinned.filters, topics)
                both = cold(spark, pinned, filters).unionByName(hot(spark, endpoint, pinned, filters, options or {}))
                both.createOrReplaceTempView(name)
            except Exception:
                # Nobody has a view that it could be held for.
                _drop(client, pinned.lease)
                raise
    except Refused as error:
        raise ArchiveError(f"the reader refuses what the view needs: {error.sentence}") from error
    except (WireError, NoReader) as error:
        raise ArchiveError(str(error)) from error
    return both


def release(endpoint: Endpoint, name: str = "messages") -> None:
    """Queries of the view are over: what it held may go. Without this it goes after an hour."""
    with Client(endpoint, who="view") as client:
        _drop(client, LEASE + name)


def cold(spark: SparkSession, pinned: Pinned, filters: Sequence[str]) -> DataFrame:
    """The archive's part."""
    if not pinned.files:
        return spark.createDataFrame([], ddl(tuple(TYPES)))
    paths = [str(pinned.root / file.path) for file in pinned.files]
    rows = spark.read.schema(ddl(tuple(TYPES))).parquet(*paths).select(*TYPES)
    return matching(rows, filters)


def hot(spark: SparkSession, endpoint: Endpoint, pinned: Pinned, filters: Sequence[str], options: Mapping[str, str]) -> DataFrame:
    """The store's part."""
    where = {
        "brokers": ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in endpoint.brokers),
        "token": endpoint.token,
        "tls": str(endpoint.tls).lower(),
    }
    told = {
        **({} if "brokers" in options else where),
        "topicFilter": json.dumps(list(filters)),
        "startingOffsets": Offset(pinned.store, pinned.start).as_json(),
        "endingOffsets": Offset(pinned.store, pinned.stop).as_json(),
        "exclude": exclude_text(pinned.exclude),
    }
    return spark.read.format("holdfast").options(**{**told, **options}).load()


def exclude_text(exclude: Mapping[int, Mapping[int, int]]) -> str:
    """For option `exclude` of the source."""
    return json.dumps({str(shard): {str(number): at for number, at in of.items()} for shard, of in exclude.items()}, sort_keys=True)


def matching(rows: DataFrame, filters: Sequence[str]) -> DataFrame:
    """Those whose topic one of the filters matches; all of them when there is no filter."""
    from pyspark.sql import functions as f

    if not filters:
        return rows
    return rows.where(reduce(lambda a, b: a | b, [f.col("topic").rlike(regex_of(each)) for each in filters]))


def _exclude(state: State, store: Store) -> dict[int, dict[int, int]]:
    """What is not to be read from the store, nor missed there: what the archive has, and what had gone before. Classes are kept for
    different times, so the store may begin below what it has dropped."""
    found: dict[int, dict[int, int]] = defaultdict(dict, state.boundaries())
    for gap in store.dropped:
        # What is remembered no more later becomes part of generation 0, which stands for all that is below.
        for number in (gap.generation, 0):
            found[gap.shard][number] = max(found[gap.shard].get(number, 0), gap.stop)
    return {
        shard: {number: at for number, at in of.items() if at > store.earliest.get(shard, 0)} for shard, of in found.items()
    }  # fmt: skip


def _filters(root: str | Path, own: Sequence[str], topics: Sequence[str]) -> tuple[str, ...]:
    """own: of the archive."""
    for each in topics if own else ():
        if not any(covers(one.encode(), each.encode()) for one in own):
            raise ArchiveError(f"the archive {root} is of {', '.join(own)}, and {each} is asked for: part of that is not in it")
    return tuple(topics) or tuple(own) or ("#",)


def _of_one_site(root: str | Path, state: State, store: Store) -> None:
    if state.number and site_of(state.store) != site_of(store.store):
        archives, brokers = site_of(state.store), site_of(store.store)
        raise ArchiveError(f"{root} is the archive of the site {archives}, and this broker is the site {brokers}: no view has both")


def _drop(client: Client, lease: str) -> None:
    if any(each["name"] == lease for each in client.lease("list")):
        client.lease("drop", name=lease)
