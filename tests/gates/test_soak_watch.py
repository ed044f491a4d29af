"""What a soak calls flat, and what not."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.gates.soak import seconds_of
from tests.gates.soak_watch import BAD_EVENTS, LONG_LIFE_S, YOUNG_S, Rows, Sample, Watch, bad_events, judge, kept_for_long
from tests.needs import ROOT

TOTAL_S = 1000.0


def watch(pss_mb: list[float], descriptors: int = 60, *, same: bool = False, more_descriptors: int = 0) -> Watch:
    """One role, looked at every 20 s: another process each time, or the same one all the time."""
    found = Watch()
    for at in range(50):
        value = pss_mb[at * len(pss_mb) // 50]
        age_s = YOUNG_S + 20 * at if same else YOUNG_S
        found.samples.append(Sample(at * 20.0, "shard", 1 if same else at, age_s, value, descriptors + more_descriptors * at))
    return found


def test_what_stays_is_flat() -> None:
    """Also with a peak that is over."""
    figures, grown = judge(watch([80, 80, 200, 80, 80]), TOTAL_S)
    assert grown == [] and figures == ["shard PSS 80 -> 80 MB", "shard descriptors 60 -> 60"]


def test_memory_that_grows_is_not_flat() -> None:
    """By role, whatever processes come and go."""
    _, grown = judge(watch([80, 80, 100, 110, 120]), TOTAL_S)
    assert grown == ["shard PSS 80 -> 120 MB"]


def test_descriptors_that_grow_are_not_flat() -> None:
    """Two more each 20 s."""
    _, grown = judge(watch([80], more_descriptors=2), TOTAL_S)
    assert len(grown) == 1 and "descriptors" in grown[0]


def test_growth_within_one_life_is_seen() -> None:
    """Even when it hides behind nothing else."""
    figures, grown = judge(watch([80, 90, 100, 110, 120], same=True), TOTAL_S)
    assert len(figures) == 3 and len(grown) == 2 and any("grew most" in each for each in grown)
    assert TOTAL_S > LONG_LIFE_S


def test_young_processes_say_nothing() -> None:
    """A process that has just begun is small."""
    found = watch([80])
    found.samples += [Sample(at * 20.0, "shard", 900 + at, 1.0, 5.0, 5) for at in range(10, 25) for _ in range(5)]
    assert judge(found, TOTAL_S) == (["shard PSS 80 -> 80 MB", "shard descriptors 60 -> 60"], [])


@pytest.mark.parametrize(("kind", "grown"), [("s", 1), ("c", 0), ("z", 0)])
def test_rows_that_grow_are_not_flat_unless_that_is_known(kind: str, grown: int) -> None:
    """Refused senders are kept for ever, and in so short a time no connection row is old enough to go."""
    found = Watch(rows=[Rows(at * 100.0, Counter({kind: 200 * max(0, at - 4), "u": 50}), 0, 0, 0) for at in range(11)])
    figures, wrong = judge(found, TOTAL_S)
    assert len(figures) == 4 and len(wrong) == grown


@pytest.mark.parametrize(("answers", "refused_after_s", "grown"), [(64, 300.0, 0), (65, 300.0, 1), (64, 1e9, 1)])
def test_answers_may_follow_the_kills_but_nobody_who_is_dead_is_kept_for_long(answers: int, refused_after_s: float, grown: int) -> None:
    """A sender dies every 7 s; its answers go after 5 minutes, and it is refused from then on."""
    found = Watch()
    for at_s in range(0, 1100, 100):
        ever = 10 + at_s // 7
        refused = max(0, int(at_s - refused_after_s) // 7)
        rows = Counter({"n": (ever - refused) * answers, "z": refused})
        found.rows.append(Rows(float(at_s), rows, ever - refused, 0, 0))
        found.samples.append(Sample(float(at_s), "shard", 1, 1000.0 + at_s, 100.0, 50))
    _, wrong = judge(found, TOTAL_S)
    assert len(wrong) == grown
    # A shard that is killed itself begins to count anew: nothing can be said of who it keeps.
    found.samples = [Sample(at_s, "shard", pid, 60.0, 100.0, 50) for pid, at_s in enumerate(each.at_s for each in found.rows)]
    assert kept_for_long(found) is None


def test_events_that_no_kill_explains_are_found_in_the_logs(tmp_path: Path) -> None:
    """Whatever level they have, in all logs; the life of processes is no fault."""
    (tmp_path / "shard-0.log").write_text(
        "at=1 level=info event=shard.started who=shard-0\nat=2 level=error event=process.broken during=x\n" * 2
    )
    (tmp_path / "launcher.log").write_text("at=1 level=error event=run.fallen what=raylet\n")
    assert bad_events(tmp_path) == {"process.broken in shard-0.log": 2}


def test_the_events_are_those_of_the_broker() -> None:
    """An event that was given another name would never be found again."""
    code = "".join(path.read_text() for path in (ROOT / "actors").glob("*.py"))
    assert {event for event in BAD_EVENTS if f'"{event}"' not in code} == set()


def test_durations_have_a_unit() -> None:
    """Without one nobody knows what was meant."""
    assert [seconds_of(name) for name in ("90s", "20m", "2h")] == [90, 1200, 7200]
    with pytest.raises(ValueError, match="no duration"):
        seconds_of("20")
