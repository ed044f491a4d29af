"""Ray as its users run it: Holdfast joins a `ray start --head`, is seen and measured there, outlives its end, and runs as a job of it.

The tests have one Ray and one broker, as the one before leaves them: each start costs more than all that is asked of it.
"""

from __future__ import annotations

import asyncio
import os
import time
import urllib.request
from collections.abc import Callable, Iterator

import pytest
from prometheus_client.parser import text_string_to_metric_families

from actors import ROOT
from actors.metrics.to_ray import FIGURES
from actors.processes import alive
from tests.broker.running import Options, RunningBroker, Status
from tests.cluster.somebodys_ray import SomebodysRay
from tests.conformance.peer import Peer

WITHIN_S = 120.0
OURS = ("controller-0", "shard-0", "session-0", "gateway-0", "admin-0")
CLASSES = {"HoldfastController", "HoldfastShard", "HoldfastSession", "HoldfastGateway", "HoldfastAdmin"}
MESSAGES = 20


@pytest.fixture(scope="module")
def ray() -> Iterator[SomebodysRay]:
    with SomebodysRay() as started:
        yield started


@pytest.fixture(scope="module")
def broker(ray: SomebodysRay) -> Iterator[RunningBroker]:
    settings = {"ray.address": "auto", "admin.listen": "127.0.0.1:0", "admin.survey_interval": "1s"}
    with RunningBroker(Options(settings, environment=ray.environment)) as running:
        yield running


def until(done: Callable[[], bool], what: Callable[[], object]) -> None:
    deadline = time.monotonic() + WITHIN_S
    while not done():
        assert time.monotonic() < deadline, what()
        time.sleep(0.2)


def all_there(broker: RunningBroker) -> Status:
    """Ready, and the admin process as well, which comes last."""
    found: list[Status] = []

    def there() -> bool:
        found[:] = [broker.status()]
        return found[0].ready and set(OURS) <= {each.name for each in found[0].processes}

    until(there, lambda: found)
    return found[0]


def of_ray(ray: SomebodysRay) -> dict[str, float]:
    """Our metrics at Ray's own endpoint; those of several processes together."""
    with urllib.request.urlopen(f"http://127.0.0.1:{ray.metrics_port}/metrics", timeout=60) as answer:
        text = answer.read().decode()
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name.startswith("ray_holdfast_"):
                found[sample.name] = found.get(sample.name, 0.0) + sample.value
    return found


async def published(port: int, count: int) -> None:
    publisher = await Peer.connect(port, 5)
    for _ in range(count):
        await publisher.publish("ray/a")
    await publisher.leave()


async def left_behind(port: int, client: str) -> None:
    """A session that is away, and messages for it."""
    away = await Peer.connect(port, 5, client, kept=True)
    await away.subscribe(("ray/#", 1))
    await away.leave()
    await published(port, MESSAGES)


async def taken(port: int, client: str) -> int:
    """By the session that was away, all that waits for it."""
    back = await Peer.connect(port, 5, client, kept=True)
    assert back.present
    found = await back.take_all(MESSAGES)
    await back.leave()
    return len(found)


def test_a_broker_that_joined_is_seen_in_ray_by_telling_names(ray: SomebodysRay, broker: RunningBroker) -> None:
    """In `ray list actors`: names, classes, which broker it is, no CPUs; and the dashboard's address is said by `up` and `status`."""
    status = all_there(broker)
    pids = {each.name: each.pid for each in status.processes}
    assert {each.role for each in status.processes} == {"launcher", "driver", "controller", "shard", "session", "gateway", "admin"}
    actors = {each["name"]: each for each in ray.actors() if each["state"] == "ALIVE"}
    assert set(actors) == {f"holdfast/{name}" for name in OURS}
    assert {each["class_name"] for each in actors.values()} == CLASSES
    for name in OURS:
        actor = actors[f"holdfast/{name}"]
        assert actor["pid"] == pids[name] and actor["repr_name"] == f"{name} of {broker.data_dir}"
        assert actor["is_detached"] and not actor["required_resources"].get("CPU")
    (namespace,) = {each["ray_namespace"] for each in actors.values()}
    assert namespace.startswith("holdfast-")
    address = f"Ray dashboard: http://127.0.0.1:{ray.dashboard_port}"
    assert address in (broker.directory / "commands.log").read_text()
    assert "note: this Ray's head keeps nothing on disk" in (broker.directory / "commands.log").read_text()
    assert address in broker._run(["status", "--data-dir", str(broker.data_dir)], 60, {})


def test_figures_are_in_rays_own_metrics(ray: SomebodysRay, broker: RunningBroker) -> None:
    """All of them, and they are those of what clients did."""
    asyncio.run(left_behind(broker.port, "counted"))
    wanted = {
        "ray_holdfast_messages_in_total": MESSAGES, "ray_holdfast_messages_stored_total": MESSAGES,
        "ray_holdfast_lag_messages_max": MESSAGES, "ray_holdfast_sessions_away": 1,
    }  # fmt: skip
    found: dict[str, float] = {}

    def told() -> bool:
        found.clear()
        found.update(of_ray(ray))
        return all(found.get(name) == value for name, value in wanted.items())

    until(told, lambda: found)
    # What has not been counted yet is not there.
    assert set(found) == {f"ray_{each.name}{'_total' if each.counts else ''}" for each in FIGURES if each.name != "holdfast_messages_out"}


def test_when_the_cluster_is_gone_the_broker_waits_and_is_back_with_it(ray: SomebodysRay, broker: RunningBroker) -> None:
    """SIGKILL of head, raylet, agents and workers; nobody calls `up` again, and nothing stored is lost."""
    before = all_there(broker)
    asyncio.run(left_behind(broker.port, "away"))
    own = [each.pid for each in before.processes if each.role in ("launcher", "driver")]
    ray.kill(spare=own)
    ray.start()
    status = all_there(broker)
    assert status.pids("launcher") == before.pids("launcher") and status.pids("shard") != before.pids("shard")
    assert asyncio.run(taken(broker.port, "away")) == MESSAGES


def test_a_broker_ends_only_its_own_in_a_ray_it_joined(ray: SomebodysRay, broker: RunningBroker) -> None:
    """It survives kill -9 of all that is its own, stops, and the Ray is as it was."""
    pids = {each.pid for each in all_there(broker).processes}
    rays = [process for process in ray.processes() if process.pid not in pids]
    broker.kill_all()
    status = broker.up()
    assert status.ready
    pids = {each.pid for each in status.processes}
    broker.down()
    # Ray starts those that were killed again, and they find that nobody wants them.
    until(lambda: broker.status().processes == (), broker.status)
    # Workers that stood ready may have come and gone.
    assert [process for process in rays if not alive(process) and os.path.exists(f"/proc/{process.pid}")] == []
    assert {each["name"] for each in ray.actors() if each["state"] == "ALIVE"} == set()


def test_a_broker_runs_as_a_job_and_stops_in_good_order_with_it(ray: SomebodysRay, broker: RunningBroker) -> None:
    """As docs/ray.md says it, by deploy/ray/job.yaml: clients are served, and `ray job stop` leaves nothing running."""
    broker.down()
    address = ("--address", f"http://127.0.0.1:{ray.dashboard_port}")
    command = [
        str(broker.executable), "up", "--address", "auto", "--data-dir", str(broker.data_dir), "--port", str(broker.port),
        "--set", "admin.enable=false", "--set", "profile=spread",
    ]  # fmt: skip
    job = ("--submission-id", "holdfast", "--runtime-env", str(ROOT / "deploy" / "ray" / "job.yaml"), "--no-wait")
    ray.command("job", "submit", *address, *job, "--", *command)
    until(lambda: broker.status().ready, lambda: ray.command("job", "logs", *address, "holdfast"))
    asyncio.run(published(broker.port, MESSAGES))
    ray.command("job", "stop", *address, "holdfast")
    until(lambda: broker.status().processes == (), broker.status)
    assert "server.stopped" in (broker.data_dir / "logs" / "shard-0.log").read_text()[-2000:]
    assert f"Holdfast is up: mqtt://127.0.0.1:{broker.port}" in ray.command("job", "logs", *address, "holdfast")
