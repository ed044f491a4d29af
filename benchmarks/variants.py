"""The fan-in by other transports, sizes, versions, levels of quality and many publishers, beside the plain one: is there one that falls
off a cliff?

Four publishers to one subscriber, as in the plain case, or very many that wait for each answer; what differs is in the variant's name.
mosquitto takes part wherever it is reached by plain TCP; TLS and WebSocket are compared with our own plain case.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from benchmarks.load import Record
from benchmarks.outcome import Result
from benchmarks.scenarios import Options
from benchmarks.table import figure, markdown, median
from benchmarks.turns import Turn

SCENARIO: Final = "fan-in"
QOS0: Final = "QoS 0 to ephemeral"
QOS0_MUST: Final = 0.5
QOS0_WANT: Final = 0.8
"""Of mosquitto's rate in one run."""


def variant_turns(*, quick: bool, repeats: int, plain: bool = False) -> list[Turn]:
    """A turn for each variant. plain: the plain case too, which the standard set has already."""
    base = Options(seconds=1.0 if quick else 2.0, hard_s=60)
    large = 16 * 1024

    def turn(variant: str, options: Options) -> Turn:
        return Turn(SCENARIO, options, options, repeats, variant=variant)

    return [
        *([turn("", base)] if plain else []),
        turn(QOS0, replace(base, qos=0, ephemeral=True)),
        turn("QoS 2", replace(base, qos=2)),
        turn("16 B", replace(base, payload_bytes=16)),
        turn("16 KiB", replace(base, payload_bytes=large, window=64)),
        turn("1,000 publishers, one at a time", replace(base, publishers=1000, window=1, topics=1000)),
        replace(turn("MQTT 5", base), version=5),
        replace(turn("MQTT 5 with properties", replace(base, properties=True)), version=5),
        replace(turn("TLS", base), transport="tls", mosquitto=None),
        replace(turn("WebSocket", base), transport="web", mosquitto=None),
    ]


def names() -> list[str]:
    """Of all variants."""
    return [turn.variant for turn in variant_turns(quick=True, repeats=1)]


def _of(records: Sequence[Record], broker: str, variant: str) -> list[Result]:
    chosen = (each for each in records if each.broker == broker and each.variant == variant and each.result.scenario == SCENARIO)
    return [each.result for each in chosen]


def _rate(results: Sequence[Result]) -> float | None:
    return median(result.delivered_per_s for result in results)


def _cost(results: Sequence[Result]) -> float | None:
    return median(result.cost["data"].cpu_us for result in results if "data" in result.cost)


def _share(value: float | None, of: float | None) -> float | None:
    return value / of if value is not None and of else None


def variant_table(records: Sequence[Record]) -> str:
    """Rate and CPU of each variant, beside the plain case and beside mosquitto."""
    head = ["fan-in", "msg/s", "of plain", "µs/msg", "of plain", "mosquitto msg/s", "ratio to it", "mosquitto µs/msg", "lost/dup/ooo"]
    rows = [head]
    plain = _of(records, "holdfast", "")
    for variant in ["", *names()]:
        ours, theirs = _of(records, "holdfast", variant), _of(records, "mosquitto", variant)
        if not ours:
            continue
        rate, cost = _rate(ours), _cost(ours)
        rows.append(
            [
                variant or "plain: QoS 1, 256 B, MQTT 3.1.1, TCP",
                figure(rate, 0),
                figure(_share(rate, _rate(plain)), 2),
                figure(cost, 1),
                figure(_share(cost, _cost(plain)), 2),
                figure(_rate(theirs), 0),
                figure(_share(rate, _rate(theirs)), 2),
                figure(_cost(theirs), 1),
                "/".join(str(max(getattr(result, name) for result in ours)) for name in ("lost", "duplicated", "out_of_order")),
            ]
        )
    return "\n".join(markdown(rows))


def qos0_ratio(records: Sequence[Record]) -> float | None:
    """Our rate at QoS 0 to mosquitto's; None where one of them has none."""
    return _share(_rate(_of(records, "holdfast", QOS0)), _rate(_of(records, "mosquitto", QOS0)))


def problems(records: Sequence[Record]) -> list[str]:
    """What keeps the table from being whole and good."""
    absent = [variant or "plain" for variant in ["", *names()] if _rate(_of(records, "holdfast", variant)) is None]
    ratio = qos0_ratio(records)
    out = [f"no result of {', '.join(absent)}"] if absent else []
    if ratio is None:
        return [*out, f"no ratio to mosquitto of {QOS0}"]
    return [*out, f"{QOS0} {ratio:.2f} of mosquitto's rate, wanted at least {QOS0_MUST}"] if ratio < QOS0_MUST else out
