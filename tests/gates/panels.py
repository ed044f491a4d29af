"""What the panels of a dashboard in Grafana's format would show: their queries, asked of a Prometheus.

Grafana's variables stand for what they stand for when somebody has just opened the dashboard: all brokers, the last minutes.
"""

from __future__ import annotations

import json
import math
import urllib.parse
import urllib.request
from dataclasses import dataclass
from pathlib import Path

VARIABLES = {"$__rate_interval": "1m", "$__interval": "15s", "$__range": "5m", "$instance": ".*"}


@dataclass(frozen=True, slots=True)
class Panel:
    title: str
    queries: tuple[str, ...]


def panels(dashboard: Path) -> list[Panel]:
    """Those that ask something; rows have panels of their own."""
    found = []
    waiting = list(json.loads(dashboard.read_text(encoding="utf-8"))["panels"])
    while waiting:
        one = waiting.pop(0)
        waiting += one.get("panels", [])
        queries = tuple(_filled(target["expr"]) for target in one.get("targets", []))
        if queries:
            found.append(Panel(one["title"], queries))
    return found


def _filled(query: str) -> str:
    for name, value in VARIABLES.items():
        query = query.replace(name, value)
    return query


def ask(port: str, query: str) -> list[float]:
    """The values that Prometheus has for it now, those that are no numbers left out. Raises OSError while nobody answers."""
    address = f"http://127.0.0.1:{port}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
    with urllib.request.urlopen(address, timeout=30) as answer:
        result = json.load(answer)["data"]["result"]
    values = [float(one["value"][1]) for one in result]
    return [value for value in values if not math.isnan(value)]
