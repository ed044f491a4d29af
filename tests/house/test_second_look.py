"""`make test` runs once more, alone, what failed beside others: what passes then is green, what fails again is red, and why is said."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.__main__ import UNSTEADY_MAX, failed, second_look
from tests.__main__ import pytest as command

UNSTEADY = """
from pathlib import Path
def test_second_time():
    seen = Path(__file__).with_suffix(".seen")
    was_there = seen.exists()
    seen.touch()
    assert was_there, "it was never here\\nbefore"
"""
BROKEN = """
import pytest
@pytest.mark.parametrize("n", range({}))
def test_never(n):
    assert False
"""


def first_run(directory: Path, text: str) -> Path:
    (directory / "test_toy.py").write_text(text)
    cache = directory / "cache"
    assert subprocess.run([*command(cache), "-q", "test_toy.py"], capture_output=True, check=False).returncode == 1
    return cache


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_what_passes_alone_is_green_and_why_it_failed_is_said(here: Path) -> None:
    """And only it is run."""
    cache = first_run(here, UNSTEADY + "def test_sound():\n    pass\n")
    code, whys = second_look([here / "no-failure-here", cache])
    assert (code, whys) == (0, ["test_toy::test_second_time: AssertionError: it was never here before assert False"])
    assert failed(cache) == []


def test_what_fails_again_is_red(here: Path) -> None:
    """Its neighbour that passes does not save it."""
    cache = first_run(here, UNSTEADY + BROKEN.format(1))
    code, whys = second_look([cache])
    assert code == 1 and [why.split(": ")[0] for why in whys] == ["test_toy::test_never[0]", "test_toy::test_second_time"]
    assert failed(cache) == ["test_toy.py::test_never[0]"]


def test_many_failures_are_no_unsteadiness(here: Path) -> None:
    """They are not even run."""
    cache = first_run(here, UNSTEADY + BROKEN.format(UNSTEADY_MAX))
    assert second_look([cache]) == (1, [])
    assert len(failed(cache)) == UNSTEADY_MAX + 1


def test_a_run_that_ended_badly_without_a_failed_test_is_red(here: Path) -> None:
    """No test says why, so none can be looked at again."""
    assert second_look([here]) == (1, [])
