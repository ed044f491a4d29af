"""The table that `make bench` prints."""

from __future__ import annotations

from dataclasses import replace

from benchmarks import meter
from benchmarks.load import Probe, Record
from benchmarks.outcome import Cost, Result, Spread
from benchmarks.scenarios import Options
from benchmarks.table import idle_line, render

MACHINE = meter.Machine(2, "some CPU", "6.1", 4000, "3.11.2")


def record(broker: str, result: Result) -> Record:
    return Record("2030-01-01T00:00:00Z", "abc", broker, "1", MACHINE, 0.1, "3.1.1", Options(), Probe(0.1, 0.3), result)


def stored(rate: float, cpu_us: float) -> Result:
    cost = {"data": Cost(cpu_us, 0), "all": Cost(cpu_us + 1, 0)}
    return Result("offline", 1, 512, 100, 100, 0, 100, acked_per_s=rate, drained_per_s=10 * rate, cost=cost, drain_cost=cost)


def cells(text: str, label: str) -> list[str]:
    (line,) = [line for line in text.splitlines() if line.startswith(f"| {label}")]
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_the_median_run_stands_for_a_scenario() -> None:
    """One outlier moves nothing; the ratio is that of the medians."""
    ours = [record("holdfast", stored(rate, cpu)) for rate, cpu in ((100, 30), (110, 20), (900, 10))]
    theirs = [record("mosquitto", stored(rate, 5)) for rate in (220, 200, 1)]
    row = cells(render(ours + theirs), "offline store")
    assert row == ["offline store, acked/s", "110", "20.0 (21.0)", "200", "5.0 (6.0)", "0.55", "0/0/0", "0/0/0"]


def test_the_worst_run_stands_for_what_went_wrong() -> None:
    """A loss in one of three runs is not averaged away."""
    runs = [record("holdfast", stored(100, 10)), record("holdfast", replace(stored(100, 10), lost=3, out_of_order=1))]
    assert cells(render(runs), "offline store")[-1] == "3/0/1"


def test_without_a_second_broker_there_are_no_ratios() -> None:
    """And no empty columns for it."""
    text = render([record("holdfast", stored(100, 10))])
    assert "mosquitto" not in text
    assert cells(text, "drain after reconnect") == ["drain after reconnect, msg/s", "1,000", "10.0 (11.0)", "0/0/0"]


def test_the_price_of_many_sessions_is_told_against_one() -> None:
    """By CPU per stored message."""
    one = Result("one-session", 1, 512, 100, 100, 0, 0, acked_per_s=100.0, cost={"data": Cost(10, 0)})
    many = Result("sessions", 1000, 512, 100, 100, 0, 0, acked_per_s=90.0, cost={"data": Cost(10.8, 0)})
    text = render([record("holdfast", one), record("holdfast", many)])
    assert "holdfast: a stored message costs 1.08 times as much with 1,000 sessions as with one" in text
    assert cells(text, "1,000 offline sessions")[1] == "90"


def test_latencies_have_a_table_of_their_own() -> None:
    """p50 and p99, only for what was measured."""
    paced = Result("latency", 1, 512, 9, 9, 0, 9, ack_ms=Spread(0.5, 1.5, 9), end_to_end_ms=Spread(0.7, 2.25, 9))
    text = render([record("holdfast", paced)])
    assert cells(text, "end to end") == ["end to end at the fixed rate", "0.70 / 2.25"]
    assert "one outstanding" not in text


def test_idle_cpu_is_in_percent_of_a_core() -> None:
    """Gate 5 asks for it in this unit."""
    assert idle_line({"holdfast": {"data": 0.052, "all": 0.14}}).endswith("holdfast data 5.2 %, all 14.0 %")
