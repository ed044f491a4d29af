"""Where chaos gets into a process: before its server starts, and only where `chaos.enabled`."""

from __future__ import annotations

from actors import link
from actors.chaos.disk import ExposedEngine
from actors.chaos.exposure import Exposure
from actors.topology import Topology
from shards import backends


def expose(topology: Topology, name: str) -> Exposure:
    """All links and engines of this process, from now on."""
    exposure = Exposure(topology.run_dir, name)
    link.admits = exposure.admits
    backends.wrap = lambda engine: ExposedEngine(engine, exposure)
    exposure.start()
    return exposure
