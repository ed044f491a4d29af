"""The launcher goes on when the machine refuses it a process: nobody else would start the broker again."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from actors import ROOT
from actors.launcher import _reload
from tests.actors.places import topology_in


def supervised(scenario: str, directory: Path) -> dict[str, Any]:
    """What came of it, with the events by themselves."""
    command = [sys.executable, "-m", "tests.actors.supervised", scenario, str(directory)]
    found: dict[str, Any] = json.loads(subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT, timeout=120).stdout)
    return {**found, "events": [each["event"] for each in found["log"]]}


@pytest.mark.slow
def test_a_driver_that_cannot_be_started_is_tried_again(tmp_path: Path) -> None:
    """Each refusal is in the log and makes the pause longer; the first try that may succeed does."""
    found = supervised("refused", tmp_path)
    assert found["events"] == ["driver.not_started"] * 3 + ["driver.started"]
    assert [each["again_in_s"] for each in found["log"][:3]] == [0.25, 0.5, 1.0] and "driver.out" in found["log"][0]["reason"]
    assert (found["failures"], found["state"], found["left"]) == (3, "starting", 0)


@pytest.mark.slow
def test_one_that_falls_while_none_can_be_started_does_not_end_the_launcher(tmp_path: Path) -> None:
    """As when the kernel ended the driver for want of memory, and there is none yet for another."""
    found = supervised("fallen", tmp_path)
    assert found["events"].count("driver.started") == 2 and found["events"][:2] == ["driver.started", "run.fallen"]
    assert found["left"] == 0


def test_a_reload_that_cannot_begin_is_said_in_the_log(tmp_path: Path) -> None:
    """Asked for by a signal: whoever sent it finds the settings unchanged, and the broker where it was."""
    topology = replace(topology_in(tmp_path), data_dir=tmp_path / "gone")
    with capture_logs() as said:
        _reload(topology)
    assert [(each["event"], str(topology.data_dir) in each["reason"]) for each in said] == [("reload.not_begun", True)]
