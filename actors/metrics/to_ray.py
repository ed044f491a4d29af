"""A few figures for Ray's own metrics, so that who looks at a cluster's dashboard or Prometheus sees Holdfast beside everything else.

They are made of what all processes have written down anyway (scrape), every EVERY_S, by the admin process alone: no other process does
anything for it, and no message is touched. Ray puts `ray_` before the names and says of each that it comes from the admin process.
`/metrics` has all figures; these are what a table on a wall wants (docs/ray.md).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import structlog
from ray.util.metrics import Counter, Gauge

from actors.metrics.scrape import Scrape
from actors.topology import Topology

EVERY_S: Final = 10.0
"""As often as Ray collects."""
TAG: Final = "site"
"""Of the data directory: a cluster may run several brokers."""

log = structlog.get_logger(__name__)
Values = Mapping[str, Sequence[float]]
"""By the names of samples."""


@dataclass(frozen=True, slots=True)
class Figure:
    """of: the samples that it is made of.  counts: it only grows."""

    name: str
    help: str
    of: tuple[str, ...]
    put: Callable[[list[float]], float] = sum
    counts: bool = False

    def value(self, values: Values) -> float:
        return self.put([value for name in self.of for value in values.get(name, ())])


def _most(values: list[float]) -> float:
    return max(values, default=0)


_OUT = ("holdfast_gateway_durable_delivered_total", "holdfast_gateway_live_delivered_total", "holdfast_gateway_retained_delivered_total")
FIGURES: Final = (
    Figure("holdfast_connections", "Connections that are open.", ("holdfast_gateway_connections",)),
    Figure("holdfast_sessions_connected", "Durable sessions with a connection.", ("holdfast_session_online",)),
    Figure("holdfast_sessions_away", "Sessions without a connection.", ("holdfast_shard_away",)),
    Figure("holdfast_messages_in", "PUBLISH packets from clients.", ("holdfast_gateway_publishes_received_total",), counts=True),
    Figure("holdfast_messages_out", "Messages sent to clients.", _OUT, counts=True),
    Figure("holdfast_messages_stored", "Messages that were committed.", ("emqx_ds_egress_messages",), counts=True),
    Figure("holdfast_lag_messages_max", "How far the worst session is behind.", ("holdfast_session_lag_messages",), _most),
    Figure(
        "holdfast_watermark_lag_seconds", "How long a record has waited for its commit.", ("holdfast_shard_watermark_lag_seconds",), _most
    ),
    Figure("holdfast_alarms", "Alarms that `holdfast status` shows.", ("holdfast_alarm",)),
)


class ToRay:
    """In a process of Ray's."""

    def __init__(self, topology: Topology, scrape: Scrape) -> None:
        self._scrape = scrape
        self._counters = {each: Counter(each.name, each.help, (TAG,)) for each in FIGURES if each.counts}
        self._gauges = {each: Gauge(each.name, each.help, (TAG,)) for each in FIGURES if not each.counts}
        self._told = dict.fromkeys(self._counters, 0.0)
        self._tags = {TAG: topology.site}

    async def run(self) -> None:
        while True:
            try:
                self._tell(await asyncio.to_thread(self._values))
            except Exception as error:  # Whatever it was: the figures are looked at, and nothing depends on them.
                log.warning("metrics.not_told_to_ray", cause=repr(error))
            await asyncio.sleep(EVERY_S)

    def _values(self) -> Values:
        values: dict[str, list[float]] = {}
        for family in self._scrape.families():
            for sample in family.samples:
                values.setdefault(sample.name, []).append(sample.value)
        return values

    def _tell(self, values: Values) -> None:
        for figure, gauge in self._gauges.items():
            gauge.set(figure.value(values), self._tags)
        for figure, counter in self._counters.items():
            value = figure.value(values)
            # Ray wants what it has grown by; of an admin process that was started again, all of it.
            if value > self._told[figure]:
                counter.inc(value - self._told[figure], self._tags)
                self._told[figure] = value
