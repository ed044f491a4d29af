"""The verdict on what was measured: which turns count, which bar is moved by the machine, and what is missed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.bench import ResultsFile
from benchmarks.load import Record
from benchmarks.records import read_record, read_results, unclean
from benchmarks.targets import BARS, Judged, judge, line, main, missed, text, turns
from benchmarks.workers import RunFailed
from tests.benchmarks.samples import ran, record


def alternating(scenario: str, ours: Sequence[float], theirs: Sequence[float], *, disk_ms: float = 0.2, cpu_us: float = 10) -> list[Record]:
    out = []
    for mine, other in zip(ours, theirs, strict=True):
        out += [record("holdfast", ran(scenario, mine, cpu_us, cpu_us), disk_ms=disk_ms), record("mosquitto", ran(scenario, other, 1, 1))]
    return out


def of(records: Sequence[Record], name: str, kind: str) -> Judged:
    (found,) = [each for each in judge(records) if (each.bar.name, each.bar.kind) == (name, kind)]
    return found


def test_a_rate_is_the_median_of_the_ratios_of_turns() -> None:
    """A neighbour that slows both in one turn changes nothing, and one that slows one of them in one turn neither."""
    found = of(alternating("fan-in", [40, 4, 40, 40, 1], [50, 5, 50, 50, 50]), "fan-in", "rate")
    assert found.found == pytest.approx(0.8)
    assert found.judged and found.met and not found.wanted


def test_a_turn_without_mosquittos_run_is_no_ratio() -> None:
    """Its run failed: ours is not compared with the one of another turn."""
    records = alternating("fan-in", [40, 10, 40], [50, 50, 50])
    assert of([*records[:3], *records[4:]], "fan-in", "rate").found == pytest.approx(0.8)
    alone = [each for each in records if each.broker == "holdfast"]
    found = of(alone, "fan-in", "rate")
    assert found.found is None and found in missed(judge(alone))


def test_rates_are_judged_by_turns_with_a_fast_disk() -> None:
    """As long as these are more than half of all; else the line says what the disk took, and the rate fails nothing."""
    fast, slow = alternating("fan-in", [40, 40], [50, 50]), alternating("fan-in", [1], [50], disk_ms=2.0)
    assert of([*fast, *slow], "fan-in", "rate").found == pytest.approx(0.8)
    found = of([*fast[:2], *slow], "fan-in", "rate")
    assert not found.judged and "disk p50" in str(found) and found not in missed([found])


def test_cpu_is_judged_whatever_the_disk() -> None:
    """It is the figure that stays the same where rates do not."""
    found = of(alternating("offline", [1, 1, 1], [50, 50, 50], disk_ms=20, cpu_us=14.1), "store", "cpu")
    assert found.judged and not found.met
    assert of(alternating("offline", [1], [50], disk_ms=20, cpu_us=14), "store", "cpu").met


def test_latency_is_held_to_milliseconds_moved_by_how_slow_mosquitto_is() -> None:
    """Never to fewer than were promised."""
    slow = [record("holdfast", ran("latency", 1, ms=2.9)), record("mosquitto", ran("latency", 1, ms=0.28))]
    found = of(slow, "p50", "ms")
    assert found.must == pytest.approx(3.0) and found.met
    quick = [record("holdfast", ran("latency", 1, ms=1.4)), record("mosquitto", ran("latency", 1, ms=0.07))]
    assert of(quick, "p50", "ms").must == 1.5 and of(quick, "p50", "ms").met
    assert not of([record("holdfast", ran("latency", 1, ms=1.6)), quick[1]], "p50", "ms").met


def test_many_sessions_are_compared_with_one_of_ours() -> None:
    """Of the same turn; mosquitto has no part in it."""
    records = [record("holdfast", ran("one-session", 100)), record("holdfast", ran("sessions", 95, sessions=1000))]
    assert of(records, "many sessions", "rate").found == pytest.approx(0.95)


def test_what_is_missed_and_what_is_only_wanted_are_told_apart() -> None:
    """The line has every figure, with both bars."""
    found = judge(alternating("offline", [100], [100], cpu_us=9))
    assert not missed(found)
    assert "store 9.0 us (must 14, want 7)" in line(found) and "missed: store cpu, drain cpu, store rate, drain rate" in line(found)
    assert [str(each) for each in missed(judge(alternating("offline", [100], [100], cpu_us=9.5)))] == ["drain 9.5 us (must 9, want 4)"]


def test_the_page_has_a_line_for_each_bar() -> None:
    """With what was found, and the verdict."""
    found = text(alternating("offline", [70], [100], cpu_us=9.5)).splitlines()
    assert found[0].startswith("Commit abc, 2030-01-01")
    assert [[cell.strip() for cell in row.strip("|").split("|")] for row in found[4:]] == [
        ["store, CPU, µs/msg", "9.5", "14", "7", "reached"],
        ["drain, CPU, µs/msg", "9.5", "9", "4", "**missed**"],
        ["store, rate", "0.70 of mosquitto's, 70/s", "0.50", "1.00", "reached"],
        ["drain, rate", "0.70 of mosquitto's, 70/s", "0.84", "1.68", "**missed**"],
    ]


def test_variants_are_not_judged() -> None:
    """A run by WebSocket stands beside the plain one and is not it."""
    assert judge([replace(each, variant="tls") for each in alternating("fan-in", [1], [50])]) == []


def test_every_bar_has_its_scenario_in_the_run() -> None:
    """Five turns in full, one in a quick run; what mosquitto copies a thousand times is left out for it."""
    for quick, rounds in ((True, 1), (False, 5)):
        chosen = {turn.scenario: turn for turn in turns(quick=quick, rounds=rounds)}
        # A run of many sessions begins with one of a single session.
        assert {bar.scenario for bar in BARS} == set(chosen)
        assert {turn.repeats for turn in chosen.values()} == {rounds}
        assert chosen["sessions"].mosquitto is None and chosen["fan-in"].mosquitto is not None


def test_a_results_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    """Every field; an older file without the newer ones, and one with a key nobody knows, too."""
    wrote = [record("holdfast", ran("latency", 3, 2, 1, ms=0.5), variant="tls"), *alternating("offline", [1], [2])]
    file = ResultsFile(tmp_path / "one.json")
    for each in wrote:
        file.add(each)
    assert read_results(file.path) == wrote
    raw = json.loads(wrote[0].line())
    del raw["variant"], raw["result"]["stories"]
    raw["result"]["of_the_future"] = 1
    assert read_record(raw) == replace(wrote[0], variant="")
    (tmp_path / "two.json").write_text("{}")
    with pytest.raises(RunFailed, match="no results file"):
        read_results(tmp_path / "three.json")


def test_the_command_judges_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 1 when a bar is missed or something was lost."""
    file = ResultsFile(tmp_path / "one.json")
    for each in alternating("fan-in", [45], [50]):
        file.add(each)
    assert main(["--judge", str(file.path)]) == 0
    assert "fan-in 0.90x = 45/s" in capsys.readouterr().out
    file.add(record("holdfast", ran("fan-in", 45, 10, lost=3)))
    assert main(["--judge", str(file.path)]) == 1
    assert "WRONG      fan-in: 3 lost" in capsys.readouterr().out
    assert unclean(read_results(file.path)) == ["fan-in: 3 lost"]
