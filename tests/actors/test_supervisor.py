"""The launcher goes on when the machine refuses it a process: nobody else would start the broker again."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from actors.belongings import started_here
from actors.launcher import _reload
from actors.supervisor import Supervisor
from tests.actors.places import in_the_way, topology_in


@pytest.fixture
def hurried() -> Iterator[int]:
    """What is readable as if a signal had come: no pause before a start is waited out."""
    reading, writing = os.pipe()
    os.write(writing, b"\0")
    with closing(os.fdopen(reading)), closing(os.fdopen(writing, "wb")):
        yield reading


@pytest.mark.slow
def test_a_driver_that_cannot_be_started_is_tried_again(tmp_path: Path, hurried: int) -> None:
    """Each refusal is in the log and makes the pause longer; the first try that may succeed does."""
    topology = topology_in(tmp_path)
    supervisor = Supervisor(topology, "actors.deploy:PRODUCT_TABLE", None, hurried)
    with capture_logs() as said:
        with in_the_way(topology.log_dir / "driver.out") as name:
            for _ in range(3):
                supervisor.step()
        assert [each["event"] for each in said] == ["driver.not_started"] * 3 and supervisor.failures == 3
        assert [each["again_in_s"] for each in said] == [0.25, 0.5, 1.0] and name in said[0]["reason"]
        supervisor.step()
    assert "driver.started" in [each["event"] for each in said] and supervisor.state == "starting"
    supervisor.stop(hurry=True)
    assert not started_here(topology.run_dir, joined=False)


@pytest.mark.slow
def test_one_that_falls_while_none_can_be_started_does_not_end_the_launcher(tmp_path: Path, hurried: int) -> None:
    """As when the kernel ended the driver for want of memory, and there is none yet for another."""
    topology = topology_in(tmp_path)
    supervisor = Supervisor(topology, "actors.deploy:PRODUCT_TABLE", None, hurried)
    with capture_logs() as said:
        supervisor.step()
        output = topology.log_dir / "driver.out"
        output.unlink()
        with in_the_way(output):
            for process in started_here(topology.run_dir, joined=False):
                os.kill(process.pid, signal.SIGKILL)
            while "driver.not_started" not in [each["event"] for each in said]:
                supervisor.step()
        supervisor.step()
    events = [each["event"] for each in said]
    assert events.count("driver.started") == 2 and "run.fallen" in events
    supervisor.stop(hurry=True)


def test_a_reload_that_cannot_begin_is_said_in_the_log(tmp_path: Path) -> None:
    """Asked for by a signal: whoever sent it finds the settings unchanged, and the broker where it was."""
    topology = replace(topology_in(tmp_path), data_dir=tmp_path / "gone")
    with capture_logs() as said:
        _reload(topology)
    assert [(each["event"], str(topology.data_dir) in each["reason"]) for each in said] == [("reload.not_begun", True)]
