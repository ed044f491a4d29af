"""What is known of the whole broker, and of no process alone: looked up by who answers a scrape."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from actors.alarms import read_alarms
from actors.metrics.names import Metric
from actors.metrics.of_shard import GAUGES as OF_SHARD
from actors.processes import alive
from actors.release import release
from actors.reserve import stored_bytes
from actors.topology import Topology, read_announcements

BUILD: Final = Metric("holdfast_build_info", "gauge", ("version", "site"), "1; which program runs, on which data directory.")
STARTED: Final = Metric("holdfast_start_time_seconds", "gauge", (), "When this run began, and its counters; since 1970.")
EXPECTED: Final = Metric("holdfast_processes_expected", "gauge", ("role",), "Processes of this role that there have to be.")
RUNNING: Final = Metric("holdfast_processes_running", "gauge", ("role",), "Processes of this role that have started and live.")
ALARM: Final = Metric("holdfast_alarm", "gauge", ("process", "kind"), "1 for each alarm that `holdfast status` shows.")
DISK: Final = Metric("emqx_ds_disk_usage", "gauge", ("group",), "Bytes of all files of the store.")
SUBSCRIPTIONS: Final = Metric("emqx_durable_subscriptions_count", "gauge", (), "Durable subscriptions of all sessions.")
METRICS: Final = (BUILD, STARTED, EXPECTED, RUNNING, ALARM, DISK, SUBSCRIPTIONS)

Value = tuple[Metric, tuple[str, ...], float]


def of_node(topology: Topology, of_processes: dict[str, list[float]]) -> Iterator[Value]:
    """of_processes: values of gauges that processes have written, by family. Reads files: for a thread."""
    yield BUILD, (release(), topology.site), 1
    yield STARTED, (), round((topology.run_dir / "topology.json").stat().st_mtime, 3)
    roles = [role for role, _ in [*topology.members(), ("controller", 0)]]
    living = [each.announcement.role for each in read_announcements(topology.run_dir) if alive(each.process)]
    for role in dict.fromkeys(roles):
        yield EXPECTED, (role,), roles.count(role)
    for role in dict.fromkeys([*roles, *living]):
        yield RUNNING, (role,), living.count(role)
    for alarm in read_alarms(topology.run_dir):
        yield ALARM, (alarm.name, alarm.kind), 1
    yield DISK, ("messages",), stored_bytes(topology.store_dir)
    routes = of_processes.get(OF_SHARD["routes"].name)
    if routes:
        # Each shard knows all; one that is being told of a change has one more, or one less.
        yield SUBSCRIPTIONS, (), max(routes)
