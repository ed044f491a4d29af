"""A real broker's `/metrics`: the figures are right, all names are there, and nothing that only grows falls, whoever is killed."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from tests.broker.running import QUIET_RAY, Options, RunningBroker
from tests.broker.scraping import Watch, port_of, scrape
from tests.conformance.packets import MESSAGE_EXPIRY
from tests.conformance.peer import Peer
from tests.house.tree import ROOT

SETTINGS = {**QUIET_RAY, "admin.enable": "true", "admin.listen": "127.0.0.1:0", "admin.survey_interval": "1s"}
PROFILES = [Options({**SETTINGS, "profile": profile}) for profile in ("spread", "compact")]
pytestmark = pytest.mark.parametrize("broker", PROFILES, indirect=True, ids=["spread", "compact"])

ROUNDS = 2
KILLED = ("shard-0", "session-0", "gateway-0")
SHARD = ("messages", "0")


async def published(broker: RunningBroker, sizes: list[int]) -> None:
    """One message of each size, with properties on some, for a durable session that is away."""
    publisher = await Peer.connect(broker.port, 5)
    for number, size in enumerate(sizes):
        await publisher.publish(f"metered/{number % 7}", bytes(size), 1, properties=[(MESSAGE_EXPIRY, 3600)] if number % 3 == 0 else [])
    await publisher.leave()


async def test_figures_are_those_of_what_was_sent(broker: RunningBroker) -> None:
    """Messages, payloads and batches under EMQX's names, and what clients did under ours."""
    port = await asyncio.to_thread(port_of, broker)
    away = await Peer.connect(broker.port, 5, "away", kept=True)
    await away.subscribe(("metered/#", 1))
    await away.leave()
    sizes = [0, 1, 10, 127, 128, 1000, 20_000, *range(50, 93)]
    with Watch(port) as watch:
        before = await asyncio.to_thread(watch.until, {("emqx_durable_subscriptions_count",): 1, ("holdfast_shard_away", "0"): 1})
        stored = before.sum("emqx_ds_egress_messages")
        await published(broker, sizes)
        after = await asyncio.to_thread(watch.until, {("emqx_ds_egress_messages", *SHARD): stored + len(sizes)})
        sent = before.sum("holdfast_gateway_publishes_received_total") + len(sizes)
        after = await asyncio.to_thread(watch.until, {("holdfast_gateway_publishes_received_total", "0"): sent})
        assert after.sum("emqx_ds_egress_messages") == stored + len(sizes)
        assert after.sum("emqx_ds_egress_bytes") - before.sum("emqx_ds_egress_bytes") == sum(sizes)
        assert 1 <= after.sum("emqx_ds_egress_batches") - before.sum("emqx_ds_egress_batches") <= len(sizes)
        for name in ("messages", "bytes", "batches", "flush_time"):
            assert after.sum(f"emqx_ds_buffer_{name}") == after.sum(f"emqx_ds_egress_{name}")
        assert after.sum("emqx_messages_persisted") == after.sum("emqx_ds_egress_messages")
        assert after.sum("holdfast_gateway_publishes_received_total") == sent
        # One PUBACK after the other was waited for, so there is a frame for each.
        assert after.sum("holdfast_publish_seconds_count") - before.sum("holdfast_publish_seconds_count") == len(sizes)
        assert 0 < after.sum("emqx_ds_store_batch_time") < after.sum("emqx_ds_egress_flush_time") < 60e6
        assert after.sum("emqx_ds_disk_usage") > sum(sizes)
        surveyed = await asyncio.to_thread(watch.until, {("holdfast_session_lag_messages", "", "1"): len(sizes)})
        assert surveyed.sum("holdfast_session_lag_messages") == surveyed.sum("holdfast_session_lag_messages", "1") == len(sizes)
        # The generation is written to, so a whole period is left.
        assert surveyed.sum("holdfast_session_time_to_loss_seconds", "1") == 7 * 86_400
        assert surveyed.sum("holdfast_sessions_by_lag", "10.0") == 0 < surveyed.sum("holdfast_sessions_by_lag", "100.0")
        back = await Peer.connect(broker.port, 5, "away", kept=True)
        assert len(await back.take_all(len(sizes))) == len(sizes)
        acked = before.sum("holdfast_session_acknowledged_total") + len(sizes)
        after = await asyncio.to_thread(
            watch.until, {("holdfast_session_acknowledged_total", "0"): acked, ("emqx_ds_builtin_next_time", *SHARD): 1}
        )
        assert after.sum("holdfast_session_sent_total") - before.sum("holdfast_session_sent_total") == len(sizes)
        assert watch.fallen == []
        await back.leave()


async def test_everything_that_dashboards_and_alerts_ask_for_is_scraped(broker: RunningBroker) -> None:
    """Of a real broker, by its real name."""
    found = await asyncio.to_thread(lambda: scrape(port_of(broker)))
    for path in (Path("grafana/holdfast.json"), Path("prometheus/alerts.yml")):
        asked = set(re.findall(r"\b(?:holdfast|emqx)_\w+", (ROOT / "deploy" / path).read_text(encoding="utf-8")))
        assert len(asked) > 10 and asked - found.names == set()


async def test_no_count_ever_falls_whoever_is_killed(broker: RunningBroker) -> None:
    """SIGKILL of shard, session actor and gateway at once, and again; at last of the process that answers."""
    port = await asyncio.to_thread(port_of, broker)
    gone = await Peer.connect(broker.port, 5, "gone", kept=True)
    await gone.subscribe(("metered/#", 1))
    await gone.leave()
    with Watch(port) as watch:
        starts = dict.fromkeys(KILLED, 1.0)
        await asyncio.to_thread(watch.until, {("holdfast_process_starts_total", name): 1 for name in KILLED})
        for _ in range(ROUNDS):
            stored = watch.last.sum("emqx_ds_egress_messages")
            await published(broker, [100] * 20)
            counted = await asyncio.to_thread(watch.until, {("emqx_ds_egress_messages", *SHARD): stored + 20})
            assert counted.sum("emqx_ds_egress_messages") == stored + 20
            pids = {each.name: each.pid for each in (await asyncio.to_thread(broker.status)).processes}
            for name in KILLED:
                await asyncio.to_thread(broker.kill, pids[name], wait=False)
                starts[name] += 1
            again = await asyncio.to_thread(watch.until, {("holdfast_process_starts_total", name): starts[name] for name in KILLED})
            assert again.sum("emqx_ds_egress_messages") == stored + 20
        # The new shard has nothing in memory, so this is read from the disk.
        back = await Peer.connect(broker.port, 5, "gone", kept=True)
        assert len(await back.take_all(ROUNDS * 20)) == ROUNDS * 20
        await asyncio.to_thread(
            watch.until, {("emqx_ds_storage_skipstream_lts_next", *SHARD): 20, ("emqx_ds_builtin_next_time", *SHARD): 1}
        )
        pids = {each.name: each.pid for each in (await asyncio.to_thread(broker.status)).processes}
        await asyncio.to_thread(broker.kill, pids["admin-0"])
        last = await asyncio.to_thread(watch.until, {("holdfast_process_starts_total", "admin-0"): 2})
        assert {name: last.sum("holdfast_process_starts_total", name) for name in KILLED} == starts
        assert watch.fallen == [] and watch.scrapes > 10
