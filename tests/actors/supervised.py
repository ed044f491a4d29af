"""A Supervisor in a process of its own, since it takes all that this process has started for its own, and ends it.

python -m tests.actors.supervised SCENARIO DIRECTORY      prints {log: [events as logged], failures, state, left}, as JSON
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from structlog.testing import capture_logs

from actors.belongings import started_here
from actors.supervisor import Supervisor
from actors.topology import Topology
from tests.actors.places import in_the_way, topology_in


def refused(topology: Topology, supervisor: Supervisor, _: Callable[[], list[str]]) -> None:
    """No driver can be started three times, and then one can."""
    with in_the_way(topology.log_dir / "driver.out"):
        for _step in range(3):
            supervisor.step()
    supervisor.step()


def fallen(topology: Topology, supervisor: Supervisor, events: Callable[[], list[str]]) -> None:
    """A driver is killed at a moment at which no other can be started."""
    supervisor.step()
    (topology.log_dir / "driver.out").unlink()
    with in_the_way(topology.log_dir / "driver.out"):
        for process in started_here(topology.run_dir, joined=False):
            os.kill(process.pid, signal.SIGKILL)
        while "driver.not_started" not in events():
            supervisor.step()
    supervisor.step()


def main(scenario: str, directory: str) -> None:
    topology = topology_in(Path(directory))
    # Readable as if a signal had come: no pause before a start is waited out.
    reading, writing = os.pipe()
    os.write(writing, b"\0")
    supervisor = Supervisor(topology, "actors.deploy:PRODUCT_TABLE", None, reading)
    with capture_logs() as said:
        {"refused": refused, "fallen": fallen}[scenario](topology, supervisor, lambda: [str(each["event"]) for each in said])
    found = {"log": said, "failures": supervisor.failures, "state": supervisor.state}
    supervisor.stop(hurry=True)
    print(json.dumps({**found, "left": len(started_here(topology.run_dir, joined=False))}))


if __name__ == "__main__":
    main(*sys.argv[1:])
