"""Curves of what a message costs: how growth is computed, what is missing, and the picture."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.bench import ResultsFile
from benchmarks.growth import crowd
from benchmarks.growth.__main__ import arguments
from benchmarks.growth.curves import DIMENSIONS, Curve, Point, beside, curves, line, problems, table, variant
from benchmarks.growth.measuring import PARTS, VARIANTS, Measuring
from benchmarks.load import Record
from benchmarks.page import filled
from benchmarks.plot import Series, line_chart, nice_step
from benchmarks.scenarios import spread_topics
from benchmarks.workers import RunFailed
from tests.benchmarks.samples import ran, record


def level(dimension: str, amount: int, *store_us: float, scenario: str = "offline") -> list[Record]:
    drain = 4.0 if scenario in ("offline", "sessions") else 0.0
    return [record("holdfast", ran(scenario, 1, us, drain), variant=variant(dimension, amount)) for us in store_us]


def store(records: list[Record], dimension: str) -> Curve:
    (found,) = [curve for curve in curves(records) if (curve.dimension, curve.phase) == (dimension, "store")]
    return found


def test_growth_is_over_the_cheapest_level_below() -> None:
    """A dear first level hides nothing, and what becomes cheaper has not grown."""

    def of(*us: float) -> float:
        return Curve("topics", "store", tuple(Point(10**n, each, each, 1) for n, each in enumerate(us))).growth

    assert of(20, 10, 12) == pytest.approx(1.2)
    assert of(12, 11, 10) == pytest.approx(11 / 12)
    assert of(10) == 1.0


def test_a_level_is_put_beside_the_others_of_its_round() -> None:
    """Levels are in order of their amounts, however they were measured. A run that a neighbour disturbed, and rounds in which the machine
    was slower, are no growth, though medians of the runs would say so."""
    records = level("topics", 1000, 30, 22, 33) + level("topics", 10, 10, 20, 30)
    points = store(records, "topics").points
    assert [point.us for point in points] == pytest.approx([20, 22])
    assert [(point.amount, point.median, point.runs) for point in points] == [(10, 20, 3), (1000, 30, 3)]


@given(st.lists(st.floats(1, 9), min_size=1, max_size=9), st.lists(st.floats(1, 3), min_size=1, max_size=5))
def test_growth_is_found_whatever_the_machine_does(speeds: list[float], costs: list[float]) -> None:
    """Rounds of any speed: the costs of levels are to each other as they are, and a single level has the median of its runs."""
    points = beside({10**number: [speed * cost for speed in speeds] for number, cost in enumerate(costs)})
    assert [point.us / points[0].us for point in points] == pytest.approx([cost / costs[0] for cost in costs])
    assert [point.runs for point in points] == [len(speeds)] * len(costs)
    if len(costs) == 1:
        assert points[0].us == pytest.approx(points[0].median)


def test_several_runs_of_a_round_are_one() -> None:
    """Five short ones beside three and one; those that a broken-off round has more are left out."""
    points = beside({10: [1, 1, 1, 7, 7, 2, 2, 2, 9, 9, 50], 100: [1, 1, 8, 2, 2, 8], 1000: [3, 6]})
    assert [point.us for point in points] == pytest.approx([1.5, 1.5, 4.5])
    assert beside({}) == ()


def test_what_is_missing_or_grows_is_named() -> None:
    """And runs that lost something."""
    records = level("topics", 10, 10) + level("topics", 1_000, 11.6)
    assert problems(records, ["topics"], quick=True) == ["topics, store: 1.16 times"]
    assert problems(records[:1], ["topics"], quick=True) == ["topics: nothing measured at 1,000"]
    assert problems([], ["topics"], quick=True) == ["topics: nothing measured at 10, 1,000"]
    lost = replace(records[0], result=replace(records[0].result, lost=2))
    assert problems([lost], [], quick=True) == ["offline topics 10: 2 lost"]
    assert "topics 10 to 1,000 store 10.0 to 11.6 us, at most 1.16 times" in line(records)
    assert "| topics | 1,000  | store | 11.6   | 11.6   | 1    | 1.16" in table(curves(records), ["topics"])


def test_a_part_for_each_dimension_and_the_variants() -> None:
    """What has a curve is measured by a part of the same name."""
    assert set(PARTS) == {dimension.name for dimension in DIMENSIONS} | {VARIANTS}


def test_what_a_file_has_is_not_measured_again(tmp_path: Path) -> None:
    """Runs of a level are counted; what goes before its store and drain is no run of its own. Levels take turns, there and back."""
    records = level("processes", 2, 1, 1, scenario="pairs") + level("processes", 2, 1)
    measuring = Measuring(True, ResultsFile(tmp_path / "r.json", records), records, 0.0)
    assert measuring.missing("processes 2", 3) == 2
    assert measuring.missing("processes 1", 3) == 3
    assert [amount for _, amount in measuring.turns("processes", lambda _: 1)] == [1, 2, 1]
    assert [amount for _, amount in measuring.turns("processes", lambda amount: 3 - amount)] == [1, 1, 2, 1, 1]
    measuring.rounds = 2
    assert [amount for _, amount in measuring.turns("processes", lambda _: 1)] == [1, 2, 1, 1, 2, 2, 1]
    measuring.add(records[0])
    assert len((tmp_path / "r.json").read_text().splitlines()) == 2 + 4


def test_rounds_are_a_whole_number_within_bounds(capsys: pytest.CaptureFixture[str]) -> None:
    """Anything else is one sentence that says what was found and what was wanted."""
    assert arguments().parse_args(["--rounds", "7"]).rounds == 7
    for wrong in ("0", "-1", "1.5", "101", "many"):
        with pytest.raises(SystemExit):
            arguments().parse_args(["--rounds", wrong])
        assert f"found {wrong!r}, wanted a whole number from 1 to 100" in capsys.readouterr().err


def test_subscriptions_that_match_nothing_are_shared_out_once() -> None:
    """Level on level, each number to one session; a half with `+`, none with a number that a topic of a run has."""
    found = [number for begin, end in ((0, 10), (10, 1000)) for _, mine in crowd.shares(begin, end) for number in mine]
    assert sorted(found) == list(range(1000))
    assert [crowd.filter_of("crowd", number) for number in (0, 1)] == ["crowd/500000", "+/500001"]


@given(st.floats(1e-3, 1e9))
def test_marks_of_an_axis_are_round_and_few(top: float) -> None:
    """At most five steps to the top, each 1, 2 or 5 times a power of ten."""
    step = nice_step(top)
    assert top / step <= 5 + 1e-6
    assert f"{step:e}"[:8] in ("1.000000", "2.000000", "5.000000")


def test_a_chart_is_whole_xml_with_a_line_for_each_series() -> None:
    """Amounts along a logarithmic axis, equal steps for each power of ten; names are escaped."""
    text = line_chart("a < b", "messages", "µs", [Series("store", [(10, 5), (100, 5), (1000, 10)]), Series("absent", [])])
    root = ET.fromstring(text)
    (path,) = [node.attrib["points"] for node in root if node.tag.endswith("polyline")]
    (x1, y1), (x2, y2), (x3, y3) = [tuple(map(float, pair.split(","))) for pair in path.split()]
    assert x2 - x1 == pytest.approx(x3 - x2, abs=0.2) and y1 == y2 > y3
    assert "a &lt; b" in text and "absent" not in text
    with pytest.raises(ValueError, match="nothing to draw"):
        line_chart("x", "x", "y", [])


def test_a_chart_of_one_amount_can_be_drawn() -> None:
    """Its axis has two powers of ten all the same."""
    ET.fromstring(line_chart("one", "x", "y", [Series("store", [(10, 0.0)])]))


def test_a_part_of_a_page_is_filled_and_the_rest_stays() -> None:
    """Twice the same is the same; a page without the part is refused."""
    page = "a\n<!-- x -->\nold\n<!-- /x -->\nb\n"
    assert filled(page, "x", "new") == "a\n<!-- x -->\nnew\n<!-- /x -->\nb\n"
    assert filled(filled(page, "x", "new"), "x", "new") == filled(page, "x", "new")
    with pytest.raises(RunFailed, match="no part"):
        filled(page, "y", "new")


@pytest.mark.parametrize(("publishers", "topics"), [(4, 100_000), (4, 10), (3, 100), (1, 5)])
def test_a_run_of_as_many_messages_as_topics_has_all_of_them(publishers: int, topics: int) -> None:
    """Each publisher has its part first, and the others behind it, in turn."""
    spread = spread_topics(publishers, topics)
    part = -(-topics // publishers)
    assert {topic for mine in spread.values() for topic in mine[:part]} == set(range(topics))
    for mine in spread.values():
        assert mine == [(mine[0] + step) % topics for step in range(topics)]
