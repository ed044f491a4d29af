"""`python -m benchmarks.agree`: our load generator against an independent meter, on the same broker, taking turns.

A generator of one's own may flatter one's own broker without anybody noticing. Here both measure the same scenarios in pairs of runs, and
the median of the pairs' ratios must be within the tolerance, for rates and for the broker's CPU per message. The meter is a program
`mqttload.py` that is no part of this repository; HOLDFAST_LOAD names the directory it is in.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Final

import typer

from benchmarks.bench import target
from benchmarks.brokers import Broker, Holdfast, Mosquitto, ended_from_outside, find_mosquitto
from benchmarks.load import run
from benchmarks.outcome import Result
from benchmarks.scenarios import Options
from benchmarks.workers import RunFailed

METER: Final = "mqttload.py"
UNSET: Final = (
    f"HOLDFAST_LOAD is not set: it names the directory of the independent meter ({METER}) that our load generator is compared with"
)
METER_S: Final = 120


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured quantity, where each of the two keeps it."""

    label: str
    ours: Callable[[Result], float | None]
    theirs: str
    gate: bool = True


@dataclass(frozen=True, slots=True)
class Comparison:
    """One scenario, in the words of both."""

    scenario: str
    words: tuple[str, ...]
    options: Options
    figures: tuple[Figure, ...]


def comparisons(seconds: float, messages: int) -> list[Comparison]:
    """What is compared. A distribution's tail is shown and decides nothing: on a shared machine it is the neighbours'."""
    timed = Options(seconds=seconds)
    rate = Figure("deliveries/s", lambda r: r.delivered_per_s, "deliver_rate")
    cpu = Figure("CPU µs/msg", lambda r: r.cost["data"].cpu_us, "broker_us_per_msg")
    shapes = (
        ("fan-in", "fanin", ("--pubs", "4")),
        ("fan-out", "fanout", ("--pubs", "1", "--subs", "4")),
        ("pairs", "pairs", ("--pubs", "4")),
    )
    secs = ("--secs", str(seconds))
    return [
        *(Comparison(ours, ("pub", "--shape", theirs, *words, *secs), timed, (rate, cpu)) for ours, theirs, words in shapes),
        Comparison(
            "offline",
            ("offline", "--pubs", "4", "--msgs", str(messages)),
            replace(timed, messages=messages),
            (
                Figure("stored/s", lambda r: r.acked_per_s, "ack_rate"),
                Figure("drained/s", lambda r: r.drained_per_s, "drain_rate"),
                Figure("store CPU µs/msg", lambda r: r.cost["data"].cpu_us, "broker_us_per_msg_store"),
                Figure("drain CPU µs/msg", lambda r: r.drain_cost["data"].cpu_us, "broker_us_per_msg_drain"),
            ),
        ),
        Comparison("single", ("pub", "--pubs", "1", "--window", "1", "--coalesce-us", "0", *secs), timed, (rate, cpu)),
        Comparison(
            "latency",
            ("latency", "--rate", "200", *secs),
            timed,
            (Figure("end to end p50 ms", lambda r: r.end_to_end_ms.p50 if r.end_to_end_ms else None, "e2e_ms.p50", gate=False),),
        ),
    ]


def read_figure(line: dict[str, object], name: str) -> float | None:
    """A figure of the meter's JSON; a dot leads into an object."""
    value: object = line
    for part in name.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return float(value) if isinstance(value, int | float) else None


def meter_run(directory: Path, words: Sequence[str], port: int, pids: Sequence[int]) -> dict[str, object]:
    """One run of the independent meter; the object it prints."""
    command = [sys.executable, str(directory / METER), *words, "--port", str(port), "--pid", ",".join(map(str, pids))]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=METER_S)
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        raise RunFailed(f"{METER} {words[0]} ended with {done.returncode}: {(lines or done.stderr.splitlines() or ['nothing'])[-1][-300:]}")
    found: dict[str, object] = json.loads(lines[-1])
    return found


@dataclass(frozen=True, slots=True)
class Agreement:
    """One figure, measured by both."""

    scenario: str
    figure: Figure
    ours: float
    theirs: float
    ratio: float
    """The median of the ratios of the pairs."""

    def within(self, tolerance: float) -> bool:
        return abs(self.ratio - 1) <= tolerance

    def sentence(self, tolerance: float) -> str:
        verdict = ("agrees" if self.within(tolerance) else "DIFFERS") if self.figure.gate else "shown"
        both = f"ours {self.ours:12,.2f}  meter {self.theirs:12,.2f}  ratio {self.ratio:.3f}"
        return f"{verdict:8} {self.scenario:8} {self.figure.label:18} {both}"


def agreement(scenario: str, figure: Figure, pairs: Sequence[tuple[float | None, float | None]]) -> Agreement | None:
    """What the pairs of one figure say; None when neither run of any pair has it."""
    whole = [(ours, theirs) for ours, theirs in pairs if ours and theirs]
    if not whole:
        return None
    ours, theirs = (statistics.median(side) for side in zip(*whole, strict=True))
    return Agreement(scenario, figure, ours, theirs, statistics.median(a / b for a, b in whole))


def compare(comparison: Comparison, broker: Broker, directory: Path, repeats: int) -> list[Agreement]:
    """Pairs of runs of one scenario. Who goes first changes, because a broker that has just worked is warmer."""
    pairs: list[tuple[Result, dict[str, object]]] = []
    for number in range(repeats):
        pids = broker.groups()["data"]
        if number % 2:
            theirs = meter_run(directory, comparison.words, broker.port, pids)
            ours = run(comparison.scenario, target(broker, 4), comparison.options)[-1].result
        else:
            ours = run(comparison.scenario, target(broker, 4), comparison.options)[-1].result
            theirs = meter_run(directory, comparison.words, broker.port, pids)
        pairs.append((ours, theirs))
    found = (agreement(comparison.scenario, f, [(f.ours(a), read_figure(b, f.theirs)) for a, b in pairs]) for f in comparison.figures)
    return [each for each in found if each is not None]


def start(name: str, directory: Path) -> Broker:
    """The broker that both measure."""
    program = find_mosquitto()
    if name == "mosquitto" and program is None:
        raise RunFailed("mosquitto is not installed; `make system-deps` installs it, --broker holdfast does without")
    broker: Broker = Mosquitto(directory, program) if name == "mosquitto" and program else Holdfast(directory)
    try:
        broker.start()
    except RunFailed:
        broker.stop()
        raise
    return broker


def agree(
    meter: Annotated[Path | None, typer.Option(envvar="HOLDFAST_LOAD", help=f"Directory of {METER}.")] = None,
    broker: Annotated[str, typer.Option(help="mosquitto or holdfast.")] = "mosquitto",
    repeats: Annotated[int, typer.Option(help="Pairs of runs of each scenario.")] = 5,
    seconds: Annotated[float, typer.Option(help="Of publishing in timed scenarios.")] = 2.5,
    messages: Annotated[int, typer.Option(help="Stored and drained; too few drown in the 10 ms steps of the CPU account.")] = 100_000,
    tolerance: Annotated[float, typer.Option(help="Largest difference that is agreement.")] = 0.10,
    only: Annotated[list[str] | None, typer.Option(help="Leave out the other scenarios.")] = None,
) -> None:
    """Compare the load generator with an independent meter."""
    if meter is None:
        print(UNSET, file=sys.stderr)
        raise typer.Exit(2)
    if not (meter / METER).is_file():
        print(f"HOLDFAST_LOAD names {meter}, where there is no {METER}", file=sys.stderr)
        raise typer.Exit(2)
    with ended_from_outside(), tempfile.TemporaryDirectory(prefix="agree-") as directory:
        try:
            found = _all(meter, broker, repeats, comparisons(seconds, messages), only or [], Path(directory), tolerance)
        except (RunFailed, subprocess.TimeoutExpired) as failure:
            print(f"no comparison: {failure}", file=sys.stderr)
            raise typer.Exit(2) from None
    gated = [each for each in found if each.figure.gate]
    agreed = sum(each.within(tolerance) for each in gated)
    print(f"{agreed} of {len(gated)} figures agree within {tolerance:.0%}")
    raise typer.Exit(0 if gated and agreed == len(gated) else 1)


def _all(
    meter: Path, name: str, repeats: int, wanted: Sequence[Comparison], only: Sequence[str], directory: Path, tolerance: float
) -> list[Agreement]:
    broker = start(name, directory)
    found: list[Agreement] = []
    try:
        for comparison in wanted:
            if not only or comparison.scenario in only:
                for each in compare(comparison, broker, meter, repeats):
                    print(each.sentence(tolerance), flush=True)
                    found.append(each)
    finally:
        broker.stop()
    return found


if __name__ == "__main__":
    typer.run(agree)
