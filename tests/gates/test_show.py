"""The runner of gates prints one line for each gate, whatever the gate does."""

from __future__ import annotations

import asyncio
import sys
import types

import pytest

from tests.gates import show
from tests.gates.gate import GateFailed, Scale


async def passing(scale: Scale) -> str:
    return f"{scale.of(1000)} of {scale.of(1000)}"


async def failing(scale: Scale) -> str:
    raise GateFailed("3 x missing\n(first: message 7)")


async def raising(scale: Scale) -> str:
    error = ValueError("broken")
    error.add_note("log: somewhere")
    raise error


async def hanging(scale: Scale) -> str:
    await asyncio.sleep(60)
    return "never"


async def timing_out_itself(scale: Scale) -> str:
    raise TimeoutError("client 'c' was not connected after 15 s")


@pytest.fixture
def gates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Issue 77 has five gates; the sixth does not import."""
    modules = {1: passing, 2: failing, 3: raising, 4: hanging, 5: timing_out_itself}
    for number, run in modules.items():
        module = types.ModuleType(f"gate_77_{number}_x")
        module.__dict__.update(run=run, LIMIT_S=0.05 if run is hanging else 60.0)
        monkeypatch.setitem(sys.modules, module.__name__, module)
    names = {number: f"gate_77_{number}_x" for number in range(1, 7)}
    monkeypatch.setattr(show, "gates_of", lambda issue: names if issue == 77 else {})


@pytest.mark.usefixtures("gates")
@pytest.mark.parametrize(
    ("number", "line"),
    [
        ("1", "PASS gate 77.1: 1000 of 1000 "),
        ("2", "FAIL gate 77.2: 3 x missing (first: message 7) "),
        ("3", "FAIL gate 77.3: ValueError: broken (log: somewhere) "),
        ("4", "FAIL gate 77.4: TimeoutError: not ended after 0 s "),
        ("5", "FAIL gate 77.5: TimeoutError: client 'c' was not connected after 15 s "),
        ("6", "FAIL gate 77.6: ModuleNotFoundError: No module named 'gate_77_6_x' "),
        ("9", "FAIL gate 77.9: not there yet"),
    ],
)
def test_every_outcome_is_one_line_and_a_code(capsys: pytest.CaptureFixture[str], number: str, line: str) -> None:
    """Passing, failing, raising, hanging, not importing, not being there."""
    assert show.main(["77", number]) == (0 if line.startswith("PASS") else 1)
    printed = capsys.readouterr().out
    assert printed.startswith(line) and printed.count("\n") == 1


@pytest.mark.usefixtures("gates")
def test_one_failure_among_many_fails_the_whole(capsys: pytest.CaptureFixture[str]) -> None:
    """All gates of the issue run, and quick says so in the line."""
    assert show.main(["77", "--quick"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 6 and lines[0].startswith("PASS gate 77.1 (quick): 100 of 100 ")


def test_an_issue_without_gates_is_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing that is promised is silent."""
    assert show.main(["99"]) == 1
    assert capsys.readouterr().out == "FAIL gate 99: not there yet\n"


def test_issue_1_has_its_six_gates_and_each_imports() -> None:
    """Found by their file names, each with a limit and a run."""
    import importlib

    found = show.gates_of(1)
    assert list(found) == [1, 2, 3, 4, 5, 6]
    for name in found.values():
        module = importlib.import_module(name)
        assert module.LIMIT_S > 0 and asyncio.iscoroutinefunction(module.run)
