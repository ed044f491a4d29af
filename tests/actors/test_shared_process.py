"""Parts of a broker that share a process, as `holdfast status` lists them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from actors.census import take_census
from actors.processes import identify
from actors.run import Run, boot_id, record_run
from actors.topology import Announcement, Role, announce
from tests.actors.places import topology_in


def test_parts_that_share_a_process_are_listed_each_by_its_name(tmp_path: Path) -> None:
    """With one pid; all of them are gone with it."""
    topology = topology_in(tmp_path)
    (topology.run_dir / "topology.json").write_text(topology.to_json())
    me = identify(os.getpid())
    assert me is not None
    record_run(topology.data_dir, Run(topology.run_dir, me, boot_id(), joined=False))
    child = subprocess.Popen(["sleep", "600"], env={"HOLDFAST_DATA": str(topology.data_dir)})
    parts: list[tuple[Role, str]] = [("shard", "shard-0"), ("session", "session-0"), ("gateway", "gateway-0")]
    try:
        for role, name in parts:
            announce(topology, Announcement(role, name, child.pid))
        rows = take_census(topology.data_dir).processes
        assert sorted((row.pid, row.role, row.name) for row in rows if row.pid == child.pid) == sorted((child.pid, *part) for part in parts)
    finally:
        child.kill()
        child.wait()
    assert [row.name for row in take_census(topology.data_dir).processes] == ["launcher"]
