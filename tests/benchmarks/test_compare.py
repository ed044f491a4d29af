"""Whether a message has become dearer between two results: which runs are compared, and what is called a regression."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.bench import ResultsFile
from benchmarks.compare import changes, main, render, resolve
from benchmarks.load import Record
from benchmarks.workers import RunFailed
from tests.benchmarks.samples import ran, record


def of(broker: str, *cpu_us: float, scenario: str = "fan-in", variant: str = "", sent: int = 100_000) -> list[Record]:
    return [
        record(broker, replace(ran(scenario, 1, us, us if scenario == "offline" else 0), sent=sent, delivered=sent), variant=variant)
        for us in cpu_us
    ]


def test_medians_are_compared_and_15_percent_is_the_bar() -> None:
    """One slow run of three is no regression; mosquitto's change tells what the machine did."""
    (found,) = changes(of("holdfast", 10, 10, 99) + of("mosquitto", 5), of("holdfast", 11.4, 11.4, 11.4) + of("mosquitto", 5.5))
    assert found.ratio == pytest.approx(1.14) and not found.regression and found.mosquitto == pytest.approx(1.1)
    (found,) = changes(of("holdfast", 10), of("holdfast", 11.6))
    assert found.regression and found.mosquitto is None
    assert "dearer by more than 15 %: fan-in, MQTT 3.1.1, publish: 1.16 times" in render([found])


def test_phases_and_variants_are_compared_each_with_its_own() -> None:
    """The drain of a store is a line of its own; what only one side has is left out."""
    before = of("holdfast", 10, scenario="offline") + of("holdfast", 20, variant="tls") + of("holdfast", 1, scenario="pairs")
    after = of("holdfast", 10, scenario="offline") + of("holdfast", 30, variant="tls")
    found = changes(before, after)
    assert [(each.name, each.verdict) for each in found] == [
        ("offline, MQTT 3.1.1, publish", "same"),
        ("offline, MQTT 3.1.1, drain", "same"),
        ("fan-in tls, MQTT 3.1.1, publish", "REGRESSION"),
    ]


def test_less_than_ten_steps_of_the_account_decide_nothing() -> None:
    """The kernel counts in 10 ms; 1,000 messages of 10 µs are one step."""
    (found,) = changes(of("holdfast", 10, sent=1000), of("holdfast", 20, sent=1000))
    assert not found.regression and found.verdict == "too little to tell"


def test_a_commit_means_its_files(tmp_path: Path) -> None:
    """Shortened or in full; quick runs only where there are no others."""
    names = ("1-0123456789ab-quick-targets.json", "2-0123456789ab.json", "3-fedcba987654-quick-targets.json")
    for name in names:
        (tmp_path / name).write_text("[]")
    assert [path.name for path in resolve("0123456789abcdef", tmp_path)] == [names[1]]
    assert [path.name for path in resolve("0123456", tmp_path)] == [names[1]]
    assert [path.name for path in resolve("fedcba987654", tmp_path)] == [names[2]]
    assert resolve(str(tmp_path / names[0]), tmp_path) == [tmp_path / names[0]]
    with pytest.raises(RunFailed, match="wanted a results file, or a commit"):
        resolve("aaaaaaa", tmp_path)


def test_the_command_tells_by_its_exit_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """0, 1 with the scenario named, and 2 where there is nothing to compare."""
    paths = []
    for number, us in enumerate((10.0, 12.0)):
        file = ResultsFile(tmp_path / f"{number}.json")
        for each in of("holdfast", us):
            file.add(each)
        paths.append(str(file.path))
    assert main([paths[0], paths[1]]) == 1
    assert "fan-in, MQTT 3.1.1, publish: 1.20 times" in capsys.readouterr().out
    assert main([paths[1], paths[0]]) == 0
    assert main([paths[0], "nonesuch"]) == 2
