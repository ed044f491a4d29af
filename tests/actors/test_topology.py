"""What every process knows of a run, and what it reads in the run directory."""

from __future__ import annotations

import json
import os
import pickle  # noqa: TID251  # Ray pickles what an actor's constructor is given
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from actors import ROOT, WrongFloor, check_floors
from actors.environment import driver_environment
from actors.processes import alive
from actors.topology import Announcement, ListenerInfo, Topology, announce, read_announcements, read_dashboard, read_needed, write_needed
from tests.actors.places import topology_in

LISTENER = ListenerInfo(gateway=0, kind="tcp", host="127.0.0.1", port=1883, shared=True)


def test_a_topology_reaches_other_processes_unchanged(tmp_path: Path) -> None:
    """By JSON to the driver and by pickle to the actors nothing of it is lost."""
    topology = topology_in(tmp_path, n_shards=3, n_gateways=2)
    assert Topology.from_json(topology.to_json()) == topology
    assert pickle.loads(pickle.dumps(topology)) == topology


def test_endpoints_depend_on_role_and_index_alone(tmp_path: Path) -> None:
    """A restarted actor is found where its predecessor was, and no two share a place."""
    first, later = topology_in(tmp_path, n_shards=3), topology_in(tmp_path, n_shards=3, generation="second")
    places = [place(index) for place in (later.shard_endpoint, later.session_endpoint, later.gateway_endpoint) for index in range(3)]
    assert places == [
        place(index) for place in (first.shard_endpoint, first.session_endpoint, first.gateway_endpoint) for index in range(3)
    ]
    assert len(set(places)) == 9


def test_shards_are_started_before_sessions_and_sessions_before_gateways(tmp_path: Path) -> None:
    """The order of members is the order of starting."""
    members = topology_in(tmp_path, n_shards=2, n_gateways=2).members()
    assert members == [("shard", 0), ("shard", 1), ("session", 0), ("gateway", 0), ("gateway", 1)]


def test_an_announcement_is_read_back_with_the_process_that_made_it(tmp_path: Path) -> None:
    """What a server announces is what `status` reads, and it is known to live."""
    topology = topology_in(tmp_path)
    announce(topology, Announcement("gateway", "gateway-0", os.getpid(), (LISTENER,)))
    (found,) = read_announcements(topology.run_dir)
    assert found.announcement == Announcement("gateway", "gateway-0", os.getpid(), (LISTENER,))
    assert alive(found.process)


def test_an_announcement_outlives_its_process_and_says_so(tmp_path: Path) -> None:
    """The file of a killed server names a process that is not alive, even if another has its pid by now."""
    topology = topology_in(tmp_path)
    announce(topology, Announcement("shard", "shard-0", os.getpid()))
    path = topology.run_dir / "shard-0.json"
    fields = json.loads(path.read_text())
    path.write_text(json.dumps(fields | {"start_time": fields["start_time"] - 1}))
    (found,) = read_announcements(topology.run_dir)
    assert found.process.pid == os.getpid() and not alive(found.process)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"role": "shard"}'])
def test_a_file_that_is_no_announcement_is_nobodys(tmp_path: Path, text: str) -> None:
    """`status` answers whatever lies in the run directory."""
    topology = topology_in(tmp_path)
    (topology.run_dir / "shard-0.json").write_text(text)
    assert list(read_announcements(topology.run_dir)) == []


def test_only_the_present_generation_is_current(tmp_path: Path) -> None:
    """Actors of a driver that was replaced, or of a run that ended, know it."""
    topology = topology_in(tmp_path, generation="second")
    assert topology.current()
    assert not replace(topology, generation="first").current()
    topology.generation_path.unlink()
    assert not topology.current()


def test_what_the_driver_says_is_read_back(tmp_path: Path) -> None:
    """Ray's indispensable processes and the dashboard; nothing before the driver has said anything."""
    topology = topology_in(tmp_path)
    assert read_needed(topology.run_dir) == [] and read_dashboard(topology.run_dir) == ""
    announce(topology, Announcement("shard", "shard-0", os.getpid()))
    me = next(read_announcements(topology.run_dir)).process
    write_needed(topology.run_dir, {"raylet": me}, "127.0.0.1:8265")
    assert read_needed(topology.run_dir) == [("raylet", me)] and read_dashboard(topology.run_dir) == "127.0.0.1:8265"


def test_a_ray_of_our_own_listens_to_nobody_elses_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """RAY_ADDRESS of the operator's shell must not make an embedded broker join another cluster; a joining one needs it."""
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    topology = topology_in(tmp_path)
    own = driver_environment(topology)
    assert "RAY_ADDRESS" not in own and own["RAY_AUTH_MODE"] == "token"
    joined = driver_environment(replace(topology, ray=replace(topology.ray, address="auto")))
    assert joined["RAY_ADDRESS"] == "10.0.0.1:6379" and "RAY_AUTH_TOKEN_PATH" not in joined
    assert own["TMPDIR"] == str(topology.run_dir) and joined.get("TMPDIR") == os.environ.get("TMPDIR")
    assert own["HOLDFAST_RUN"] == joined["HOLDFAST_RUN"] == str(topology.run_dir)


def test_our_floors_are_our_own() -> None:
    """The check that runs at every import of `actors` passes for this checkout."""
    check_floors(ROOT)


def test_a_foreign_package_with_a_floors_name_is_refused_in_one_sentence(tmp_path: Path) -> None:
    """There are distributions called `config`; a worker that would import one says so instead of failing somewhere later."""
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "__init__.py").touch()
    program = (
        f"import sys; sys.path[:0] = [{str(tmp_path)!r}, {str(ROOT)!r}]\ntry:\n import actors\nexcept ImportError as error: print(error)"
    )
    answer = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True, check=True, cwd=tmp_path).stdout
    assert "'config'" in answer and str(tmp_path / "config") in answer and answer.count("\n") == 1


def test_a_missing_floor_is_named(tmp_path: Path) -> None:
    """A damaged installation is a sentence as well."""
    with pytest.raises(WrongFloor, match="no_such_floor"):
        check_floors(tmp_path, ("no_such_floor",))


@pytest.mark.slow
def test_no_process_has_what_colours_a_terminal() -> None:
    """structlog takes rich with it where that is installed, 5 MB for each process; whoever wants rich afterwards has it."""
    parts = (
        "launcher",
        "driver",
        "controller",
        "shard",
        "session",
        "gateway",
        "compact",
        "reader.server",
        "admin.server",
        "bridge.server",
        "plugin.server",
    )
    program = f"""import importlib, sys
for part in {parts!r}:
    importlib.import_module(f"actors.{{part}}")
print("structlog" in sys.modules, "rich" in sys.modules)
import rich.console"""
    around = {**os.environ, "PYTHONPATH": str(ROOT)}
    answer = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True, check=False, env=around)
    assert (answer.stdout, answer.stderr) == ("True False\n", "")
