"""What a drill has to come to is required of it, and what publishers were promised is written down for the audit."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.gates.gate import GateFailed
from tests.lake.exactly_once import AUDITED, Drill, Outcome, require_right, write_expected
from tests.lake.judge import Verdict
from tests.lake.ledger import LakeLedger

DRILL = Drill(("cut", "reader"), 1)


def good() -> Outcome:
    outcome = Outcome(seconds=0.5, published=1000, acknowledged=1000, sent_again=3, rows=1002, rolls={0: 3, 1: 4})
    outcome.faults = Counter(("cut", "reader"))
    outcome.verdicts = {"the lake against the store": Verdict()}
    outcome.audited = {**dict.fromkeys(AUDITED, 0), "duplicates": 2, "rows": 1002, "rows_at_qos_2": 500}
    return outcome


def test_a_good_outcome_passes_and_is_told() -> None:
    """With the figures of the gate."""
    require_right(DRILL, good())
    assert "2 faults (cut 1, reader 1) in 0 s; 1000 published, 2000 a second" in str(good())
    assert "0 lost, 0 duplicate, 0 out of order; 3/4 rolls" in str(good())


def lost() -> Outcome:
    outcome = good()
    outcome.verdicts["the lake against the store"].add("lost", "this one")
    return outcome


def audited(name: str, count: int) -> Outcome:
    outcome = good()
    outcome.audited[name] = count
    return outcome


def changed(name: str, value: object) -> Outcome:
    outcome = good()
    setattr(outcome, name, value)
    return outcome


@pytest.mark.parametrize(
    "outcome",
    [
        lost(),
        *(audited(name, 1) for name in AUDITED),
        audited("duplicates", 4),
        audited("rows", 1001),
        audited("rows_at_qos_2", 0),
        changed("rolls", {0: 3, 1: 2}),
        changed("acknowledged", 500),
        changed("seconds", 1.0),
        changed("faults", Counter(("reader",))),
    ],
)
def test_a_bad_outcome_fails(outcome: Outcome) -> None:
    """Whatever it is that is wrong with it."""
    with pytest.raises(GateFailed):
        require_right(DRILL, outcome)


def test_an_empty_lake_fails() -> None:
    """Nothing is lost of nothing."""
    outcome = changed("rows", 0)
    outcome.audited["rows"] = 0
    with pytest.raises(GateFailed, match="empty"):
        require_right(DRILL, outcome)


@pytest.mark.slow
def test_what_was_promised_is_a_table(tmp_path: Path) -> None:
    """Of what was acknowledged, and nothing else."""
    ledger = LakeLedger()
    ledger.enrol("p", ["a", "b"], 1)
    for _ in range(3):
        ledger.publish("p", ledger.next_of("p")[0], 1, 0)
    for number in (0, 1):
        ledger.acknowledged("p", number, 0)
    write_expected(ledger, tmp_path / "e.parquet")
    assert pq.read_table(tmp_path / "e.parquet").to_pylist() == [
        {"client_id": "p", "topic": "a", "sequence": 0},
        {"client_id": "p", "topic": "b", "sequence": 0},
    ]
