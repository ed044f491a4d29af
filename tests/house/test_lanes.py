"""`make test` runs every test once, in three lanes, and is green only if all of them have passed."""

from __future__ import annotations

import os
import signal
from collections import Counter
from pathlib import Path
from threading import Thread

import pytest

from tests.__main__ import FAILED, LANES, NONE_FOUND, PASSED, Part, first_look, parts, verdict

ROOT = Path(__file__).parents[2]
SOUND = "def test_sound():\n    pass\n"
BROKEN = "def test_broken():\n    assert False\n"
HANGS = """
from threading import Event
def test_hangs():
    with open("began", "w"):
        pass
    Event().wait()
"""
INTERRUPTED = 2


def looks_at(part: Part, file: str) -> bool:
    """Whether pytest is told to look into this file, as it is told: a path has all that is below it."""
    ignored = [word.removeprefix("--ignore=") for word in part.words if word.startswith("--ignore=")]
    named = [word for word in part.words if not word.startswith("-")] or ["tests"]
    return any(_below(file, name) for name in named) and not any(_below(file, name) for name in ignored)


def _below(file: str, name: str) -> bool:
    return file == name or file.startswith(f"{name}/")


def test_every_file_of_tests_is_in_one_part() -> None:
    """None is run twice, and none is left out, whatever is added later."""
    brokers, others = parts([], Path())
    files = [path.relative_to(ROOT).as_posix() for path in ROOT.glob("tests/**/test_*.py")]
    assert len(files) > 500
    found = Counter({file: sum(looks_at(part, file) for part in (brokers, *others)) for file in files})
    assert {file: number for file, number in found.items() if number != 1} == {}


def test_what_parts_are_named_after_is_there() -> None:
    """A suite that is moved would be looked for in vain."""
    brokers, others = parts([], Path())
    named = {word.removeprefix("--ignore=") for part in (brokers, *others) for word in part.words}
    assert [name for name in named if not (ROOT / name).exists()] == []


@pytest.mark.slow
def test_each_part_is_run_once_with_the_words_of_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those for which the lane of the real brokers has time afterwards."""
    monkeypatch.chdir(tmp_path)
    made = []
    for name, text in (("brokers", SOUND), ("one", SOUND + BROKEN), ("two", SOUND)):
        (tmp_path / f"test_{name}.py").write_text(text)
        made.append(Part(name, [f"test_{name}.py", "-q", "-k", "broken or sound", f"--junit-xml={name}.xml"], tmp_path / name))
    assert sorted(first_look(made[0], made[1:])) == [PASSED, PASSED, FAILED]
    assert all((tmp_path / f"{part.what}.xml").exists() for part in made)


@pytest.mark.slow
def test_what_hangs_is_ended_and_says_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """Its threads' stacks are in the report of the lane, which CI had never seen before; what was to come after it does not begin."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "test_hangs.py").write_text(HANGS)
    os.mkfifo(tmp_path / "began")
    hanging, behind = Part("hanging", ["test_hangs.py", "-q"], tmp_path / "a"), Part("behind", ["test_hangs.py"], tmp_path / "b")

    def wait_and_end() -> None:
        (tmp_path / "began").read_text()
        behind.end()
        hanging.end()

    ending = Thread(target=wait_and_end)
    ending.start()
    codes = first_look(hanging, [])
    ending.join()
    assert [*codes, behind.run()] == [-signal.SIGABRT, -signal.SIGABRT]
    assert "in test_hangs" in capfd.readouterr().out
    assert verdict(codes, 1, []) == (1, [])


@pytest.mark.slow
def test_all_of_it_is_ended_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody reads what this one writes. What would have come next does not begin."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "test_hangs.py").write_text(HANGS)
    os.mkfifo(tmp_path / "began")
    begun = [Part(f"{lane}", ["test_hangs.py", "-q"], tmp_path / f"{lane}") for lane in range(LANES)]
    last = Part("last", ["test_hangs.py", "-q"], tmp_path / "last")
    assert first_look(begun[0], [*begun[1:], last], ends_after_s=0.2) == [-signal.SIGABRT] * (LANES + 1)
    assert all(part.process for part in begun) and last.process is None


def test_green_only_when_every_part_came_to_its_end(tmp_path: Path) -> None:
    """A part that was interrupted, or never begun, has told nothing."""
    assert verdict([PASSED, NONE_FOUND, PASSED], 3, []) == (0, [])
    assert verdict([PASSED, PASSED], 3, []) == (1, []), "one was never run"
    assert verdict([PASSED, INTERRUPTED, PASSED], 3, []) == (1, [])
    assert verdict([NONE_FOUND] * 3, 3, []) == (1, []), "nothing was tested"
    assert verdict([PASSED, FAILED, PASSED], 3, [tmp_path]) == (1, []), "failed, and says not where"
