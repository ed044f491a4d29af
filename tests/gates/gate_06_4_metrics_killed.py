"""Gate 4 of issue 6: 30 kills of actors under load, and no counter of /metrics ever falls; /health tells the truth within 2 s.

SIGKILL to shards, session actor, gateways, controller and the admin process in turn, while publishers at QoS 1 and 2 send and
somebody scrapes all the time. Two seconds after a kill /health/ready has named who was killed, and two seconds after everybody is there
again it has said so; of the admin process itself nobody answers. At the end what was counted is held against what was published: nothing
is counted twice, and for each kill of a shard at most the last moments before it are missing.
"""

from __future__ import annotations

import asyncio
import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any

from tests.broker.client import Client
from tests.broker.history import History
from tests.broker.scraping import Watch, port_of
from tests.broker.standing import Standing
from tests.gates.gate import GateFailed, Scale, Watched, require_no_faults, running, settings, topics
from tests.gates.traffic import Publisher, at_work, client_ids, everything_flows, require_sessions_kept

LIMIT_S = 1800
KILLS = 30
PER_SECOND = 40.0
SETTLE_S = 60.0
TRUTH_S = 2.0
UNCOUNTED_S = 5.0
"""What one kill of a shard may leave out: the second between two copies, on a busy machine."""
NAMES = ("shard-0", "session-0", "gateway-0", "controller-0", "shard-1", "gateway-1", "admin-0")


Health = tuple[int, dict[str, Any]]


def health(port: int) -> Health | None:
    """Status and answer; None: nobody answers."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health/ready", timeout=10) as answer:
            return int(answer.status), json.loads(answer.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())
    except OSError:
        return None


class Truth:
    """What /health/ready says after each kill, and how long it took to say it: the longest of all."""

    def __init__(self, watched: Watched, port: int) -> None:
        self._watched = watched
        self._port = port
        self.away_s = self.back_s = 0.0

    async def told_away(self, name: str) -> None:
        self.away_s = max(self.away_s, await self._within(f"{name} is away", lambda found: self._is_away(name, found)))

    async def told_back(self) -> None:
        deadline = time.monotonic() + SETTLE_S
        while not (await self._watched.status()).ready:
            if time.monotonic() > deadline:
                raise GateFailed(f"`holdfast status` does not say ready {SETTLE_S:.0f} s after a kill")
        self.back_s = max(self.back_s, await self._within("everybody is there", lambda found: found is not None and found[0] == 200))

    def figure(self) -> str:
        return f"/health said who was away after {self.away_s:.1f} s at most, who was back after {self.back_s:.1f} s"

    @staticmethod
    def _is_away(name: str, found: Health | None) -> bool:
        """Of the admin process the truth is that it does not answer."""
        return found is None if name.startswith("admin") else found is not None and found[0] == 503 and name in found[1]["away"]

    async def _within(self, what: str, is_so: Callable[[Health | None], bool]) -> float:
        """How long it took, not counting the time for which this process was kept from running."""
        began = time.monotonic()
        async with Standing() as standing:
            while True:
                found = await asyncio.to_thread(health, self._port)
                passed = time.monotonic() - began - standing.seconds
                if is_so(found):
                    return passed
                if passed > TRUTH_S:
                    raise GateFailed(f"{passed:.1f} s after {what}, /health/ready says {found}")
                await asyncio.sleep(0.05)


async def run(scale: Scale) -> str:
    kills = scale.of(KILLS, 7)
    history = History()
    async with running(settings(2, **{"gateway.count": "2", "admin.enable": "true", "admin.listen": "127.0.0.1:0"})) as watched:
        broker = watched.broker
        port = await asyncio.to_thread(port_of, broker)
        reader = Client(broker.port, "metered-reader", history)
        await reader.start()
        await reader.subscribe("metered/#", 2)
        publishers = [
            Publisher(Client(broker.port, name, history), 1 + at % 2, PER_SECOND / 4, topics("metered"))
            for at, name in enumerate(client_ids("metered", 4, 2))
        ]
        with Watch(port) as watch:
            starts, truth = dict.fromkeys(NAMES, 1), Truth(watched, port)
            await asyncio.to_thread(watch.until, {("holdfast_process_starts_total", name): 1 for name in NAMES})
            async with at_work(publishers, [reader]):
                for number in range(kills):
                    name = NAMES[number % len(NAMES)]
                    pid = next(each.pid for each in (await watched.status()).processes if each.name == name)
                    await asyncio.to_thread(broker.kill, pid)
                    await truth.told_away(name)
                    starts[name] += 1
                    await asyncio.to_thread(watch.until, {("holdfast_process_starts_total", name): starts[name]})
                    await truth.told_back()
                await everything_flows(publishers, [reader], history, time.monotonic() + SETTLE_S)
                for each in publishers:
                    await each.finish(SETTLE_S)
                published = sum([each.next_number for each in publishers])
            scrapes, unanswered = watch.scrapes, watch.unanswered
            await asyncio.to_thread(watch.until, {("holdfast_gateway_connections_accepted_total", "0"): 1})
            counted, fallen = watch.last.sum("emqx_ds_egress_messages"), watch.fallen
        require_no_faults(history, "under load")
        require_sessions_kept([reader])
        if fallen:
            raise GateFailed(f"{len(fallen)} times a count fell, first {fallen[0]}")
        least = published - kills * UNCOUNTED_S * PER_SECOND * sum([name.startswith("shard") for name in NAMES]) / len(NAMES)
        if not max(1, least) <= counted <= published:
            raise GateFailed(f"{published} messages were published, and {counted:.0f} are counted")
    return (
        f"{kills} kills, {scrapes} scrapes, {unanswered} unanswered; no count fell, {counted:.0f} of {published} messages are counted; "
        f"{truth.figure()}"
    )
