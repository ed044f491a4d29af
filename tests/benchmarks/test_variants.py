"""The table of variants, and when it is not whole."""

from __future__ import annotations

from benchmarks.load import Record
from benchmarks.variants import QOS0, names, problems, qos0_ratio, variant_table, variant_turns
from tests.benchmarks.samples import ran, record


def whole(qos0: float = 60) -> list[Record]:
    ours = [record("holdfast", ran("fan-in", 50, 20), variant=each) for each in names() if each != QOS0]
    plain, at_0 = record("holdfast", ran("fan-in", 100, 10)), record("holdfast", ran("fan-in", qos0, 5), variant=QOS0)
    return [plain, *ours, at_0, record("mosquitto", ran("fan-in", 100, 5), variant=QOS0)]


def test_a_variant_stands_beside_the_plain_case_and_mosquitto() -> None:
    """Rate and cost, as shares of the plain ones."""
    (line,) = [line for line in variant_table(whole()).splitlines() if line.startswith("| WebSocket")]
    assert [cell.strip() for cell in line.strip("|").split("|")] == ["WebSocket", "50", "0.50", "20.0", "2.00", "-", "-", "-", "0/0/0"]


def test_the_table_is_whole_or_says_what_is_missing() -> None:
    """A variant without a result, no mosquitto, and QoS 0 at less than half of its rate."""
    assert problems(whole()) == []
    assert problems([each for each in whole() if each.variant not in ("TLS", "")]) == ["no result of plain, TLS"]
    assert problems([each for each in whole() if each.broker == "holdfast"]) == [f"no ratio to mosquitto of {QOS0}"]
    assert qos0_ratio(whole(40)) == 0.4
    assert problems(whole(40)) == [f"{QOS0} 0.40 of mosquitto's rate, wanted at least 0.5"]


def test_every_variant_differs_in_what_its_name_says() -> None:
    """And the plain one in nothing."""
    turns = {turn.variant: turn for turn in variant_turns(quick=True, repeats=1, plain=True)}
    plain = turns.pop("")
    assert (plain.transport, plain.version, plain.options.qos) == ("tcp", None, 1)
    assert {name for name, turn in turns.items() if turn.mosquitto is None} == {"TLS", "WebSocket"}
    assert turns["MQTT 5 with properties"].options.properties and turns["MQTT 5 with properties"].version == 5
    assert turns[QOS0].options.ephemeral and turns["QoS 2"].options.qos == 2
