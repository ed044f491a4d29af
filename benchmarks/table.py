"""The table a benchmark prints: medians by scenario, Holdfast beside mosquitto, and what was lost, doubled and disordered.

CPU per message stands beside each rate because it stays steady where rates do not. `data` are the processes a message passes through,
`all` counts Ray's own and the launcher too. Lost, doubled, disordered are the worst of all runs and not medians.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.load import Record
from benchmarks.outcome import Result


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the table: what it is called, and where its figures are in a result."""

    label: str
    scenario: str
    rate: Callable[[Result], float | None]
    cost: Callable[[Result, str], float | None]


def _cost(result: Result, group: str) -> float | None:
    return result.cost[group].cpu_us if group in result.cost else None


def _drain_cost(result: Result, group: str) -> float | None:
    return result.drain_cost[group].cpu_us if group in result.drain_cost else None


LINES = (
    Line("ingest, acked/s", "ingest", lambda r: r.acked_per_s, _cost),
    Line("offline store, acked/s", "offline", lambda r: r.acked_per_s, _cost),
    Line("drain after reconnect, msg/s", "offline", lambda r: r.drained_per_s, _drain_cost),
    Line("fan-in 4:1, msg/s", "fan-in", lambda r: r.delivered_per_s, _cost),
    Line("fan-out 1:4, deliveries/s", "fan-out", lambda r: r.delivered_per_s, _cost),
    Line("pairs 4:4, msg/s", "pairs", lambda r: r.delivered_per_s, _cost),
    Line("one outstanding, msg/s", "single", lambda r: r.delivered_per_s, _cost),
    Line("1 offline session on a wildcard, acked/s", "one-session", lambda r: r.acked_per_s, _cost),
    Line("{sessions} offline sessions on it, acked/s", "sessions", lambda r: r.acked_per_s, _cost),
)


def render(records: Sequence[Record]) -> str:
    """The tables, as Markdown."""
    if not records:
        return "no run has a result"
    names = list(dict.fromkeys(record.broker for record in records))
    first = records[0]
    out = [
        f"commit {first.commit}, {first.date}, {first.machine.cores} cores of {first.machine.model}, kernel {first.machine.kernel}, "
        f"MQTT {first.mqtt}, QoS {first.options.qos}, {first.options.payload_bytes} B, fdatasync p50 {_probe(records)} ms",
        "",
        *_rates(records, names),
    ]
    for more in (_latencies(records, names), _sessions_ratio(records, names)):
        if more:
            out += ["", *more]
    return "\n".join(out)


def idle_line(idle: Mapping[str, Mapping[str, float]]) -> str:
    """CPU with nobody connected."""
    parts = (f"{name} " + ", ".join(f"{group} {100 * cores:.1f} %" for group, cores in groups.items()) for name, groups in idle.items())
    return "CPU when idle, of one core: " + "; ".join(parts)


def _rates(records: Sequence[Record], names: Sequence[str]) -> list[str]:
    heads = [head for name in names for head in (name, f"{name} µs/msg data (all)")]
    ratios = [f"{names[0]} / {name}" for name in names[1:]]
    checks = [f"{name} lost/dup/ooo" for name in names]
    rows = [["scenario", *heads, *ratios, *checks]]
    for line in LINES:
        of = {name: _results(records, name, line.scenario) for name in names}
        if not any(of.values()):
            continue
        sessions = max(result.sessions for results in of.values() for result in results)
        row = [line.label.format(sessions=f"{sessions:,}")]
        rates = {name: median(map(line.rate, of[name])) for name in names}
        for name in names:
            data, everything = (median(line.cost(result, group) for result in of[name]) for group in ("data", "all"))
            row += [figure(rates[name], 0), f"{figure(data, 1)} ({figure(everything, 1)})"]
        row += [_ratio(rates[names[0]], rates[name]) for name in names[1:]]
        row += [_worst(of[name]) for name in names]
        rows.append(row)
    return markdown(rows)


def _latencies(records: Sequence[Record], names: Sequence[str]) -> list[str]:
    rows = [["latency, ms p50 / p99", *names]]
    for label, scenario, end_to_end in (
        ("end to end at the fixed rate", "latency", True),
        ("acknowledgement at the fixed rate", "latency", False),
        ("acknowledgement, one outstanding", "single", False),
    ):
        row = [label]
        for name in names:
            spreads = [r.end_to_end_ms if end_to_end else r.ack_ms for r in _results(records, name, scenario)]
            row.append(" / ".join(figure(median(getattr(s, part) for s in spreads if s), 2) for part in ("p50", "p99")))
        if set("".join(row[1:])) - set("-/ "):
            rows.append(row)
    return markdown(rows) if len(rows) > 1 else []


def _sessions_ratio(records: Sequence[Record], names: Sequence[str]) -> list[str]:
    out = []
    for name in names:
        one, many = _results(records, name, "one-session"), _results(records, name, "sessions")
        few, lot = (median(_cost(result, "data") for result in results) for results in (one, many))
        if few and lot:
            out.append(f"{name}: a stored message costs {lot / few:.2f} times as much with {many[0].sessions:,} sessions as with one")
    return out


def _results(records: Sequence[Record], broker: str, scenario: str) -> list[Result]:
    return [record.result for record in records if record.broker == broker and record.result.scenario == scenario and not record.variant]


def median(values: Iterable[float | None]) -> float | None:
    """The median of those that are there."""
    found = [value for value in values if value is not None]
    return statistics.median(found) if found else None


def figure(value: float | None, digits: int) -> str:
    """A number for people; a dash where there is none."""
    return "-" if value is None else f"{value:,.{digits}f}"


def _ratio(ours: float | None, theirs: float | None) -> str:
    return f"{ours / theirs:.2f}" if ours and theirs else "-"


def _worst(results: Sequence[Result]) -> str:
    if not results:
        return "-"
    return "/".join(str(max(getattr(result, name) for result in results)) for name in ("lost", "duplicated", "out_of_order"))


def _probe(records: Sequence[Record]) -> str:
    values = [value for record in records for value in (record.fdatasync_p50_ms.before, record.fdatasync_p50_ms.after)]
    return f"{min(values):.2f}..{max(values):.2f}, median {statistics.median(values):.2f}"


def markdown(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows as a table, its columns as wide as they have to be."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in rows]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return lines
