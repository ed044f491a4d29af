"""What the soak of a cluster keeps of rounds that are over, and what it says of names that are none."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.gates.gate import GateFailed
from tests.gates.soak_cluster import Round, figures, keep_rounds, main, read_rounds

OVER = [Round(1, ["one", "two"], 60.0, 10, 30, {"one": 1.0, "two": 2.5}, 72), Round(2, ["two"], 30.0, 5, 15, {"two": 2.0}, 0)]


def test_rounds_that_are_over_are_not_made_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With as many as are wanted it only says what they were."""
    state = tmp_path / "state"
    assert read_rounds(state) == []
    keep_rounds(state, OVER)
    assert read_rounds(state) == OVER
    assert main(["--rounds", "2", "--state", str(state)]) == 0
    assert capsys.readouterr().out == f"2 rounds are over already\nPASS soak of a cluster: {figures(OVER)}\n"


def test_figures_are_of_all_rounds() -> None:
    """Sums, and the slowest of each fault."""
    said = figures(OVER)
    assert said.startswith("2 rounds, 3 faults, 72 ends at a step of a write, 2 min: 15 messages acknowledged, 45 delivered")
    assert said.endswith("one 1.0, two 2.5")


def test_what_is_not_known_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A fault, or a file that somebody else has written."""
    assert main(["--fault", "flood", "--state", str(tmp_path / "none")]) == 1
    assert "no fault is called 'flood'; there are: processes killed, " in capsys.readouterr().out
    other = tmp_path / "other"
    other.write_text("{}!")
    with pytest.raises(GateFailed, match="is not what a soak has written"):
        read_rounds(other)
