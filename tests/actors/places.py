"""Makes a Topology whose directories are real and whose processes are nobody."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from actors.topology import LOCAL_RAY, RayPlan, Topology


def topology_in(directory: Path, *, n_shards: int = 1, n_sessions: int = 1, n_gateways: int = 1, generation: str = "first") -> Topology:
    data_dir, run_dir = directory / "data", directory / "run"
    for path in (data_dir, data_dir / "logs", run_dir):
        path.mkdir(exist_ok=True)
    topology = Topology(
        data_dir=data_dir,
        run_dir=run_dir,
        site="0123456789abcdef",
        incarnation=1,
        secret=b"\x01" * 32,
        config_json="{}",
        store_dir=data_dir / "shards",
        n_shards=n_shards,
        n_sessions=n_sessions,
        n_gateways=n_gateways,
        ray=RayPlan(LOCAL_RAY, "holdfast-0123456789abcdef", dashboard=False, dashboard_port=8265, object_store_bytes=100 * 2**20),
        generation=generation,
    )
    topology.generation_path.write_text(generation)
    return topology


@contextmanager
def in_the_way(path: Path) -> Iterator[str]:
    """A directory where a file or a socket is to be made, which is refused meanwhile, as it is where no room is left."""
    path.mkdir()
    yield path.name
    path.rmdir()
