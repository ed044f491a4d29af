"""`make test` runs every test once, in two lanes, and is green only if all of them have passed."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.__main__ import FAILED, NONE_FOUND, PASSED, Part, first_look, parts, verdict

ROOT = Path(__file__).parents[2]
SOUND = "def test_sound():\n    pass\n"
BROKEN = "def test_broken():\n    assert False\n"
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


def test_green_only_when_every_part_came_to_its_end(tmp_path: Path) -> None:
    """A part that was interrupted, or never begun, has told nothing."""
    assert verdict([PASSED, NONE_FOUND, PASSED], 3, []) == (0, [])
    assert verdict([PASSED, PASSED], 3, []) == (1, []), "one was never run"
    assert verdict([PASSED, INTERRUPTED, PASSED], 3, []) == (1, [])
    assert verdict([NONE_FOUND] * 3, 3, []) == (1, []), "nothing was tested"
    assert verdict([PASSED, FAILED, PASSED], 3, [tmp_path]) == (1, []), "failed, and says not where"
