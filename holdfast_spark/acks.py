"""Tells leases what Spark has committed, as soon as it has: a listener for the queries of a session.

A stream acknowledges by itself when the next trigger asks for an offset (holdfast_spark.streaming). With a trigger an hour apart that is
an hour late, and what the lease holds stays for so long. The listener hears of each completed batch at once. Spark tells it after the
commit log is written; so what is acknowledged was committed before, and acknowledging twice, or late, or not at all, harms nothing.

Never raises into Spark: a reader that is away is told by the next batch.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from holdfast_spark.client import Client, Endpoint
from holdfast_spark.offsets import BadOffset, Offset, parse_offset
from holdfast_spark.protocol import Refused

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("holdfast_spark")
PATIENCE_S = 2.0
"""A listener is called on Spark's own thread for all listeners."""


class AckListener(StreamingQueryListener):
    """For all queries of a session whose source has a lease at this endpoint. Offsets name their lease, so nothing has to be said twice."""

    def __init__(self, endpoint: Endpoint, *, connect: Callable[[Endpoint], Client] | None = None) -> None:
        self._endpoint = endpoint
        self._connect = connect or _connect
        self._acked: dict[str, Offset] = {}

    def onQueryProgress(self, event: Any) -> None:
        for source in event.progress.sources:
            try:
                end = parse_offset(source.endOffset or "")
            except BadOffset:
                continue  # another source's
            if end.lease is not None and self._acked.get(end.lease) != end:
                self._acknowledge(end.lease, end)

    def _acknowledge(self, lease: str, end: Offset) -> None:
        try:
            with self._connect(self._endpoint) as client:
                # A query may read from another broker, which has a lease of this name too, for all we know.
                if client.hello()["store"] != end.store:
                    return
                client.ack(lease, end.cuts)
        except (OSError, Refused) as error:
            log.warning("lease %s could not be acknowledged now: %s", lease, error)
            return
        self._acked[lease] = end

    def onQueryStarted(self, event: Any) -> None:
        pass

    def onQueryIdle(self, event: Any) -> None:
        pass

    def onQueryTerminated(self, event: Any) -> None:
        pass


def _connect(endpoint: Endpoint) -> Client:
    return Client(endpoint, who="ack listener", patience_s=PATIENCE_S, busy_s=PATIENCE_S)


def acknowledge(spark: SparkSession, endpoint: Endpoint) -> AckListener:
    """Have the batches of all queries of this session acknowledged when they are completed."""
    listener = AckListener(endpoint)
    spark.streams.addListener(listener)
    return listener
