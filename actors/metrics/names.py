"""What a metric is. Where its values come from is said beside them (of_shard and the others); `catalogue` has all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Kind = Literal["counter", "gauge", "histogram"]


@dataclass(frozen=True, slots=True)
class Metric:
    """name: as it is scraped; of a histogram without `_bucket`, `_sum` and `_count`."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    help: str

    @property
    def family(self) -> str:
        """What prometheus_client calls it: without the ending that it puts behind counters."""
        return self.name.removesuffix("_total") if self.kind == "counter" else self.name

    @property
    def samples(self) -> tuple[str, ...]:
        """The names that a query may have."""
        return tuple([f"{self.name}_{part}" for part in ("bucket", "sum", "count")]) if self.kind == "histogram" else (self.name,)


def counters(prefix: str, label: str, meanings: Mapping[str, str]) -> dict[str, Metric]:
    """One for each of what somebody counts anyway, by the name that it has there."""
    return {name: Metric(f"{prefix}_{name}_total", "counter", (label,), meaning) for name, meaning in meanings.items()}


def gauges(prefix: str, label: str, meanings: Mapping[str, str]) -> dict[str, Metric]:
    return {name: Metric(f"{prefix}_{name}", "gauge", (label,), meaning) for name, meaning in meanings.items()}
