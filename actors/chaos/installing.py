"""Where chaos gets into a process: before its server starts, and only where `chaos.enabled`."""

from __future__ import annotations

from collections.abc import Sequence

from actors import link
from actors.chaos.disk import ExposedEngine, LogHindrance
from actors.chaos.exposure import Exposure
from actors.topology import Topology
from shards import backends
from shards.replication import log_segment


def expose(topology: Topology, names: Sequence[str]) -> Exposure:
    """All links, engines and logs of replicas of this process, from now on.  names: of its parts; it is one, if they do not share it."""
    exposure = Exposure(topology.run_dir, names, topology.site)
    link.admits = exposure.admits
    backends.wrap = lambda engine: ExposedEngine(engine, exposure)
    log_segment.hindrance = LogHindrance(exposure)
    exposure.start()
    return exposure
