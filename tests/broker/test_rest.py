"""One real broker, asked over HTTP: it tells what clients have done, changes what it is told to by whoever may, and nothing else."""

from __future__ import annotations

import asyncio
import signal
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from shards.slots import SlotTable
from tests.actors.hand import Hand
from tests.broker.rest import Rest, holdfast, schemathesis
from tests.broker.running import QUIET_RAY, Options, RunningBroker

pytestmark = pytest.mark.parametrize(
    "broker",
    [
        Options(
            {
                **QUIET_RAY, "admin.enable": "true", "admin.listen": "127.0.0.1:0", "gateway.count": "2",
                "durable_storage.messages.n_shards": "2",
            }
        )
    ],
    indirect=True,
    ids=["two by two"],
)  # fmt: skip
HOMES = SlotTable.initial(2)
WITHIN_S = 60.0
SEED, EXAMPLES = 20, 2
PHASES = "coverage,fuzzing"
"""Gate 6.3 has more of it."""


@pytest.fixture(scope="module")
def rest(broker: RunningBroker) -> Rest:
    return Rest.of(broker)


async def test_what_clients_have_done_is_told(broker: RunningBroker, rest: Rest) -> None:
    """Three that are away, one that does not acknowledge, one that is ephemeral and whose id has a slash; in pages, each once."""
    for number in range(3):
        meter = await Hand.connect(broker.port, f"meter-{number}", 5, expiry_s=100_000)
        await meter.subscribe("plant/+/temp", 1)
        await meter.close()
    stuck = await Hand.connect(broker.port, "stuck", 5, receive_max=2)
    await stuck.subscribe("plant/#", 1)
    brief = await Hand.connect(broker.port, "a/brief", 5, expiry_s=0)
    await brief.subscribe("note", 1, 9)
    publisher = await Hand.connect(broker.port, "p", 5, expiry_s=0)
    for number in range(4):
        await publisher.published(f"plant/{number}/temp", *"abc", retain=number == 0)
    await stuck.messages(2)

    clients = {one["clientid"]: one for one in await rest.all("clients")}
    assert {name: (one["connected"], one["durable"]) for name, one in clients.items()} == {
        **{f"meter-{number}": (False, True) for number in range(3)}, "stuck": (True, True), "a/brief": (True, False), "p": (True, False),
    }  # fmt: skip
    away = clients["meter-1"]
    assert away["expiry_interval"] == 100_000 and away["created_at"] <= away["disconnected_at"] < away["expires_at"]
    assert clients["stuck"]["ip_address"] == "127.0.0.1" and clients["stuck"]["port"] and clients["stuck"]["proto_ver"] == 5
    assert all(one["home"] == HOMES.shard_of(name.encode()) for name, one in clients.items())
    assert {one["clientid"] for one in await rest.all("clients?conn_state=connected", 1)} == {"stuck", "a/brief", "p"}
    assert [one["clientid"] for one in await rest.all("clients?like_clientid=eter-2")] == ["meter-2"]
    for path, name in (("clients", "clientid"), ("sessions", "client")):
        assert sorted(one[name] for one in await rest.all(f"{path}?like_clientid=meter", 1)) == ["meter-0", "meter-1", "meter-2"]
    status, one = await rest.ask(f"/api/v5/clients/{quote('a/brief', safe='')}")
    assert status == 200 and one["session"] == "ephemeral" and one["subscriptions_cnt"] == 1 and one["missing"] == []
    assert await rest.ask(f"/api/v5/clients/{quote('a/brief', safe='')}/subscriptions") == (200, [
        {"clientid": "a/brief", "topic": "note", "qos": 1, "nl": 0, "rap": 0, "identifier": 9, "durable": False, "session": "ephemeral"},
    ])  # fmt: skip
    _, subscriptions = await rest.ask("/api/v5/clients/meter-0/subscriptions")
    assert [(one["topic"], one["durable"]) for one in subscriptions] == [("plant/+/temp", True)]
    matching = await rest.all("subscriptions?match_topic=plant/2/temp")
    assert {one["clientid"] for one in matching} == {"stuck", "meter-0", "meter-1", "meter-2"}
    assert (await rest.ask("/api/v5/clients/nobody"))[1]["code"] == "CLIENTID_NOT_FOUND"

    sessions = {one["client"]: one for one in await rest.all("sessions?lag=true")}
    assert {name: one["lag"]["messages"] for name, one in sessions.items()} == dict.fromkeys(["stuck", "meter-0", "meter-1", "meter-2"], 12)
    assert all(one["lag"] is None for one in await rest.all("sessions"))
    _, session = await rest.ask("/api/v5/sessions/meter-0")
    assert session["lag"]["loss_in_ms"] == 7 * 86_400_000 and session["lag"]["subscriptions"]
    _, furthest = await rest.ask("/api/v5/lag?top=2")
    assert [one["messages"] for one in furthest["data"]] == [12, 12] and furthest["meta"]["as_of"]

    assert sum(one["messages"] for one in await rest.all("topics")) == 12
    _, tree = await rest.ask("/api/v5/topics/tree?depth=2")
    assert tree["root"]["messages"] == 12 and [node["path"] for node in tree["root"]["children"]] == ["plant"]
    _, below = await rest.ask("/api/v5/topics/tree?under=plant")
    assert below["root"]["path"] == "plant" and below["root"]["messages"] == 12
    _, explained = await rest.ask("/api/v5/topics/explain?filter=plant/%2B/temp")
    assert explained["matching"] == 12 and explained["counted"] and explained["missing"] == []
    assert [(one["topic"], one["publisher"]) for one in await rest.all("retained")] == [("plant/0/temp", "p")]
    shards = await rest.all("shards")
    assert [(one["shard"], one["up"]) for one in shards] == [(0, True), (1, True)] and sum(one["sessions_away"] for one in shards) == 3
    assert (await rest.ask("/api/v5/shards/of/stuck"))[1]["shard"] == HOMES.shard_of(b"stuck")
    generations = await rest.all("generations", 1)
    assert [one["shard"] for one in generations] == [0, 1] and all(one["current"] for one in generations)
    assert sum(one["messages"] for one in generations) == 12
    _, storage = await rest.ask("/api/v5/storage")
    assert storage["bytes"] == sum(one["bytes"] for one in storage["stores"]) > 0 and storage["free_bytes"] > 0
    for hand in (stuck, brief, publisher):
        await hand.close()


async def test_changes_take_a_key_and_change(broker: RunningBroker, rest: Rest) -> None:
    """Who is kicked has his session still; who is removed has nothing."""
    durable = await Hand.connect(broker.port, "kicked", 5)
    await durable.subscribe("a", 1)
    for path, method in (("clients/kicked/kick", "POST"), ("clients/kicked", "DELETE")):
        assert (await rest.ask(f"/api/v5/{path}", method))[0] == 401
    assert await rest.ask("/api/v5/clients/kicked/kick", "POST", keyed=True) == (204, None)
    assert await durable.ended() == "DISCONNECT 0x98"
    durable.drop()
    assert (await rest.ask("/api/v5/clients/kicked/kick", "POST", keyed=True))[0] == 404
    assert (await rest.ask("/api/v5/clients/kicked"))[1]["connected"] is False
    assert await rest.ask("/api/v5/clients/kicked", "DELETE", keyed=True) == (204, None)
    assert (await rest.ask("/api/v5/clients/kicked"))[0] == 404
    assert (await rest.ask("/api/v5/clients/kicked", "DELETE", keyed=True))[1]["code"] == "CLIENTID_NOT_FOUND"
    brief = await Hand.connect(broker.port, "brief", 4, clean=True)
    assert await rest.ask("/api/v5/clients/brief", "DELETE", keyed=True) == (204, None)
    brief.drop()
    holdfast(broker, "api-keys", "add", "reader", "--json")
    assert (await rest.ask("/api/v5/clients", Host="evil.example"))[0] == 421
    assert (await rest.ask("/api/v5/clients?limitt=3"))[1]["message"].startswith("there is no parameter 'limitt'")


async def test_durable_storage_is_told_and_refused_as_in_emqx(broker: RunningBroker, rest: Rest) -> None:
    """Fields, statuses and sentences of the design."""
    _, (site,) = await rest.ask("/api/v5/ds/sites")
    replica = [{"site": site, "status": "up"}]
    assert (await rest.ask("/api/v5/ds/storages"))[1] == ["messages"] and len(site) == 16 and site == site.upper()
    assert await rest.ask("/api/v5/ds/storages/messages") == (200, {
        "name": "messages", "shards": [{"id": str(shard), "replicas": replica, "transitions": []} for shard in range(2)],
    })  # fmt: skip
    status, about = await rest.ask(f"/api/v5/ds/sites/{site}")
    assert status == 200 and about["up"] and about["shards"][1] == {"storage": "messages", "id": "1", "status": "up"}
    replicas = "/api/v5/ds/storages/messages/replicas"
    assert await rest.ask(replicas) == (200, [site])
    other = "0" * 16
    for path, method, body, wanted in (
        (replicas, "PUT", [site], (202, "OK")),
        (f"{replicas}/{site}", "PUT", None, (202, "OK")),
        (replicas, "PUT", [other], (400, {"code": "BAD_REQUEST", "message": f"Unknown sites: {other}"})),
        (replicas, "PUT", [], (400, {"code": "BAD_REQUEST", "message": "Replica sets would become too small"})),
        (f"{replicas}/{site}", "DELETE", None, (400, {"code": "BAD_REQUEST", "message": "Replica sets would become too small"})),
        (f"{replicas}/{other}", "DELETE", None, (404, {"code": "NOT_FOUND", "message": "Site is not part of replica set"})),
        (f"/api/v5/ds/sites/{site}/forget", "PUT", None, (400, {"code": "BAD_REQUEST", "message": "Site is still up"})),
        (f"/api/v5/ds/sites/{other}/forget", "PUT", None, (404, {"code": "NOT_FOUND", "message": f"Site not found: {other}"})),
    ):
        assert await rest.ask(path, method, keyed=True, body=body) == wanted, (path, method)
    assert (await rest.ask("/api/v5/ds/storages/sessions"))[0] == 404


async def test_health_says_who_is_away_and_who_is_back(broker: RunningBroker, rest: Rest) -> None:
    """A process that stands still is one that does not answer."""
    found = await ready(rest, [])
    assert found["survives"] == {"process_kill": True, "power_loss": True, "node_loss": False} or "in memory" in str(found["because"])
    pid = next(each.pid for each in (await asyncio.to_thread(broker.status)).processes if each.name == "shard-1")
    broker.signal(pid, signal.SIGSTOP)
    try:
        found = await ready(rest, ["shard-1"])
        assert not found["ready"] and found["because"][0].startswith("shard-1 does not answer: ")
        assert (await rest.ask("/health/live"))[0] == 200
    finally:
        broker.signal(pid, signal.SIGCONT)
    await ready(rest, [])


async def ready(rest: Rest, away: list[str]) -> dict[str, Any]:
    """When /health/ready says that these are away."""
    deadline = time.monotonic() + WITHIN_S
    while True:
        status, found = await rest.ask("/health/ready")
        if found["away"] == away and (status == 200) == (not away) and (away or found["ready"]):
            return dict(found)
        assert time.monotonic() < deadline, found


async def test_the_broker_as_a_whole(broker: RunningBroker, rest: Rest) -> None:
    """What runs is what the command lists, and the figures are those of a broker at work."""
    _, about = await rest.ask("/api/v5/status")
    listed = {each.pid: each.name for each in (await asyncio.to_thread(broker.status)).processes}
    told = {each["pid"]: each["name"] for each in about["processes"]}
    assert (
        about["ready"]
        and {pid: name for pid, name in listed.items() if "-" in name and not name.startswith("dash")}.items() <= told.items()
    )
    assert "launcher" in told.values() and {each["kind"] for each in about["listeners"]} == {"tcp", "admin"}
    _, first = await rest.ask("/api/v5/figures")
    await asyncio.sleep(1.1)
    _, second = await rest.ask("/api/v5/figures")
    assert first["now"]["disk_bytes"] > 0 and second["rates"]["published"] >= 0 and second["over_s"] > 0
    assert {each["name"] for each in second["processes"]} >= {"shard-0", "shard-1", "session-0", "gateway-0", "gateway-1", "admin-0"}
    _, config = await rest.ask("/api/v5/config")
    assert config["version"] == 0 and config["settings"]["gateway"]["count"] == 2
    assert await rest.all("alarms") == [] and isinstance(await rest.all("findings"), list)


def test_schemathesis_finds_nothing(broker: RunningBroker, rest: Rest, tmp_path: Path) -> None:
    """Whatever the description allows is answered as it says, and what it does not allow is refused."""
    assert schemathesis(rest, tmp_path, EXAMPLES, SEED, PHASES) == ""
