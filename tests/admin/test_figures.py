"""Live rates and latencies: what was counted between two looks."""

from __future__ import annotations

from prometheus_client.metrics_core import Metric as Family

from actors.admin.figures import CPU, LATENCIES, NOW, RATES, RESIDENT, STARTS, Figures
from actors.metrics.catalogue import METRICS

BOUNDS = ("0.001", "0.01", "+Inf")


class Scraped:
    """Counts that a test sets."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.published = [0.0, 0.0]
        self.stored = 0.0
        self.commits = [0.0, 0.0, 0.0]
        self.looks = 0

    def families(self) -> list[Family]:
        self.looks += 1
        published = Family("holdfast_gateway_publishes_received", "", "counter")
        for gateway, count in enumerate(self.published):
            published.add_sample("holdfast_gateway_publishes_received_total", {"gateway": str(gateway)}, count)
        stored = Family("emqx_ds_egress_messages", "", "counter")
        stored.add_sample("emqx_ds_egress_messages_total", {"db": "messages", "shard": "0"}, self.stored)
        commits = Family("holdfast_shard_commit_seconds", "", "histogram")
        for bound, count in zip(BOUNDS, self.commits, strict=True):
            commits.add_sample("holdfast_shard_commit_seconds_bucket", {"shard": "0", "le": bound}, count)
        commits.add_sample("holdfast_shard_commit_seconds_sum", {"shard": "0"}, self.commits[2] * 0.002)
        process = Family("x", "", "gauge")
        for name, value in ((CPU, self.now_s / 2), (RESIDENT, 5e6), (STARTS, 2.0)):
            process.add_sample(name, {"process": "shard-0"}, value)
        return [published, stored, commits, process]


def test_names_are_those_that_are_scraped() -> None:
    """A metric that was renamed would be 0 for ever."""
    known = {metric.name for metric in METRICS}
    asked = {name for names in RATES.values() for name in names} | {*LATENCIES.values(), *NOW.values(), CPU, RESIDENT, STARTS}
    assert asked - known == set()


def test_rates_are_of_the_time_since_somebody_has_asked_before() -> None:
    """The first look has none; what is older than a minute does not count."""
    scraped = Scraped()
    figures = Figures(scraped.families, lambda: scraped.now_s)
    first = figures.look()
    assert first["rates"] is None and first["over_s"] is None and first["latencies"] is None and first["processes"][0]["cpu"] is None
    scraped.now_s, scraped.published, scraped.stored, scraped.commits = 4.0, [10.0, 30.0], 20.0, [90.0, 99.0, 100.0]
    second = figures.look()
    assert second["over_s"] == 4.0 and second["rates"]["published"] == 10.0 and second["rates"]["stored"] == 5.0
    assert second["latencies"]["commit"] == {"count": 100, "p50_ms": 1.0, "p99_ms": 10.0, "mean_ms": 2.0}
    assert second["latencies"]["publish"] == {"count": 0, "p50_ms": None, "p99_ms": None, "mean_ms": None}
    assert second["processes"] == [{"name": "shard-0", "cpu": 0.5, "resident_bytes": 5_000_000, "starts": 2}]
    scraped.now_s, scraped.commits = 6.0, [120.0, 190.0, 200.0]
    third = figures.look()
    assert third["over_s"] == 6.0 and third["latencies"]["commit"]["p50_ms"] == 1.0 and third["latencies"]["commit"]["p99_ms"] is None
    scraped.now_s = 6.5
    assert figures.look() is third and scraped.looks == 3
    scraped.now_s = 100.0
    assert figures.look()["rates"] is None
