"""Live rates and latencies, from the same figures as /metrics: what was counted between two looks.

Nobody looks by himself: whoever asks every few seconds is told of the time since he asked before; the first one gets no rates.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from fastapi import FastAPI
from fastapi.responses import JSONResponse
from prometheus_client.metrics_core import Metric as Family
from pydantic import BaseModel

from actors.admin.broker import Broker
from actors.admin.errors import ANSWERS
from actors.admin.shapes import API
from actors.inquiry.facts import when

EVERY_S: Final = 1.0
"""Asked sooner, the answer is the last one."""
OVER_S: Final = 5.0
"""Rates are over so long at least, when somebody has looked so long ago."""
FORGOTTEN_S: Final = 60.0
RATES: Final[dict[str, tuple[str, ...]]] = {
    "connects": ("holdfast_gateway_connects_received_total",),
    "published": ("holdfast_gateway_publishes_received_total",),
    "published_bytes": ("holdfast_gateway_publish_bytes_received_total",),
    "stored": ("emqx_ds_egress_messages",),
    "stored_bytes": ("emqx_ds_egress_bytes",),
    "delivered": ("holdfast_gateway_live_delivered_total", "holdfast_gateway_durable_delivered_total"),
    "acknowledged": ("holdfast_session_acknowledged_total",),
    "dropped": (
        "holdfast_gateway_live_dropped_queue_full_total", "holdfast_gateway_live_dropped_too_large_total",
        "holdfast_gateway_live_dropped_expired_total", "holdfast_gateway_live_dropped_slow_total",
        "holdfast_session_memory_dropped_queue_full_total", "holdfast_session_memory_dropped_all_full_total",
        "holdfast_session_memory_dropped_expired_total", "holdfast_session_lost_total",
    ),
    "refused": (
        "holdfast_gateway_publishes_refused_quota_total", "holdfast_gateway_publishes_refused_topic_total",
        "holdfast_gateway_publishes_refused_format_total", "holdfast_gateway_publishes_denied_total",
    ),
}  # fmt: skip
LATENCIES: Final = {
    "publish": "holdfast_publish_seconds",
    "delivery": "holdfast_delivery_seconds",
    "commit": "holdfast_shard_commit_seconds",
    "sync": "holdfast_shard_sync_seconds",
}
NOW: Final = {
    "connections": "holdfast_gateway_connections",
    "sessions_away": "holdfast_shard_away",
    "subscriptions": "emqx_durable_subscriptions_count",
    "retained": "holdfast_shard_retained",
    "disk_bytes": "emqx_ds_disk_usage",
}
CPU: Final = "holdfast_process_cpu_seconds_total"
RESIDENT: Final = "holdfast_process_resident_bytes"
STARTS: Final = "holdfast_process_starts_total"


class Rates(BaseModel):
    """A second each."""

    connects: float
    published: float
    published_bytes: float
    stored: float
    stored_bytes: float
    delivered: float
    acknowledged: float
    dropped: float
    refused: float


class LatencyAnswer(BaseModel):
    """A percentile is the upper bound of its bucket; null: nothing was noted, or it took longer than every bound."""

    count: int
    p50_ms: float | None
    p99_ms: float | None
    mean_ms: float | None


class Latencies(BaseModel):
    publish: LatencyAnswer
    delivery: LatencyAnswer
    commit: LatencyAnswer
    sync: LatencyAnswer


class Now(BaseModel):
    connections: int
    sessions_away: int
    subscriptions: int
    retained: int
    disk_bytes: int


class ProcessFigures(BaseModel):
    """cpu: cores; null at the first look."""

    name: str
    cpu: float | None
    resident_bytes: int
    starts: int


class FiguresAnswer(BaseModel):
    as_of: str
    over_s: float | None
    rates: Rates | None
    latencies: Latencies | None
    now: Now
    processes: list[ProcessFigures]


@dataclass(slots=True)
class Sample:
    """One scrape.  sums: by name, over all labels.  buckets: cumulative, by upper bound.  of_process: by name and process."""

    at_s: float
    sums: dict[str, float] = field(default_factory=dict)
    buckets: dict[str, dict[float, float]] = field(default_factory=dict)
    of_process: dict[str, dict[str, float]] = field(default_factory=dict)

    @classmethod
    def of(cls, at_s: float, families: Iterable[Family]) -> Sample:
        found = cls(at_s)
        for family in families:
            for sample in family.samples:
                # The names that counters of EMQX have are without the ending that they get here.
                name = sample.name.removesuffix("_total") if sample.name.startswith("emqx_") else sample.name
                if name.endswith("_bucket"):
                    bounds = found.buckets.setdefault(name.removesuffix("_bucket"), {})
                    bound = float(sample.labels["le"])
                    bounds[bound] = bounds.get(bound, 0.0) + sample.value
                else:
                    found.sums[name] = found.sums.get(name, 0.0) + sample.value
                if name in (CPU, RESIDENT, STARTS):
                    found.of_process.setdefault(name, {})[sample.labels["process"]] = sample.value
        return found

    def sum(self, *names: str) -> float:
        return sum([self.sums.get(name, 0.0) for name in names])


class Figures:
    """For threads."""

    def __init__(self, families: Callable[[], Iterable[Family]], clock: Callable[[], float] = time.monotonic) -> None:
        self._families = families
        self._clock = clock
        self._lock = threading.Lock()
        self._kept: deque[Sample] = deque()
        self._told: dict[str, Any] | None = None

    def look(self) -> dict[str, Any]:
        """Raises OSError."""
        with self._lock:
            now_s = self._clock()
            if self._told is not None and now_s - self._kept[-1].at_s < EVERY_S:
                return self._told
            while self._kept and now_s - self._kept[0].at_s > FORGOTTEN_S:
                self._kept.popleft()
            new = Sample.of(now_s, self._families())
            before = [one for one in self._kept if now_s - one.at_s >= OVER_S] or list(self._kept)[:1]
            self._kept.append(new)
            self._told = told(new, before[-1] if before else None)
            return self._told


def told(new: Sample, before: Sample | None) -> dict[str, Any]:
    over_s = new.at_s - before.at_s if before is not None else None
    cpu = before.of_process.get(CPU, {}) if before is not None else {}
    alive = new.of_process.get(RESIDENT, {})
    return {
        "as_of": when(time.time_ns() // 1_000_000),
        "over_s": round(over_s, 3) if over_s else None,
        "rates": {name: _rate(new, before, names) for name, names in RATES.items()} if before is not None else None,
        "latencies": {name: _latency(new, before, metric) for name, metric in LATENCIES.items()} if before is not None else None,
        "now": {name: int(new.sum(metric)) for name, metric in NOW.items()},
        "processes": [
            {
                "name": name,
                "cpu": round(max(0.0, new.of_process[CPU].get(name, 0.0) - cpu[name]) / over_s, 3) if over_s and name in cpu else None,
                "resident_bytes": int(resident),
                "starts": int(new.of_process.get(STARTS, {}).get(name, 0)),
            }
            for name, resident in sorted(alive.items())
        ],
    }


def _rate(new: Sample, before: Sample, names: tuple[str, ...]) -> float:
    return round(max(0.0, new.sum(*names) - before.sum(*names)) / (new.at_s - before.at_s), 3)


def _latency(new: Sample, before: Sample, name: str) -> dict[str, Any]:
    after, then = new.buckets.get(name, {}), before.buckets.get(name, {})
    noted = {bound: count - then.get(bound, 0.0) for bound, count in sorted(after.items())}
    count = noted.get(float("inf"), 0.0)
    took_s = new.sum(f"{name}_sum") - before.sum(f"{name}_sum")
    return {
        "count": int(count), "p50_ms": _percentile(noted, 0.5 * count), "p99_ms": _percentile(noted, 0.99 * count),
        "mean_ms": round(1000 * took_s / count, 3) if count else None,
    }  # fmt: skip


def _percentile(noted: dict[float, float], rank: float) -> float | None:
    for bound, count in noted.items():
        if rank and count >= rank:
            return None if bound == float("inf") else round(1000 * bound, 3)
    return None


def add(app: FastAPI, broker: Broker) -> None:
    figures = Figures(broker.scrape.families)

    @app.get(f"{API}/figures", response_model=FiguresAnswer, responses=ANSWERS, tags=["broker"])
    async def live_figures() -> JSONResponse:
        """Rates and latencies of the last seconds, and how much there is now."""
        return JSONResponse(await broker.look(figures.look))
