"""Whether the lake has what it must have: every row of the store once, and every acknowledged message, in order.

Two comparisons, each of which stands by itself:

* *lake against store*, by identity (shard, offset): a row that is not in the lake is *lost*, one that is there twice is a *duplicate*,
  one that the store does not have is a *stranger*, one with other bytes is *changed*.
* *rows against the publishers' ledger*: an acknowledged number without a row is *lost*; one with more rows than it was sent (QoS 1), or
  more than one (QoS 2), is a *duplicate*; rows of one client and topic whose numbers, first arrivals only, do not grow with the offset
  are in *disorder*; a row that nobody sent is a *stranger*.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from tests.lake.ledger import ACKNOWLEDGED, LakeLedger, Sent, parse_lake_payload
from tests.lake.stored import Row

Kind = Literal["lost", "duplicate", "stranger", "changed", "disorder"]


@dataclass(slots=True)
class Verdict:
    """How many of each kind, and the first of each in words."""

    counts: Counter[Kind] = field(default_factory=Counter)
    first: dict[Kind, str] = field(default_factory=dict)

    def add(self, kind: Kind, text: str) -> None:
        self.counts[kind] += 1
        self.first.setdefault(kind, text)

    @property
    def good(self) -> bool:
        return not self.counts

    def __str__(self) -> str:
        return "; ".join(f"{count} x {kind} (first: {self.first[kind]})" for kind, count in self.counts.items()) or "nothing wrong"


def lake_against_store(lake: Iterable[Row], store: Iterable[Row]) -> Verdict:
    verdict = Verdict()
    wanted = {(row.shard, row.offset): row for row in store}
    seen: set[tuple[int, int]] = set()
    for row in lake:
        identity = (row.shard, row.offset)
        stored = wanted.get(identity)
        if stored is None:
            verdict.add("stranger", f"row {identity} of the lake is not in the store: {row.payload[:60]!r}")
        elif identity in seen:
            verdict.add("duplicate", f"row {identity} is in the lake again: {row.payload[:60]!r}")
        elif stored != row:
            verdict.add("changed", f"row {identity} is {row} in the lake and {stored} in the store")
        seen.add(identity)
    for identity, row in wanted.items():
        if identity not in seen:
            verdict.add("lost", f"row {identity} of the store is not in the lake: {row.payload[:60]!r}")
    return verdict


def rows_against_ledger(rows: Iterable[Row], ledger: LakeLedger) -> Verdict:
    """rows: in the order of (shard, offset)."""
    verdict = Verdict()
    times: dict[tuple[str, str], Counter[int]] = {key: Counter() for key in ledger.streams}
    newest: dict[tuple[str, str], int] = {}
    homes: dict[str, int] = {}
    for row in rows:
        said = parse_lake_payload(row.payload)
        stream = ledger.streams.get((row.client, row.topic))
        if said is None or stream is None or said[:2] != (row.client, row.topic) or said[2] >= len(stream.state) or row.qos != stream.qos:
            verdict.add("stranger", f"nobody sent {row}")
            continue
        if homes.setdefault(row.client, row.shard) != row.shard:
            verdict.add("disorder", f"messages of {row.client} are in shards {homes[row.client]} and {row.shard}")
        key, number = said[:2], said[2]
        times[key][number] += 1
        if times[key][number] == 1:
            if number < newest.get(key, -1):
                verdict.add("disorder", f"message {number} of {key[0]} on {key[1]} comes after {newest[key]}")
            newest[key] = max(number, newest.get(key, -1))
    for key, stream in ledger.streams.items():
        _judge_stream(stream, times[key], verdict)
    return verdict


def _judge_stream(stream: Sent, times: Counter[int], verdict: Verdict) -> None:
    for number, state in enumerate(stream.state):
        found = times.get(number, 0)
        if state == ACKNOWLEDGED and not found:
            verdict.add("lost", f"message {number} of {stream.client} on {stream.topic} (QoS {stream.qos}) was acknowledged")
        elif found > stream.times_max(number):
            verdict.add(
                "duplicate",
                f"message {number} of {stream.client} on {stream.topic} (QoS {stream.qos}) has {found} rows, "
                f"at most {stream.times_max(number)} may be",
            )
