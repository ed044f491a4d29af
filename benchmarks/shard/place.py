"""Where a shard that is measured lives: a directory, a configuration, and the topology that its process and its peers agree on."""

from __future__ import annotations

from pathlib import Path

from actors.topology import RayPlan, Topology
from config.dump import dump_json
from config.load import load


def place(directory: Path, sets: tuple[str, ...]) -> Topology:
    """One shard, one session actor, one gateway. The caller's path must be short: sockets lie in it."""
    directory.mkdir(parents=True, exist_ok=True)
    config = load(sets=sets, environ={})
    return Topology(
        data_dir=directory,
        run_dir=directory,
        site="0" * 16,
        incarnation=1,
        secret=b"a shard that is measured",
        config_json=dump_json(config),
        store_dir=directory / "shards",
        n_shards=1,
        n_sessions=1,
        n_gateways=1,
        ray=RayPlan("local", "holdfast-measured", False, 8265, 100 << 20),
    )
