"""The environment of the driver, and through it of every process of a run; and how it ends.

Ray takes most of its settings from there, before it is imported; this module says them without importing it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from actors import ROOT
from actors.processes import DATA_MARK, RUN_MARK
from actors.topology import Topology

NO_USE = 4
"""With this the driver ends when another of its kind could do no better before somebody has changed something."""
RECONNECT = "RAY_gcs_rpc_server_reconnect_timeout_s"
"""How long a process of Ray waits for a head that is gone before it ends itself."""
RECONNECT_S = 604_800
"""Of our own processes in a Ray that was joined: they serve without a head, and end with their raylet, whose patience is its starter's."""


def patience() -> dict[str, str]:
    """RECONNECT for a process of ours in a Ray that was joined: what the operator said, or RECONNECT_S."""
    return {RECONNECT: os.environ.get(RECONNECT, str(RECONNECT_S))}


def inherited() -> Mapping[str, str]:
    """What this process was started with."""
    return os.environ


def driver_environment(topology: Topology) -> dict[str, str]:
    """Ours as it is, with our marks, our packages in front, and Ray's settings in the place of anybody's else."""
    environment = dict(os.environ)
    if not topology.ray.joined:
        # A Ray of our own is not to be talked into joining another, whatever the operator's shell says.
        environment = {name: value for name, value in environment.items() if not name.startswith("RAY_")}
        environment |= _ray_settings(topology)
        # Its dashboard leaves a directory behind whenever it ends; so it is in one that goes with the run.
        environment["TMPDIR"] = str(topology.run_dir)
    else:
        environment |= patience()
    environment |= {RUN_MARK: str(topology.run_dir), DATA_MARK: str(topology.data_dir)}
    # Ray's Python processes write their title over the environment that /proc shows, and our marks with it, unless told not to.
    environment["SPT_NOENV"] = "1"
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return environment


def _ray_settings(topology: Topology) -> dict[str, str]:
    settings = {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(topology.run_dir / "token"),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_DISABLE_IMPORT_WARNING": "1",
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
        # No worker before it is asked for: an idle one takes 50 MB, and coming up it takes the CPU from the one that is needed.
        "RAY_enable_worker_prestart": "0",
        "RAY_prestart_worker_first_driver": "0",
        "RAY_worker_maximum_startup_concurrency": str(topology.n_shards + topology.n_sessions + topology.n_gateways + 1),
        # Nobody looks at the time line of tasks or at Ray's own counters; the broker's metrics are its own.
        "RAY_enable_timeline": "0",
        "RAY_task_events_report_interval_ms": "0",
        "RAY_event_stats": "0",
        # Our actors are what this machine is for: neither lower in priority than others, nor first to go when memory is short.
        "RAY_worker_niceness": "0",
        "RAY_worker_oom_score_adjustment": "0",
        "RAY_memory_monitor_refresh_ms": "0",
        # Bounded: logs, and what the head remembers of actors that died.
        "RAY_ROTATION_MAX_BYTES": "4194304",
        "RAY_ROTATION_BACKUP_COUNT": "1",
        "RAY_log_rotation_max_bytes": "4194304",
        "RAY_log_rotation_backup_count": "1",
        "RAY_maximum_gcs_destroyed_actor_cached_count": "100",
    }
    if not topology.ray.dashboard:
        settings["RAY_enable_metrics_collection"] = "0"
    return settings
