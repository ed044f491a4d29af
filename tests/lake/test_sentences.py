"""What is no clear sentence is found."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lake.sentences import Told, caught, command, sentence_in, unclear

GOOD = "option maxRowsPerTriger is unknown; wanted is one of brokers, token, topicFilter."


def test_a_clear_sentence_is_found_clear() -> None:
    """Whatever the capitals of its words."""
    assert unclear(GOOD, ["Unknown", "wanted"]) is None
    assert Told(1, (f"holdfast: {GOOD}",)).wrong(["unknown"]) is None


@pytest.mark.parametrize(
    "told",
    [
        Told(0, (GOOD,)),
        Told(1, ()),
        Told(1, (GOOD, GOOD)),
        Told(1, ("no",)),
        Told(1, ("x" * 500,)),
        Told(1, ("Traceback (most recent call last): something went wrong",)),
        Told(1, ('  File "source.py", line 7, in schema, which is unknown',)),
        Told(1, ("ValueError: this option is unknown, and wanted is another",)),
        Told(1, ("the option is not known at all, what a pity",)),
    ],
)
def test_what_is_no_sentence_is_found(told: Told) -> None:
    """Too much, too little, a trace, or other words."""
    assert told.wrong(["unknown"]) is not None


@pytest.mark.slow
def test_a_command_is_judged_by_what_it_writes(tmp_path: Path) -> None:
    """A directory that is none of a broker's."""
    told = command(["storage", "info", "--data-dir", str(tmp_path / "nothing")], tmp_path)
    assert told.wrong(["nothing", "is not the data directory of a broker"]) is None


def test_a_program_that_fails_says_its_sentence() -> None:
    """And one that does not, says None."""
    compile(caught("x = 1\ny = 2"), "<test>", "exec")
    assert sentence_in("noise\nCAUGHT this one\nmore") == "this one" and sentence_in("noise") == ""
