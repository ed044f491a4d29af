"""Three sites in one Ray cluster, as its users start one: a head that only manages, and a node for each site.

What a Ray of its own for each site cannot show: a node goes with its raylet and all actors on it, raylets stand still or are killed beside
living actors, and all sites live without their one head while one of them is lost.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path

from actors.processes import ProcessId, alive
from tests.cluster.nodes import Node, Nodes
from tests.gates.gate import GateFailed
from tests.sites.campaign import Campaign, campaign
from tests.sites.running import several

BACK_S = 40.0
HEAD_S = 120.0
STOPPED_S = 15.0
NODES = ("a", "b", "c")


def raylet_of(node: Node) -> ProcessId:
    """Raises GateFailed when it has none."""
    for process in node.processes():
        if alive(process) and Path(f"/proc/{process.pid}/comm").read_text().strip() == "raylet":
            return process
    raise GateFailed(f"the node in {node.directory} has no raylet")


async def ready_again(running: Campaign, site: int) -> None:
    deadline = time.monotonic() + HEAD_S
    while not (await asyncio.to_thread(running.sites.sites[site].status)).ready:
        if time.monotonic() > deadline:
            raise GateFailed(f"site {site} was not ready again within {HEAD_S:.0f} s")
        await asyncio.sleep(0.2)


async def leading(running: Campaign) -> int:
    return await asyncio.to_thread(running.sites.leader_of, 0)


async def node_lost(running: Campaign, nodes: list[Node]) -> None:
    """Raylet and actors of the site that leads; its launcher waits for the node, and makes them anew."""
    site = await leading(running)
    running.up.remove(site)
    await asyncio.to_thread(nodes[site].kill)
    await running.flows(BACK_S)
    await asyncio.to_thread(nodes[site].start)
    await ready_again(running, site)
    running.up.append(site)
    await running.flows(BACK_S)


async def raylet_stands_still(running: Campaign, nodes: list[Node]) -> None:
    """Of the site that leads: no message goes through it."""
    raylet = raylet_of(nodes[await leading(running)])
    os.kill(raylet.pid, signal.SIGSTOP)
    try:
        await running.flows(BACK_S)
        await asyncio.sleep(STOPPED_S)
        await running.flows(BACK_S)
    finally:
        os.kill(raylet.pid, signal.SIGCONT)
    await running.flows(BACK_S)


async def lost_without_head(running: Campaign, cluster: Nodes, nodes: list[Node]) -> None:
    """The head is away, and the node of the site that leads is lost: another site leads without asking anybody of Ray."""
    await asyncio.to_thread(cluster.head.kill)
    await running.flows(BACK_S)
    site = await leading(running)
    running.up.remove(site)
    await asyncio.to_thread(nodes[site].kill)
    await running.flows(BACK_S)
    await asyncio.to_thread(cluster.head.start)
    await running.flows(BACK_S)
    await asyncio.to_thread(nodes[site].start)
    await ready_again(running, site)
    running.up.append(site)
    await running.flows(BACK_S)


async def survive_in_one_ray() -> str:
    """All of these, one after the other. Raises GateFailed; what was seen."""
    cluster = await asyncio.to_thread(Nodes(*NODES).__enter__)
    try:
        nodes = list(cluster.workers.values())
        async with several(len(NODES), nodes=cluster) as sites, campaign(sites, "ray") as running:
            await running.flows(BACK_S)
            await node_lost(running, nodes)
            await raylet_stands_still(running, nodes)
            await lost_without_head(running, cluster, nodes)
            judged = await running.judge("three sites in one Ray cluster")
            return f"in one Ray cluster {judged}, flowed again within {max(running.took):.1f} s"
    finally:
        await asyncio.to_thread(cluster.__exit__, None, None, None)
